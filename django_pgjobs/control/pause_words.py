"""What an explanation says of a pause."""

from __future__ import annotations

from django.utils.translation import gettext as _

from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.explain import JobFacts
from django_pgjobs.status import PauseKind
from django_pgjobs.values.moments import moment_in_words


def pause_in_words(pause: PauseRow, job: JobFacts) -> str:
    """Return since when, by whom, why and until when a pause holds that keeps *job*."""
    texts = {
        PauseKind.QUEUE: _("The queue “%(name)s” has been paused since %(since)s"),
        PauseKind.TASK: _("The task %(name)s has been paused since %(since)s"),
        PauseKind.KEY: _(
            "The concurrency key “%(key)s” has been paused as “%(name)s” since %(since)s"
        ),
    }
    values = {
        "name": pause.name,
        "key": job.concurrency_key,
        "since": moment_in_words(pause.paused_at, job.now),
        "by": pause.paused_by,
        "reason": pause.reason,
        "until": moment_in_words(pause.resume_at, job.now),
    }
    text = texts[PauseKind(pause.kind)] % values
    if pause.paused_by:
        text += " " + _("by %(by)s") % values
    if pause.reason:
        text += _(", because: %(reason)s") % values
    return text + ("." if pause.resume_at is None else _("; it resumes %(until)s.") % values)
