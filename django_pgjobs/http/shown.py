"""Jobs and batches as answers and callbacks tell of them."""

from __future__ import annotations

from typing import Any

from django_pgjobs.declaring.redaction import redact
from django_pgjobs.models import Batch, Job
from django_pgjobs.tracing.headers import without_headers
from django_pgjobs.values.moments import instant_text
from django_pgjobs.values.notes import without_others
from django_pgjobs.workflows.reading import Counts

# The key of a workflow's metadata that has the id of the token that opened it; told to nobody.
OPENER = "pgjobs.token"


def shown_job(job: Job) -> dict[str, Any]:
    """Return what is told of a job in a list, without what it was given and what it came to."""
    return {
        "id": str(job.pk),
        "task": job.task_path,
        "queue": job.queue_name,
        "status": str(job.status),
        "batch": _id(job.batch_id),
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.allowed_attempts,
        "enqueued_at": instant_text(job.enqueued_at),
        "run_after": instant_text(job.run_after),
        "due_at": instant_text(job.due_at),
        "started_at": instant_text(job.started_at),
        "finished_at": instant_text(job.finished_at),
        "cancel_requested_at": instant_text(job.cancel_requested_at),
        "correlation_id": job.correlation_id,
        "tags": list(job.tags),
        "error": _last_error(job.errors),
    }


def shown_whole_job(job: Job, *, sees_all: bool) -> dict[str, Any]:
    """Return all that is told of one job; values whose names are secret are masked.

    Unless it *sees_all*, a token is not told the ids of others.
    """
    return {
        **shown_job(job),
        "args": redact(job.args),
        "kwargs": redact(job.kwargs),
        "metadata": without_headers(job.metadata),
        "progress": job.progress,
        "note": job.note if sees_all else without_others(job.note),
        "expires_at": instant_text(job.expires_at),
        "timeout": job.timeout,
        "result": job.result,
    }


def shown_batch(batch: Any, *, has_key: bool = True) -> dict[str, Any]:
    """Return what is told of a batch in a list; *batch* has its state, as `with_states` says it.

    Its key is not told (*has_key*) to a token with scopes, which could take the next one.
    """
    return {
        "id": str(batch.pk),
        "workflow": str(batch.root_id),
        "parent": _id(batch.parent_id),
        "name": batch.name,
        "state": str(batch.state),
        "dedupe_key": batch.dedupe_key if has_key else None,
        "metadata": _without_opener(batch.metadata),
        "created_at": instant_text(batch.created_at),
        "sealed_at": instant_text(batch.sealed_at),
        "completed_at": instant_text(batch.completed_at),
        "tree_completed_at": instant_text(batch.tree_completed_at),
        "cancel_requested_at": instant_text(batch.cancel_requested_at),
        "completions": batch.completions,
    }


def shown_counts(counts: Counts) -> dict[str, int]:
    """Return numbers of jobs."""
    return {**counts._asdict(), "unfinished": counts.unfinished}


def batch_status(batch: Batch, *, has_key: bool = True) -> dict[str, Any]:
    """Return what is told of a batch with all below it; as `shown_batch`."""
    told = shown_batch(batch, has_key=has_key)
    return {**told, "counts": shown_counts(batch.counts(tree=True))}


def _without_opener(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    return {name: value for name, value in metadata.items() if name != OPENER}


def _id(number: int | None) -> str | None:
    return None if number is None else str(number)


def _last_error(errors: Any) -> dict[str, str] | None:
    # Whatever somebody has put into the table.
    last = errors[-1] if isinstance(errors, list) and errors else None
    if not isinstance(last, dict):
        return None
    return {
        "type": str(last.get("exception_class", "")),
        "message": str(last.get("message", "")),
    }
