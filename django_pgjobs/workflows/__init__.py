"""Batches of jobs, and trees of them: what a project calls, and what the methods of `Batch` do.

A workflow is a batch at the root of a tree. Everything runs on Django's own connection, inside the
transaction that is open there; the statements are in `queries.batches`.
"""
