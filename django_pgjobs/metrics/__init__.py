"""Metrics for Prometheus: of one worker, as it counts them, and of everything in the database.

The two are never mixed: a counter belongs to a worker and begins at zero with it; what the database
says is a gauge, at one address.
"""
