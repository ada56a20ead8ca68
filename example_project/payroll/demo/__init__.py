"""What `manage.py demo` does about the payroll: a worker is killed in the middle of it."""
