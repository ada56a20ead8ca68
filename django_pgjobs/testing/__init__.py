"""Running jobs in the tests of a project.

    from django_pgjobs.testing import assert_enqueued, run_jobs

    def test_sign_up(client):
        client.post("/sign-up/", {...})
        assert_enqueued(send_welcome, user_id=1)
        assert run_jobs() == 1

`simulated_time()` has a clock that is moved by hand, for schedules and retries.
"""

from __future__ import annotations

from django_pgjobs.testing.clock import Clock, simulated_time
from django_pgjobs.testing.enqueued import assert_enqueued, assert_not_enqueued
from django_pgjobs.testing.running import arun_jobs, rate_limits_on_test_connection, run_jobs

__all__ = [
    "Clock",
    "arun_jobs",
    "assert_enqueued",
    "assert_not_enqueued",
    "rate_limits_on_test_connection",
    "run_jobs",
    "simulated_time",
]
