"""Tables for what the tasks of the tests do to the database."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """One visible effect of one run of a task: how often it ran is how many rows there are."""

    key = models.TextField(db_index=True)
    job_id = models.BigIntegerField(null=True)
    attempt = models.IntegerField(null=True)
    made_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.key} by job {self.job_id}, attempt {self.attempt}"
