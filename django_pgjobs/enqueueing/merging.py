"""Enqueueing with unique keys: what happens if a live job has the key.

A key is unique per task, by the partial unique index on the live partition. Each batch is one
statement, INSERT ... ON CONFLICT, in one of three kinds (`queries.enqueue`):

- MEET inserts or meets, for "raise", and for "return" where the key is held until the job has
  finished: what is met may be running.
- LOCK inserts or locks the waiting job, for "return" where the key is free from the claim on:
  nobody claims the job before the caller commits, so it sees what the caller wrote.
- MERGE inserts or changes the waiting job, for "replace" and "merge".

A job that was claimed once is never changed. Where the claim frees the key, an enqueue that
comes upon a claim waits for its commit, a few milliseconds, and inserts a new job.

The arguments are merged in the database, by a function over `json` (migrations/sql/0001/merge.sql),
because that takes one statement, also for a batch and for enqueue_from, and the values stay what
they are. A function of the project's own runs here, with the waiting job locked: LOCK, then the
function, then MERGE with what it returned. What the statement leaves alone (a waiting job that
has positional arguments, or would grow too large) goes the same way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeGuard

from django.db import connections, transaction

from django_pgjobs.compat import AnyTask, InvalidTask
from django_pgjobs.conf import SERVER_PAYLOAD_BYTES, get_conf
from django_pgjobs.declaring.registry import IMPORT_ERRORS, find_function, said_of
from django_pgjobs.declaring.signatures import arguments_by_name
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing.columns import all_start_columns, job_columns, make_line
from django_pgjobs.enqueueing.meeting import note_met
from django_pgjobs.exceptions import DuplicateJob, JobError
from django_pgjobs.queries import enqueue
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.enqueue import (
    LOCK,
    MEET,
    MERGE,
    CompiledSelect,
    JobLine,
    KnownJob,
    UniqueColumns,
)
from django_pgjobs.values.payload import decode_arguments
from django_pgjobs.values.words import counted

# How often an enqueue retries if it met a job that it cannot see.
TRIES = 20

Merge = Callable[[dict[str, Any], dict[str, Any]], Any]


def is_unique(task: AnyTask) -> TypeGuard[Task]:
    """Have the jobs of the task a unique key?"""
    return isinstance(task, Task) and task.unique_key is not None


def frees_key_at_claim(task: Task) -> bool:
    """Is the unique key of a job free again as soon as a worker claims it?"""
    changes = task.on_conflict in ("replace", "merge")
    return (task.unique_until or ("claimed" if changes else "finished")) == "claimed"


def merges_by_name(task: Task) -> bool:
    """Are arguments of two jobs merged one by one?"""
    return task.on_conflict == "merge" and task.merge != "last"


def call_to_store(
    task: Task, args: Any, kwargs: Mapping[str, Any]
) -> tuple[Any, Mapping[str, Any]]:
    """Return the arguments as they are stored: by name, if they may be merged.

    Raise TypeError if they have no names, or do not fit.
    """
    if not args or not merges_by_name(task):
        return args, kwargs
    return (), arguments_by_name(task, args, kwargs)


class FoundJobs:
    """The jobs found for lines: by unique key, and those without one in order."""

    def __init__(self) -> None:
        self.by_key: dict[str, KnownJob] = {}
        self.keyless: list[KnownJob] = []

    def add(self, listed: Sequence[KnownJob]) -> None:
        """Take in what a statement listed."""
        for known in listed:
            if known.unique_key is None:
                self.keyless.append(known)
            else:
                self.by_key[known.unique_key] = known

    def missing(self, lines: Sequence[JobLine]) -> list[JobLine]:
        """Return the lines whose key was neither inserted nor met."""
        return [line for line in lines if line.unique_key and line.unique_key not in self.by_key]

    def of(self, lines: Sequence[JobLine]) -> list[KnownJob]:
        """Return the job of each line; of the lines of one key only the first is new."""
        keyless = iter(self.keyless)
        seen: set[str] = set()
        jobs = []
        for line in lines:
            key = line.unique_key
            known = next(keyless) if key is None else self.by_key[key]
            jobs.append(known._replace(is_new=False) if key in seen else known)
            if key is not None:
                seen.add(key)
        return jobs


def insert_lines(
    task: Task, lines: Sequence[JobLine], *, detailed: bool, batch_id: int | None = None
) -> list[KnownJob]:
    """Insert the jobs, in a batch or in none, or meet those that have their unique keys; return
    one per line.

    Raise DuplicateJob or JobError, or what `make_line` raises for merged arguments.
    """
    if task.on_conflict == "raise":
        _refuse_twins(lines)
    known = _insert_or_meet(task, lines, detailed=detailed, batch_id=batch_id)
    note_met(known)
    return known


def _insert_or_meet(
    task: Task, lines: Sequence[JobLine], *, detailed: bool, batch_id: int | None
) -> list[KnownJob]:
    if own_function(task) or _may_outgrow(task, lines):
        return _merge_here(task, lines).of(lines)
    found = _insert(task, statement_for(task), lines, detailed=detailed, batch_id=batch_id)
    missing = found.missing(lines)
    if missing and merges_by_name(task):
        found.by_key |= _merge_here(task, missing).by_key
    elif missing:
        _refuse_occupied(task, missing[0])
    if task.on_conflict == "raise":
        for known in found.by_key.values():
            if not known.is_new:
                raise DuplicateJob(
                    f"job {known.id} of {task.module_path} has the unique key "
                    f"{known.unique_key!r}.",
                    job_id=known.id,
                )
    return found.of(lines)


def insert_selected(task: Task, selection: CompiledSelect, *, batch_id: int | None) -> int:
    """Insert a job per selected row whose unique key no live job has; return how many."""
    row = _unique_columns(task, batch_id)
    row["max_bytes"] = SERVER_PAYLOAD_BYTES
    how = statement_for(task)
    with job_cursor() as cursor:
        outcome = enqueue.insert_unique_jobs_from(
            cursor, how, selection, row, max_listed=int(task.on_conflict == "raise")
        )
    if task.on_conflict == "raise" and outcome.inserted < outcome.lines:
        met = [known for known in outcome.listed if not known.is_new]
        raise DuplicateJob(
            f"the rows came to {counted(outcome.lines, 'job')} of {task.module_path}, but "
            f"found only {counted(outcome.inserted, 'unique key')} free"
            + (f": job {met[0].id} has {met[0].unique_key!r}." if met else "."),
            job_id=met[0].id if met else None,
        )
    if how != MEET and outcome.known < outcome.jobs:
        raise JobError(
            f"enqueue_from() met {counted(outcome.jobs - outcome.known, 'job')} of "
            f"{task.module_path} that it cannot merge into: claimed, with a unique key until the "
            "finish; with positional arguments; or too large then. Use enqueue_many()."
        )
    return outcome.inserted


def refuse_function(task: AnyTask) -> None:
    """Raise TypeError if a function is to merge arguments, where only the database can."""
    if is_unique(task) and own_function(task):
        raise TypeError(
            f"enqueue_from() cannot call {_name(task)}, which is to merge arguments, in the "
            "database. Use enqueue_many()."
        )


def own_function(task: Task) -> Merge | None:
    """Return the project's function that merges arguments, None if the database does.

    Raise InvalidTask, which names the option, if the dotted path in `merge` leads to none.
    """
    merge = task.merge
    if not isinstance(merge, str):
        return merge
    try:
        return find_function(merge) if "." in merge else None
    except IMPORT_ERRORS as error:
        said = f"{task.module_path} option merge={merge!r}"
        raise InvalidTask(f"{said}: {said_of(error)}") from error


def statement_for(task: Task) -> str:
    """Return the kind of statement that does what `on_conflict` says."""
    if task.on_conflict in ("replace", "merge"):
        return MERGE
    return LOCK if task.on_conflict == "return" and task.unique_until == "claimed" else MEET


def _unique_columns(task: Task, batch_id: int | None) -> UniqueColumns:
    wait = task.max_wait
    merge = (task.merge or "union") if merges_by_name(task) else "last"
    return {
        **job_columns(task),
        **all_start_columns(task),
        "unique_until_claimed": frees_key_at_claim(task),
        # A function of the project has merged here, so its arguments replace those in the row.
        "merge": merge if isinstance(merge, str) else "last",
        "replaces": task.on_conflict == "replace",
        "prolongs": task.on_conflict != "raise",
        "max_wait": wait.total_seconds() if isinstance(wait, timedelta) else wait,
        "max_bytes": get_conf().MAX_PAYLOAD_BYTES,
        "batch_id": batch_id,
    }


def _insert(
    task: Task,
    how: str,
    lines: Sequence[JobLine],
    *,
    detailed: bool,
    merge: str | None = None,
    batch_id: int | None = None,
) -> FoundJobs:
    """Send the statement for the lines, again for jobs that it met but could not see."""
    row = _unique_columns(task, batch_id)
    row["merge"] = merge or row["merge"]
    found = FoundJobs()
    waiting = lines
    with job_cursor() as cursor:
        for _ in range(TRIES):
            outcome = enqueue.insert_unique_jobs(cursor, how, row, waiting, detailed=detailed)
            found.add(outcome.listed)
            waiting = found.missing(lines)
            if how != MEET or not waiting:
                return found
    raise JobError(
        f"the job with the unique key {waiting[0].unique_key!r} of {task.module_path} was replaced "
        f"{TRIES} times during this enqueue. Try again."
    )


def _merge_here(task: Task, lines: Sequence[JobLine]) -> FoundJobs:
    """Insert the jobs, or lock those met and merge one after the other into them."""
    first_of = {line.unique_key: line for line in reversed(lines) if line.unique_key}
    firsts = [line for line in lines if not line.unique_key or first_of[line.unique_key] is line]
    database = job_database()
    # Atomic, so that the locks last; a savepoint, so that an error changes nothing.
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        found = _insert(task, LOCK, firsts, detailed=True)
        for line in found.missing(firsts):
            _refuse_occupied(task, line)
        former = {key: _kwargs_of(task, known) for key, known in found.by_key.items()}
        changed = []
        for line in lines:
            key = line.unique_key
            if key is None or (first_of[key] is line and found.by_key[key].is_new):
                continue
            merged = _merged(cursor, task, found.by_key[key].id, former[key], line)
            former[key] = merged.kwargs
            changed.append(merged)
        if changed:
            for known in _insert(task, MERGE, changed, detailed=True, merge="last").of(changed):
                key = str(known.unique_key)
                found.by_key[key] = known._replace(is_new=found.by_key[key].is_new)
    return found


def _kwargs_of(task: Task, known: KnownJob) -> str:
    """Return the arguments of a waiting job, all by name, as JSON text."""
    if known.job is None or known.job.args == "[]":
        return known.job.kwargs if known.job else "{}"
    args, kwargs = decode_arguments(known.job.args, known.job.kwargs)
    try:
        return json.dumps(arguments_by_name(task, args, kwargs), separators=(",", ":"))
    except TypeError as error:
        raise JobError(f"nothing can be merged into job {known.id}: {error}") from error


def _merged(cursor: Cursor, task: Task, job_id: int, former: str, line: JobLine) -> JobLine:
    """Return *line* with its arguments merged into the *former* ones of the job."""
    function = own_function(task)
    if function is None:
        merge = str(task.merge or "union")
        text = enqueue.merge_arguments(cursor, former, line.kwargs, merge=merge)
        _refuse_size(text, job_id)
        return line._replace(kwargs=text)
    try:
        kwargs = function(json.loads(former), json.loads(line.kwargs))
    except Exception as error:
        raise JobError(
            f"{_name(task)}, which merges arguments of {task.module_path}, raised {error!r} for "
            f"job {job_id}; nothing was changed."
        ) from error
    try:
        if not isinstance(kwargs, Mapping):
            raise TypeError(f"expected a dict of keyword arguments, got {kwargs!r}.")
        return make_line(task, (), kwargs)._replace(unique_key=line.unique_key)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{_name(task)}, merging into job {job_id}: {error}") from error


def _refuse_size(text: str, job_id: int) -> None:
    limit = get_conf().MAX_PAYLOAD_BYTES
    size = len(text.encode())
    if size > limit:
        raise ValueError(
            f"expected the merged kwargs of job {job_id} to take at most {limit} bytes as JSON, "
            f"got {size}. Merge keys of rows instead of data, or raise "
            "PGJOBS['MAX_PAYLOAD_BYTES']."
        )


def _name(task: Task) -> str:
    merge = task.merge
    return merge if isinstance(merge, str) else getattr(merge, "__qualname__", repr(merge))


def _may_outgrow(task: Task, lines: Sequence[JobLine]) -> bool:
    """May the lines of one key together be too large, even without a job in the table?"""
    if not merges_by_name(task) or len(lines) == 1:
        return False
    sizes = Counter[str]()
    for line in lines:
        if line.unique_key:
            sizes[line.unique_key] += len(line.kwargs)
    return max(sizes.values(), default=0) > get_conf().MAX_PAYLOAD_BYTES


def _refuse_twins(lines: Sequence[JobLine]) -> None:
    times = Counter(line.unique_key for line in lines if line.unique_key)
    for key, count in times.items():
        if count > 1:
            raise DuplicateJob(f"{count} of the jobs to be enqueued have the unique key {key!r}.")


def _refuse_occupied(task: Task, line: JobLine) -> NoReturn:
    key = str(line.unique_key)
    with job_cursor() as cursor:
        found = enqueue.get_unique_job(cursor, unique_key=key, task_path=task.module_path)
    named = f"job {found[0]}, which is {found[1]}," if found else "a job"
    raise JobError(
        f"{named} was claimed and keeps the unique key {key!r} of {task.module_path} until it "
        "finishes. Give all jobs of a key the same unique_until."
    )
