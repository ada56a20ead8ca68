"""Claiming jobs, and writing their outcomes."""
