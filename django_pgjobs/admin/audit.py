"""What people did: the admin's own log, a line in the log, and a signal for the project."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.models import Batch, Job
from django_pgjobs.signals import admin_action_performed

logger = logging.getLogger("django_pgjobs.admin")

# Entries per action about single jobs; a larger one has its summary.
MAX_ENTRIES = 100
MAX_REPR = 200


def record(
    user: Any,
    verb: str,
    *,
    job: Job | None = None,
    target: str = "",
    count: int | None = None,
    selection: Mapping[str, Any] | None = None,
    reason: str = "",
    obj: Model | None = None,
    site: Any = None,
) -> None:
    """Write down that *user* did *verb*: a LogEntry, a line in the log, and a signal.

    The entry belongs to *job* or *obj*, else it only names *target*. *count* is how many jobs
    the action is about, None if they were too many to count; *selection* says which.
    """
    about = job if job is not None else obj
    _entry(user, verb, about, target=target, count=count, reason=reason).save()
    subject = target or (str(about) if about is not None else "")
    fields = {"action": verb, "user": user.get_username(), "target": subject, "count": count}
    logger.info(
        "%s",
        " ".join(f"{name}={value!r}" for name, value in (fields | {"reason": reason}).items()),
        extra={"pgjobs": fields | {"reason": reason, "selection": dict(selection or {})}},
    )
    # What a receiver of the project raises must not undo what was done.
    admin_action_performed.send_robust(
        sender=type(about) if about is not None else Job,
        user=user,
        action=verb,
        selection=dict(selection or {}),
        count=count,
        reason=reason,
        site=site,
    )


def record_jobs(
    user: Any,
    verb: str,
    job_ids: Iterable[int],
    *,
    reason: str = "",
    tasks: Mapping[int, str] | None = None,
) -> None:
    """Write an entry in the history of each of the first hundred jobs of a bulk change.

    The action itself is recorded once, by `record`. *tasks* names the task of each job if the
    rows cannot be asked any more.
    """
    ids = list(job_ids)[:MAX_ENTRIES]
    if tasks is None:
        tasks = dict(Job.objects.filter(pk__in=ids).values_list("pk", "task_path"))
    jobs = [Job(pk=pk, task_path=tasks.get(pk, _("deleted job"))) for pk in ids]
    LogEntry.objects.bulk_create([_entry(user, verb, job, reason=reason) for job in jobs])


def record_tree(user: Any, verb: str, batch_id: int, *, count: int | None, reason: str) -> None:
    """Write an entry in the history of a batch about a bulk change of jobs in it and below.

    The action itself is recorded once, by `record`.
    """
    found = Batch.objects.only("name", "follows").filter(pk=batch_id).first()
    batch = found if found is not None else Batch(pk=batch_id)
    _entry(user, verb, batch, count=count, reason=reason).save()


def _entry(
    user: Any,
    verb: str,
    about: Model | None,
    *,
    target: str = "",
    count: int | None = None,
    reason: str = "",
) -> LogEntry:
    parts = [verb.replace("_", " ")]
    if target and about is not None:
        parts.append(target)
    if count is not None and not isinstance(about, Job):
        parts.append(ngettext("%d job", "%d jobs", count) % count)
    if reason:
        parts.append(reason)
    return LogEntry(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(about or Job).pk,
        object_id=str(about.pk) if about is not None else "",
        object_repr=(str(about) if about is not None else target)[:MAX_REPR],
        action_flag=DELETION if verb == "delete" else CHANGE,
        # A text that begins like JSON would be read as one.
        change_message=": ".join(parts),
    )
