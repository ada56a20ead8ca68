"""What a worker waits for, shortened: it imports this through PGJOBS["TASK_MODULES"].

These times are no settings, because no installation needs other ones; only tests do.
"""

from __future__ import annotations

from django_pgjobs.queries import connection
from django_pgjobs.worker import outcome, runner, watchdog

connection.ANSWER_SECONDS = 1.0
connection.TRANSPORT["connect_timeout"] = 2  # seconds, the least that libpq takes
watchdog.LOOK_SECONDS = 0.2
runner.LAST_SECONDS = 0.7
outcome.UNKNOWN_TASK_SECONDS = (0.1, 0.3)
