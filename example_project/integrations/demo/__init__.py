"""The part of `manage.py demo` about integrations: a world, what happens in it, and checks."""
