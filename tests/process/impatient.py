"""What a worker waits for, shortened: it imports this through PGJOBS["TASK_MODULES"].

These times are no settings, because no installation needs other ones; only tests do.
"""

from __future__ import annotations

import os

from django_pgjobs.queries import connection, own_settings
from django_pgjobs.worker.process import worker_process
from django_pgjobs.worker.running import outcome, watchdog
from django_pgjobs.worker.turns import refusals

connection.ANSWER_SECONDS = 1.0
own_settings.TRANSPORT["connect_timeout"] = 2  # seconds, the least that libpq takes
watchdog.LOOK_SECONDS = 0.2
worker_process.LAST_SECONDS = 0.7
outcome.UNKNOWN_TASK_SECONDS = (
    float(os.environ.get("TESTS_UNKNOWN_TASK_MIN", "0.1")),
    float(os.environ.get("TESTS_UNKNOWN_TASK_MAX", "0.3")),
)
refusals.UNKNOWN_SECONDS = outcome.UNKNOWN_TASK_SECONDS[1]
