"""The row an `insert` job writes."""

from __future__ import annotations

from django.db import models


class Entry(models.Model):
    number = models.IntegerField()

    class Meta:
        db_table = "bench_entry"
