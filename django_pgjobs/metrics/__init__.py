"""Metrics for Prometheus: of one worker, as it counts them, and of everything in the database.

The two are never mixed: a counter is a worker's own and begins at zero with it; what the database
says is a gauge, which whoever asks gets from one address.
"""
