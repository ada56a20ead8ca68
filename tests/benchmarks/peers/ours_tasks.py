"""The tasks, declared with django_pgjobs."""

from __future__ import annotations

import time

from bench_app.models import Entry
from latency_file import write_first_line

from django_pgjobs import task


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
