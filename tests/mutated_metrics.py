"""What `tests.mutations` takes out of metrics, health and traces."""

from __future__ import annotations

PROCESS = "django_pgjobs/worker/process/"
HEALTH = ("tests/worker/test_health.py",)

# Name, file, what is replaced and by what, and the tests of which one must fail.
METRICS = (
    (
        "health: claims that do not come",
        f"{PROCESS}health.py",
        "self._claiming.seconds > LIVE_SECONDS",
        "False",
        HEALTH,
    ),
    (
        "health: a worker that runs something",
        f"{PROCESS}health.py",
        "self._state.held or not self._outlook.has_room",
        "not self._outlook.has_room",
        HEALTH,
    ),
    (
        "health: the oldest caller",
        f"{PROCESS}health_server.py",
        "oldest.shutdown(socket.SHUT_RDWR)",
        "pass",
        HEALTH,
    ),
    (
        "health: size of a request",
        f"{PROCESS}health_server.py",
        "if left <= 0 or len(head) > MAX_REQUEST_BYTES:",
        "if left <= 0:",
        HEALTH,
    ),
    (
        "metrics: the token",
        "django_pgjobs/metrics/views.py",
        "not constant_time_compare(given.strip(), token)",
        "not given",
        ("tests/metrics/test_of_installation.py",),
    ),
    (
        "traces: the record of a failure in its trace",
        "django_pgjobs/worker/running/job_log.py",
        "attempt.trace.run(partial(_log_outcome, attempt, outcome, worker))",
        "_log_outcome(attempt, outcome, worker)",
        ("tests/tracing/test_sentry.py",),
    ),
)
