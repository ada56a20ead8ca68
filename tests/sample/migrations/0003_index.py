"""An index on finished jobs."""

from __future__ import annotations

from django.db import migrations

from django_pgjobs.operations import BuildIndex


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pgjobs", "0002_column")]
    operations = [
        BuildIndex("pgjobs_job_sample", "ON pgjobs_job_finished (sample) WHERE sample > 0")
    ]
