"""The tasks as Procrastinate's Django users write them: plain functions."""

from __future__ import annotations

import time

from bench_app.models import Entry
from latency_file import write_first_line
from procrastinate.contrib.django import app


@app.task
def noop(number: int) -> None:
    pass


@app.task
def insert(number: int) -> None:
    Entry.objects.create(number=number)


@app.task
def record(number: int) -> None:
    now = time.time()
    write_first_line(number, now)
