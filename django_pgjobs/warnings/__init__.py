"""What is wrong now: what the Overview and `manage.py jobs doctor` warn of."""
