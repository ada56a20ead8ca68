"""Migrations as later releases may have them, each by one of our operations."""
