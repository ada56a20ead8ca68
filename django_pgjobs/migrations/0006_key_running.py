"""The running jobs of a key, in an index that no statement about them can pass by.

`status <> 'ready'` and not `status = 'running'`: the planner took the index of all running jobs
instead, where both had been empty when a worker's statement was planned.
"""

from __future__ import annotations

from django.db import migrations

from django_pgjobs.operations import PostgresSQL

REPLACE = """
DROP INDEX pgjobs_job_key_running;
CREATE INDEX pgjobs_job_key_running ON pgjobs_job_live (concurrency_key)
    WHERE status <> 'ready' AND concurrency_key IS NOT NULL;
"""

RESTORE = """
DROP INDEX pgjobs_job_key_running;
CREATE INDEX pgjobs_job_key_running ON pgjobs_job_live (concurrency_key)
    WHERE status = 'running' AND concurrency_key IS NOT NULL;
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0005_admin")]
    operations = [PostgresSQL(REPLACE, RESTORE)]
