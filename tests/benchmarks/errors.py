"""Why something could not be measured."""

from __future__ import annotations


class Unavailable(Exception):
    """The system cannot be measured here: not installable, too old a Python, ..."""


class MeasurementFailed(Exception):
    """A worker or client died, or jobs are missing from the database."""
