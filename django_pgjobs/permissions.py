"""Who may do what in the admin: Django's permissions, narrowed by a function of the project.

Each question is asked when a page is drawn, so that it has no button that is refused, again
when a form comes back, and before each page of a bulk change, which may take a while.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest

from django_pgjobs.conf import get_conf
from django_pgjobs.models import Job
from django_pgjobs.registry import find_function


class Verb(Enum):
    """What a person may be allowed to do; the value is Django's permission."""

    VIEW = "pgjobs.view_job"
    OPERATE = "pgjobs.operate_job"
    DELETE = "pgjobs.delete_job"
    ENQUEUE = "pgjobs.enqueue_job"
    REVEAL = "pgjobs.reveal_job"
    CONTROL_QUEUES = "pgjobs.control_queue"
    CONTROL_WORKERS = "pgjobs.control_worker"


def may(user: Any, verb: Verb, job: Job | None = None) -> bool:
    """May *user* do this, to *job* if one is given?"""
    if not (user.is_active and user.is_staff and user.has_perm(verb.value)):
        return False
    if job is None or get_conf().ADMIN_PERMISSION is None:
        answer = _ask(user, verb, None)
        return True if isinstance(answer, QuerySet) else bool(answer)
    return narrow(user, verb, Job.objects.filter(pk=job.pk, status=job.status)).exists()


def narrow(user: Any, verb: Verb, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of *jobs* that *user* may do this to."""
    if not (user.is_active and user.is_staff and user.has_perm(verb.value)):
        return jobs.none()
    answer = _ask(user, verb, jobs)
    if isinstance(answer, QuerySet):
        return answer
    return jobs if answer else jobs.none()


def require(request: HttpRequest, verb: Verb, job: Job | None = None) -> None:
    """Raise PermissionDenied unless the person may do this."""
    if not may(request.user, verb, job):
        raise PermissionDenied


def _ask(user: Any, verb: Verb, jobs: QuerySet[Job] | None) -> QuerySet[Job] | bool:
    """Ask PGJOBS["ADMIN_PERMISSION"](user, permission, jobs): True, False, or fewer jobs."""
    path = get_conf().ADMIN_PERMISSION
    if path is None:
        return True
    answer: QuerySet[Job] | bool = find_function(path)(user, verb.value, jobs)
    return answer
