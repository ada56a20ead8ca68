"""Statements: one function per `.sql` file, and the only place that executes them.

Each function takes a cursor: the worker's own (psycopg, `queries.connection`) or one of
Django's. It sends one statement and returns its rows; transactions are the caller's.
"""
