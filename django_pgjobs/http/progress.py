"""What workers over HTTP say of their progress, as `current_job().progress()` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import psycopg

from django_pgjobs.control.stuck import report_of
from django_pgjobs.http.assignments import MAX_NAMED, Assignment
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.pool import turn
from django_pgjobs.queries import jobs
from django_pgjobs.queries.errors import trouble_of
from django_pgjobs.queries.remote import Reported, send_reported
from django_pgjobs.values.payload import scrub
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.careful import by_halves

logger = get_logger(__name__)

# The id of a job, and the number of its claim.
Claim = tuple[int, int]

MAX_NUMBER = 1e15
MAX_MESSAGE = 500


def read_progress(fields: Fields) -> str:
    """Return one report, as it is stored."""
    done = fields.number("done", -MAX_NUMBER, MAX_NUMBER)
    total = fields.number("total", -MAX_NUMBER, MAX_NUMBER, default=None)
    message = fields.text("message", default="", min_length=0, max_length=10 * MAX_MESSAGE)
    return json.dumps({"done": done, "total": total, "message": scrub(message, MAX_MESSAGE)})


def last_progress(fields: Fields) -> str | None:
    """Return the last report of an attempt that ends, None if there is none to be stored."""
    given = fields.object("progress", default=None)
    return None if given is None else read_progress(given)


def progress_of(fields: Fields) -> dict[str, str]:
    """Return the reports of a heartbeat, by the ids of the assignments."""
    if not fields.mapping("progress", default=None, max_items=MAX_NAMED):
        return {}
    given = fields.object("progress")
    return {sealed: read_progress(given.object(sealed)) for sealed in given.members}


def write_progress(reports: Iterable[tuple[Assignment, str]]) -> set[int]:
    """Write reports; return the jobs of those that are still under way.

    One that cannot be written is dropped, and no other: the next one says more.
    """
    under_way = set[int]()

    def write(some: Sequence[tuple[Claim, str]]) -> None:
        under_way.update(_written(dict(some)))

    def drop(report: tuple[Claim, str], error: psycopg.Error) -> None:
        if not trouble_of(error).spares_rest:
            raise error
        (job_id, _), _ = report
        under_way.add(job_id)
        logger.warning("job=%s its progress cannot be written: %s", job_id, str(error).strip())

    # A worker may go on with a job that it has lost and got again: only one of both is its.
    texts = {(assignment.job_id, assignment.claim): text for assignment, text in reports}
    if texts:
        by_halves(list(texts.items()), write, on_refused=drop)
    return under_way


def _written(texts: Mapping[Claim, str]) -> set[int]:
    [found] = turn([partial(send_reported, claims=texts)])
    before = [Reported._make(row) for row in found]
    rows = [
        (each.id, each.claim, pause, texts[each.id, each.claim])
        for each in before
        if (pause := _longest_pause(each, texts[each.id, each.claim])) is not None
    ]
    [written] = turn([partial(jobs.send_progress, reports=rows)]) if rows else [[]]
    unchanged = {each.id for each in before} - {job_id for job_id, *_ in rows}
    return unchanged | {row[0] for row in written}


def _longest_pause(before: Reported, text: str) -> float | None:
    """Return the longest pause of an attempt between two changes of its progress, in seconds.

    None: this is none, because to report the same again is standing still.
    """
    report = report_of(before.progress)
    if report is None:
        return round(max(before.ran, 0.0), 3)
    if report.said == json.loads(text):
        return None
    pause = (before.now - report.changed_at).total_seconds()
    return round(max(report.pause, min(pause, before.ran), 0.0), 3)
