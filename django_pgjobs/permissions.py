"""Who may do what in the admin: Django's permissions, narrowed by a function of the project.

Each question is asked when a page is drawn, so that it has no button that is refused, again
when a form comes back, and before each page of a bulk change, which may take a while.

Pages about single jobs show those that the function leaves. What concerns the whole installation
(queues, limits, workers, schedules, sums) cannot be narrowed: a narrowed person does not get it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.registry import IMPORT_ERRORS, find_function, said_of
from django_pgjobs.models import Batch, BulkChange, Job
from django_pgjobs.models.batch_states import of_batches


class Verb(Enum):
    """What a person may be allowed to do; the value is Django's permission."""

    VIEW = "pgjobs.view_job"
    OPERATE = "pgjobs.operate_job"
    DELETE = "pgjobs.delete_job"
    ENQUEUE = "pgjobs.enqueue_job"
    REVEAL = "pgjobs.reveal_job"
    CONTROL_QUEUES = "pgjobs.control_queue"
    CONTROL_WORKERS = "pgjobs.control_worker"
    CONTROL_SCHEDULES = "pgjobs.control_schedule"
    CONTROL_TOKENS = "pgjobs.control_token"


# The largest workflow of which it is asked whether a narrowed person may see all jobs.
MAX_WHOLE = 10_000
# What is done to the whole installation, and so by nobody who is narrowed.
OF_ALL = frozenset(
    {
        Verb.CONTROL_QUEUES,
        Verb.CONTROL_WORKERS,
        Verb.CONTROL_SCHEDULES,
        Verb.CONTROL_TOKENS,
    }
)


def may(user: Any, verb: Verb, job: Job | None = None) -> bool:
    """May *user* do this, to *job* if one is given?"""
    if not _has(user, verb):
        return False
    if job is not None and get_conf().ADMIN_PERMISSION is not None:
        return narrow(user, verb, Job.objects.filter(pk=job.pk, status=job.status)).exists()
    answer = _ask(user, verb, None)
    is_allowed = isinstance(answer, QuerySet) or bool(answer)
    return is_allowed and not (verb in OF_ALL and is_narrowed(user, verb))


def narrow(user: Any, verb: Verb, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of *jobs* that *user* may do this to: of those that they may see."""
    if not _has(user, verb):
        return jobs.none()
    for asked in (Verb.VIEW, verb) if verb is not Verb.VIEW else (verb,):
        answer = _ask(user, asked, jobs)
        jobs = answer if isinstance(answer, QuerySet) else jobs if answer else jobs.none()
    return jobs


def is_narrowed(user: Any, verb: Verb = Verb.VIEW) -> bool:
    """Does the project let this person do this to some jobs only? Then sums over all jobs are not
    for them.
    """
    if get_conf().ADMIN_PERMISSION is None or not _has(user, verb):
        return False
    if verb is not Verb.VIEW and is_narrowed(user):
        return True
    query = narrow(user, verb, Job.objects.all()).query
    return bool(query.where or query.is_sliced or query.combinator or query.distinct)


def visible_ids(user: Any, ids: Iterable[int]) -> set[int]:
    """Return those of *ids* that are jobs, or were, that *user* may see."""
    if not is_narrowed(user):
        return set(ids)
    jobs = Job.objects.filter(pk__in=set(ids))
    return set(narrow(user, Verb.VIEW, jobs).values_list("pk", flat=True))


def whole_workflows(user: Any, verb: Verb, root_ids: Iterable[int]) -> set[int]:
    """Return those of the workflows to which *user* may do this as a whole.

    Who is narrowed may do it to those with at most MAX_WHOLE jobs, and at least one, if all of
    these are among the jobs that they may do it to: the numbers of a workflow tell of each.
    """
    ids = set(root_ids)
    if not ids or not may(user, verb):
        return set()
    if not is_narrowed(user, verb):
        return ids
    roots: dict[int, int] = {}
    sizes: Counter[int] = Counter()
    batches = Batch.objects.filter(root_id__in=ids).order_by()
    for batch_id, root_id, size in batches.values_list("pk", "root_id", "jobs"):
        roots[batch_id] = root_id
        sizes[root_id] += size
    asked = [batch_id for batch_id, root_id in roots.items() if sizes[root_id] <= MAX_WHOLE]
    jobs = Job.objects.filter(of_batches(asked))
    there, allowed = _count_by_root(jobs, roots), _count_by_root(narrow(user, verb, jobs), roots)
    return {root_id for root_id, count in allowed.items() if count == there[root_id]}


def _count_by_root(jobs: QuerySet[Job], roots: Mapping[int, int]) -> Counter[int]:
    """Return how many of *jobs* there are of each workflow, by the roots of their batches."""
    counts: Counter[int] = Counter()
    for batch_id, count in jobs.order_by().values_list("batch_id").annotate(Count("pk")):
        counts[roots[batch_id]] += count
    return counts


def narrow_changes(user: Any, changes: QuerySet[BulkChange]) -> QuerySet[BulkChange]:
    """Return those of *changes* that *user* may see: one's own if one sees some jobs only."""
    return changes.filter(user_id=str(user.pk)) if is_narrowed(user) else changes


def may_end(user: Any, verb: Verb, change: BulkChange) -> bool:
    """May *user* cancel or continue a change that does *verb*? One's own if one is narrowed."""
    is_own = change.user_id == str(user.pk)
    return may(user, verb) and (is_own or not is_narrowed(user, verb))


def require(request: HttpRequest, verb: Verb, job: Job | None = None) -> None:
    """Raise PermissionDenied unless the person may do this."""
    if not may(request.user, verb, job):
        raise PermissionDenied


def _has(user: Any, verb: Verb) -> bool:
    """Does Django say that the person may do this?"""
    return bool(user.is_active and user.is_staff and user.has_perm(verb.value))


def _ask(user: Any, verb: Verb, jobs: QuerySet[Job] | None) -> QuerySet[Job] | bool:
    """Ask PGJOBS["ADMIN_PERMISSION"](user, permission, jobs): True, False, or fewer jobs."""
    path = get_conf().ADMIN_PERMISSION
    if path is None:
        return True
    try:
        narrowed_by = find_function(path)
    except IMPORT_ERRORS as error:
        said = f"PGJOBS['ADMIN_PERMISSION'] names {path!r}: {said_of(error)}"
        raise ImproperlyConfigured(said) from error
    answer: QuerySet[Job] | bool = narrowed_by(user, verb.value, jobs)
    return answer
