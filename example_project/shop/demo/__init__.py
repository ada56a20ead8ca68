"""What `manage.py demo` is made of: a plan, its execution, and checks of what it came to."""
