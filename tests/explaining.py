"""Asking why a job does not run."""

from __future__ import annotations

from django_pgjobs.control.explain import explain
from django_pgjobs.control.explanation import Reason


def codes(job_id: int) -> list[str]:
    """Return the codes of all reasons."""
    return [reason.code for reason in explain(job_id).reasons]


def only(job_id: int) -> Reason:
    """Return the one reason why a job cannot start."""
    found = explain(job_id)
    assert not found.is_ready_to_run
    [reason] = found.reasons
    return reason


def outlook(job_id: int) -> Reason:
    """Return the last reason of a job that can start."""
    found = explain(job_id)
    assert found.is_ready_to_run, str(found)
    return found.reasons[-1]
