"""What the log says of schedules: an error once, until it is another one or a job came of it."""

from __future__ import annotations

from django_pgjobs.schedules.firing import ScheduleTurn
from django_pgjobs.schedules.syncing import Synced
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)


class ScheduleLog:
    """Logs the turns of one scheduler."""

    def __init__(self) -> None:
        # What was last said of each schedule that has an error.
        self._told: dict[str, str] = {}

    def note(self, turn: ScheduleTurn) -> None:
        """Log what a turn came to."""
        for row in turn.occurrences:
            if row.outcome == OccurrenceOutcome.ENQUEUED:
                level, said = "info", "enqueued"
            else:
                level, said = "warning", str(row.outcome)
            getattr(logger, level)(
                "schedule=%s %s for=%s job=%s%s",
                row.schedule,
                said,
                row.scheduled_for.isoformat(),
                row.job_id or "-",
                f" {row.note}" if row.note else "",
            )
            if row.job_id is not None:
                self._told.pop(row.schedule, None)
        for name, error in {**turn.unknown, **turn.errors}.items():
            if self._is_news(name, error):
                logger.error("schedule=%s %s", name, error)
        if turn.hook_error is not None and self._is_news("", type(turn.hook_error).__name__):
            logger.error("a hook of on_commit raised after a turn", exc_info=turn.hook_error)

    def _is_news(self, name: str, error: str) -> bool:
        """Note what is logged of a schedule; return whether it is new."""
        # One text of each, because one that fails has another text each time.
        is_news = self._told.get(name) != error
        self._told[name] = error
        return is_news


def log_sync(synced: Synced) -> None:
    """Log what the declarations have changed in the table."""
    for said, names in zip(("new", "changed", "back"), synced[:3], strict=True):
        for name in names:
            logger.info("schedule=%s is %s", name, said)
    for name, theirs, ours in synced.adopted:
        logger.warning(
            "schedule=%s was made by a person, of task %s; the code declares it now, of task %s,"
            " and what the code says of task and arguments holds",
            name,
            theirs,
            ours,
        )
    if synced.locked:
        logger.warning(
            "schedule=%s is not as the code says yet: somebody has locked it; tried again",
            ", ".join(synced.locked[:10]),
        )
