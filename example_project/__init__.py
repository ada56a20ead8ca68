"""A small shop that uses django_pgjobs: `python example_project/manage.py demo`."""
