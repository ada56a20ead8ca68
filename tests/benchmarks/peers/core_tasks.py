"""The tasks, for every backend that takes plain `django.tasks` tasks."""

from __future__ import annotations

import time

from bench_app.models import Entry
from latency_file import write_first_line

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task


@task
def noop(number: int) -> None:
    pass


@task
def insert(number: int) -> None:
    Entry.objects.create(number=number)


@task
def record(number: int) -> None:
    now = time.time()
    write_first_line(number, now)
