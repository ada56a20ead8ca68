"""Benchmarks of django_pgjobs beside its peers and beside bare SQL.

Run `python -m tests.benchmarks --help` from the root of the repository. Reading order:
`rows.py` (what is measured and how), `system.py` (what a measured system must offer),
`systems/` (one adapter each, with the settings chosen), `peers/` (the scripts that run
inside each system's own environment). Nothing here is collected by pytest.
"""
