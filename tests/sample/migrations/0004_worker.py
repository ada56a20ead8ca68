"""A column of workers, by Django."""

from __future__ import annotations

from django.db import migrations, models

from django_pgjobs.operations import ShortLocks


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pgjobs", "0003_index")]
    operations = [
        ShortLocks([migrations.AddField("worker", "sample", models.IntegerField(null=True))])
    ]
