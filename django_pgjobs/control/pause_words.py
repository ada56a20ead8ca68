"""What an explanation and a warning say of a pause."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _

from django_pgjobs.queries.control import PauseRow
from django_pgjobs.status import PauseKind
from django_pgjobs.values.moments import moment_in_words

# The kind of the pause of a schedule, which is in its own row and not among the others.
SCHEDULE = "schedule"


def pause_in_words(pause: PauseRow, now: datetime, *, key: str | None = None) -> str:
    """Return since when, by whom, why and until when a pause holds.

    *key* is that of a job that it keeps: the pause may be of a pattern.
    """
    texts: dict[str, str] = {
        PauseKind.QUEUE: _("The queue “%(name)s” has been paused since %(since)s"),
        PauseKind.TASK: _("The task %(name)s has been paused since %(since)s"),
        PauseKind.KEY: _("The concurrency key “%(name)s” has been paused since %(since)s")
        if key is None
        else _("The concurrency key “%(key)s” has been paused as “%(name)s” since %(since)s"),
        SCHEDULE: _("The schedule %(name)s has been paused since %(since)s"),
    }
    values = {
        "name": pause.name,
        "key": key,
        "since": moment_in_words(pause.paused_at, now),
        "by": pause.paused_by,
        "reason": pause.reason,
        "until": moment_in_words(pause.resume_at, now),
    }
    text = texts[pause.kind] % values
    if pause.paused_by:
        text += " " + _("by %(by)s") % values
    if pause.reason:
        text += _(", because: %(reason)s") % values
    return text + ("." if pause.resume_at is None else _("; it resumes %(until)s.") % values)
