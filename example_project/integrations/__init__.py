"""Keeping products in step with other companies' systems, and settling trades in order."""
