"""Inserting jobs into a batch: as they come, once for each dedupe key, or by their unique key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Literal, NamedTuple, NoReturn, TypedDict, get_args

from django_pgjobs.compat import AnyTask, InvalidTask, task_enqueued
from django_pgjobs.declaring.keys import Key, render_key
from django_pgjobs.declaring.signatures import named_arguments
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing import dependencies, merging
from django_pgjobs.enqueueing.columns import all_start_columns, job_columns
from django_pgjobs.exceptions import BatchSealed, DuplicateJob, JobError
from django_pgjobs.queries import batches
from django_pgjobs.queries.batches import DedupedJob
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.enqueue import JobLine
from django_pgjobs.signals import has_receivers
from django_pgjobs.tracing.sending import sending
from django_pgjobs.workflows.blocks import AnyBatch, asking_of, id_of, row_of

Pair = tuple[Any, Mapping[str, Any]]
OnConflict = Literal["raise", "return"]


class OnceOptions(TypedDict, total=False):
    """What `Batch.add` and `Batch.add_many` say of dedupe keys."""

    dedupe_key: Key | None
    on_conflict: OnConflict


class Once(NamedTuple):
    """A key that the jobs of a batch have once, and what becomes of a second one."""

    key: Key
    on_conflict: OnConflict


def check_on_conflict(on_conflict: str) -> None:
    """Raise ValueError if it does not say what becomes of a second one with a dedupe key."""
    if on_conflict not in get_args(OnConflict):
        raise ValueError(f"expected on_conflict to be 'raise' or 'return', got {on_conflict!r}.")


def once_of(dedupe_key: Key | None, on_conflict: OnConflict) -> Once | None:
    """Return both, None without a key; raise TypeError or ValueError if they cannot be."""
    check_on_conflict(on_conflict)
    if dedupe_key is None:
        return None
    if not isinstance(dedupe_key, str) and not callable(dedupe_key):
        raise TypeError(
            "expected dedupe_key to be a template such as 'order:{order_id}' or a function of the "
            f"arguments, got {dedupe_key!r}."
        )
    return Once(dedupe_key, on_conflict)


def insert(
    batch: AnyBatch,
    task: AnyTask,
    lines: Sequence[JobLine],
    pairs: Iterable[Pair],
    once: Once | None,
) -> list[int]:
    """Insert a job of *task* per line; return the job of each, new or met.

    Raise BatchSealed, UnknownBatch or DuplicateJob; *pairs* are the arguments of the lines.
    """
    pairs = list(pairs)
    with (
        dependencies.waiting(task) as hold_back,
        sending(task.module_path, task.queue_name) as sent,
    ):
        if once is not None:
            ids, are_new = _insert_once(batch, task, lines, pairs, once)
        elif merging.is_unique(task):
            ids, are_new = _insert_unique(batch, task, lines)
        else:
            ids = _insert_all(batch, task, lines)
            are_new = [True] * len(ids)
        sent.ids = fresh = list(compress(ids, are_new))
        end_block(batch)
        hold_back(fresh)
    if fresh and has_receivers(task_enqueued):
        told: Any = task.get_backend()
        told.announce(task, fresh, compress(pairs, are_new))
    return ids


def end_block(batch: AnyBatch) -> None:
    """Let nothing follow a part any more that has got its first jobs."""
    if batch.block is not None and batch.block.ends_with_add:
        batch.block.is_open = False


def refuse(batch: AnyBatch, what: str) -> NoReturn:
    """Raise BatchSealed, or UnknownBatch if it is not there; *what* was to be added."""
    found = row_of(batch)
    how = "sealed" if found.cancel_requested_at is None else "cancelled"
    raise BatchSealed(
        f"batch {batch.pk} is {how} and takes no more {what}. Add before seal(), or at the end "
        "of the block of workflow(); or from a running job of the batch, with current_batch()."
    )


def hold(batch: AnyBatch) -> None:
    """Keep the batch from being sealed until the transaction ends; raise as `refuse` does."""
    with job_cursor() as cursor:
        if not batches.hold_batch(cursor, id_of(batch), asking=asking_of(batch)):
            refuse(batch, "jobs")


def note_added(batch: AnyBatch, jobs: int) -> None:
    """Note that so many jobs were inserted into a batch that is held."""
    with job_cursor() as cursor:
        batches.note_added(cursor, batch.pk, jobs)


def _insert_all(batch: AnyBatch, task: AnyTask, lines: Sequence[JobLine]) -> list[int]:
    row, start = job_columns(task), all_start_columns(task)
    with job_cursor() as cursor:
        ids = batches.add_jobs(cursor, id_of(batch), row, start, lines, asking=asking_of(batch))
    if lines and not ids:
        refuse(batch, "jobs")
    return ids


def refuse_merging(task: AnyTask) -> None:
    """Raise InvalidTask if a job that is met would be changed: it belongs to somebody else."""
    if merging.is_unique(task) and task.on_conflict not in ("raise", "return"):
        raise InvalidTask(
            f"expected {task.module_path} to have on_conflict='raise' or 'return' in a batch, got "
            f"{task.on_conflict!r}."
        )


def _insert_unique(
    batch: AnyBatch, task: Task, lines: Sequence[JobLine]
) -> tuple[list[int], list[bool]]:
    hold(batch)
    known = merging.insert_lines(task, lines, detailed=False, batch_id=id_of(batch))
    are_new = [each.is_new for each in known]
    note_added(batch, sum(are_new))
    return [each.id for each in known], are_new


def _insert_once(
    batch: AnyBatch, task: AnyTask, lines: Sequence[JobLine], pairs: Sequence[Pair], once: Once
) -> tuple[list[int], list[bool]]:
    if merging.is_unique(task):
        raise InvalidTask(f"expected a dedupe_key or {task.module_path} to have a unique_key.")
    keys = [_key_of(task, args, kwargs, once.key) for args, kwargs in pairs]
    found = _find_or_add(batch, task, lines, keys)
    met = [given for given in found.values() if not given.is_new]
    if once.on_conflict == "raise" and met:
        raise DuplicateJob(
            f"job {met[0].id} of batch {batch.pk} has, or had, the dedupe key "
            f"{met[0].dedupe_key!r}.",
            job_id=met[0].id,
        )
    if once.on_conflict == "raise" and len(found) < len(keys):
        twin = next(key for key in keys if keys.count(key) > 1)
        raise DuplicateJob(f"several of the jobs to be added have the dedupe key {twin!r}.")
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    ids = [found[key].id for key in keys]
    return ids, [found[key].is_new and first[key] == place for place, key in enumerate(keys)]


def _find_or_add(
    batch: AnyBatch, task: AnyTask, lines: Sequence[JobLine], keys: Sequence[str]
) -> dict[str, DedupedJob]:
    """Return the job of each key, once those have been inserted that the batch has not had."""
    row, start = job_columns(task), all_start_columns(task)
    found: dict[str, DedupedJob] = {}
    for _ in range(batches.TRIES):
        with job_cursor() as cursor:
            given = batches.add_jobs_once(
                cursor, id_of(batch), row, start, lines, keys, asking=asking_of(batch)
            )
        # What was new at the first look stays so.
        found = {each.dedupe_key: each for each in given} | found
        if len(found) == len(set(keys)):
            return found
        # Somebody has just taken one, and committed: the next statement sees it.
        hold(batch)
    raise JobError(
        f"a dedupe key was taken by a transaction that this one cannot see: batch {batch.pk}. "
        "Try again in a new transaction."
    )


def _key_of(task: AnyTask, args: Any, kwargs: Mapping[str, Any], key: Key) -> str:
    arguments = named_arguments(task, args, kwargs)
    found = render_key("dedupe_key", key, task.module_path, arguments)
    if found is None:
        raise ValueError("expected dedupe_key to return text, got None.")
    return found
