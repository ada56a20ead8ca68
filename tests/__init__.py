"""The tests of django_pgjobs; run them with pytest in the root of the checkout."""
