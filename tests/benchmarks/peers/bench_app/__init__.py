"""The application the Django jobs work on: one table."""
