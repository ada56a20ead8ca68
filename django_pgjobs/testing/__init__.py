"""Running jobs in the tests of a project.

    from django_pgjobs.testing import run_jobs

    def test_sign_up(client):
        client.post("/sign-up/", {...})
        assert run_jobs() == 1

`simulated_time()` has a clock that is moved by hand, for schedules and retries.
"""

from __future__ import annotations

from django_pgjobs.testing.clock import Clock, simulated_time
from django_pgjobs.testing.running import arun_jobs, rate_limits_on_test_connection, run_jobs

__all__ = [
    "Clock",
    "arun_jobs",
    "rate_limits_on_test_connection",
    "run_jobs",
    "simulated_time",
]
