"""A warning, which of them are muted, and how many of a kind are spelled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.drawing import counted
from django_pgjobs.queries.signs import MuteRow

# The kinds of warnings by the harm that they do: first what lets jobs wait for ever, then what goes
# wrong now, then what will, then what somebody wanted or only has to know.
KINDS = {
    "broken": gettext_lazy("A check fails"),
    "no_worker": gettext_lazy("No worker is alive"),
    "unserved": gettext_lazy("No worker serves a queue"),
    "unknown_task": gettext_lazy("No worker knows a task"),
    "missing_rate": gettext_lazy("Jobs wait for a rate limit in vain"),
    "failing": gettext_lazy("More jobs of a task fail"),
    "stuck": gettext_lazy("Jobs look stuck"),
    "busy": gettext_lazy("All slots of a queue are busy"),
    "long_wait": gettext_lazy("A job waits for long"),
    "growth": gettext_lazy("A queue grows"),
    "schedule": gettext_lazy("A schedule has trouble"),
    "lost_workers": gettext_lazy("Workers were lost"),
    "batch": gettext_lazy("A batch stands still"),
    "held": gettext_lazy("Jobs are held"),
    "paused": gettext_lazy("A queue, task, key or schedule is paused"),
    "transaction": gettext_lazy("A transaction is open for long"),
    "dead_rows": gettext_lazy("Too many dead rows"),
    "versions": gettext_lazy("Workers are of different versions"),
    "settings": gettext_lazy("A check warns"),
}
HARM = tuple(KINDS)
# Warnings of one kind that are spelled out.
MAX_NAMED = 5
# The longest subject that can be muted.
MAX_SUBJECT = 1_000
# The index of the table takes no more; a key of a rate limit, the longest name, has 1,024.
MAX_MUTED_BYTES = 2_000
# The subject of a warning about those that are not.
OTHERS = "(others)"
# What is said of the others of a kind; of all other kinds it is queues.
OTHER_WORDS = {
    "missing_rate": gettext_lazy("There are more rate limits like that."),
    "unknown_task": gettext_lazy("There are more tasks like that."),
    "failing": gettext_lazy("There are more tasks like that."),
    "schedule": gettext_lazy("There are more schedules like that."),
    "batch": gettext_lazy("There are more batches like that."),
    "paused": gettext_lazy("More is paused: see the pages of queues and schedules."),
    "broken": gettext_lazy("More checks fail: see manage.py check."),
    "settings": gettext_lazy("More checks warn: see manage.py check."),
}


class Notice(NamedTuple):
    """A sentence about what is wrong.

    *kind* and *subject* say what it is about, whatever its numbers are by now; of a kind about
    queues, tasks, jobs or batches the subject is a name or an id. *text* is "" for one that is
    counted only. *since* is from when on it counts, where it does not count what is there now.
    """

    kind: str
    text: str
    subject: str = ""
    since: datetime | None = None


class Muted(NamedTuple):
    """A warning that is muted, and how."""

    notice: Notice
    mute: MuteRow


def part(notices: Iterable[Notice], mutes: Sequence[MuteRow]) -> tuple[list[Notice], list[Muted]]:
    """Return the warnings that are shown, and those that are muted."""
    found = {(mute.kind, mute.subject): mute for mute in mutes}
    shown, muted = [], []
    for notice in notices:
        mute = found.get((notice.kind, notice.subject))
        if mute is None:
            shown.append(notice)
        else:
            muted.append(Muted(notice, mute))
    return shown, muted


def shorten(notices: Iterable[Notice]) -> list[Notice]:
    """Return the first warnings of each kind, and behind them one about the others of it.

    Those that are muted are not among *notices*: they take nobody's place.
    """
    notices = list(notices)
    count = Counter(notice.kind for notice in notices)
    shown: list[Notice] = []
    named: Counter[str] = Counter()
    for notice in notices:
        named[notice.kind] += 1
        if named[notice.kind] <= MAX_NAMED:
            shown.append(notice)
        elif named[notice.kind] == count[notice.kind]:
            shown.append(_others(notice.kind, count[notice.kind] - MAX_NAMED))
    return shown


def _others(kind: str, number: int) -> Notice:
    if kind == "stuck":
        text = ngettext("%s more job looks stuck.", "%s more jobs look stuck.", number)
        return Notice(kind, text % counted(number), OTHERS)
    if kind in OTHER_WORDS:
        return Notice(kind, str(OTHER_WORDS[kind]), OTHERS)
    text = ngettext(
        "The same holds for %(queues)s other queue.",
        "The same holds for %(queues)s other queues.",
        number,
    )
    return Notice(kind, text % {"queues": counted(number)}, OTHERS)
