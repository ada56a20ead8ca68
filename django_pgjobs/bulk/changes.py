"""Running a bulk change: page after page, each one transaction with the place it got to.

The row of the change is locked while a page is done, so two workers never do the same page,
and what was interrupted goes on behind the last page that was committed. Whoever asked for
the change must still be allowed to make it at every page.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connections, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from django_pgjobs.bulk import trees
from django_pgjobs.bulk.actions import ACTIONS, Action, ChosenOptions, retry_tree
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.trees import tree_to_retry, workflow_to_delete
from django_pgjobs.bulk.walk import Position, Walk, allowed_to
from django_pgjobs.control.changing import Effect, do_to_most, refusal_text
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.permissions import is_narrowed, may, narrow
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.crossing import seeing_commits
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.values.words import with_text

logger = logging.getLogger("django_pgjobs.bulk")

# Conflicts that are kept to be shown.
MAX_CONFLICTS = 20
MAX_ERROR = 2_000
# Most seconds for counting all jobs of a change in the worker.
COUNT_SECONDS = 20.0


class Page(NamedTuple):
    """What one page came to: the ids that it changed; is there another one?

    *passed_over* is the first that it left as it was, *refused* what the server said of that one.
    """

    changed: list[int]
    goes_on: bool
    passed_over: int | None = None
    refused: str = ""


class PassedOver(NamedTuple):
    """A job that a change left as it was, and why."""

    job_id: int
    why: str


class Done(NamedTuple):
    """What a change came to: the ids of the jobs that it changed, and one that it passed over."""

    changed: list[int]
    passed_over: PassedOver | None


def create_change(
    action: Action,
    selection: Selection,
    options: ChosenOptions,
    *,
    user: Any,
    reason: str = "",
    total: int | None = None,
) -> BulkChange:
    """Store a change that is not begun; *total* is how many jobs it is about, if known."""
    if selection.until is None or selection.max_id is None:
        raise ValueError("expected a pinned selection, got one that is not. Call pinned() first.")
    return BulkChange.objects.using(job_database()).create(
        verb=action.name,
        selection=selection.to_json(),
        options=dict(options),
        user_id=str(user.pk),
        reason=reason,
        total=total,
    )


def run_page(change_id: int) -> Page:
    """Do the next page of a change; do nothing if it has ended.

    Raise what the database raises, after noting it in the row: the page is rolled back, and
    the next call tries it again.
    """
    database = job_database()
    try:
        with seeing_commits(database):
            changes = BulkChange.objects.using(database).select_for_update()
            change = changes.filter(pk=change_id, finished_at=None).first()
            return Page([], False) if change is None else _do_page(change, database)
    except Exception as error:
        _note_error(change_id, error)
        raise


def run_change(change_id: int) -> Done:
    """Do all pages of a change; return what it came to."""
    changed: list[int] = []
    example = None
    page = Page([], True)
    while page.goes_on:
        page = run_page(change_id)
        changed += page.changed
        if page.passed_over is not None and example is None:
            why = page.refused or _why_passed_over(change_id, page.passed_over)
            example = PassedOver(page.passed_over, why)
    return Done(changed, example)


def _why_passed_over(change_id: int, job_id: int) -> str:
    """Return why a change has left a job as it was."""
    change = BulkChange.objects.using(job_database()).get(pk=change_id)
    action = ACTIONS[change.verb]
    jobs = Job.objects.using(job_database()).filter(pk=job_id)
    status = jobs.values_list("status", flat=True).first()
    if status is None:
        return "it does not exist any more."
    if status not in action.statuses:
        return f"it is {status} by now."
    if action.spared is None and not jobs.filter(action.suits(change.options)).exists():
        return action.overtaken or f"it is {status} by now."
    with job_cursor() as cursor:
        return action.why(cursor, job_id)


def count_total(change: BulkChange) -> None:
    """Store how many jobs the change is about, if they can be counted in time."""
    user = find_user(change)
    if user is None:
        return
    database = job_database()
    try:
        with time_budget(database, COUNT_SECONDS):
            total = _walk(change, user).total()
    except TooSlow:
        return
    BulkChange.objects.using(database).filter(pk=change.pk, total=None).update(total=total)


def first_tasks(change: BulkChange, user: Any, count: int) -> dict[int, str]:
    """Return id -> task of the first jobs that the change is about, before it deletes them."""
    ids, _position = _walk(change, user).page(None)
    jobs = Job.objects.using(job_database()).filter(pk__in=ids[:count])
    return dict(jobs.values_list("pk", "task_path"))


def cancel_change(change_id: int) -> bool:
    """End a change after its current page; return whether it had not ended."""
    waiting = BulkChange.objects.using(job_database()).filter(pk=change_id, finished_at=None)
    return bool(waiting.update(cancel_requested_at=Now(), finished_at=Now()))


def find_user(change: BulkChange) -> Any:
    """Return who asked for the change, None if there is no such person any more."""
    users = get_user_model()._default_manager
    try:
        return users.filter(pk=change.user_id).first()
    except (TypeError, ValueError, ValidationError):
        return None


def _do_page(change: BulkChange, database: str) -> Page:
    user = find_user(change)
    action = ACTIONS.get(change.verb)
    selection = Selection.from_json(change.selection)
    root_id = workflow_to_delete(change.verb, selection)
    problem = _refusal(change, user, action) or (trees.begin_deletion(root_id) if root_id else "")
    if problem or action is None:
        return _stop(change, problem, database)
    if (tree_id := tree_to_retry(change.verb, selection)) is not None:
        return _retry_tree(change, tree_id, sorted(selection.statuses), database)
    ids, position = _walk(change, user).page(change.position)
    refused: dict[int, str] = {}
    effect = _apply(change, action, user, ids, refused) if ids else Effect()
    if effect is None:
        text = _("Stopped: %s may not act on the jobs where they would be.")
        return _stop(change, text % user.get_username(), database)
    _add_up(change, len(ids), effect)
    if position is None and root_id:
        trees.delete_batches(root_id)
    page = _save(change, effect, position, database)
    settled = {*effect.changed, *(job_id for job_id, _twin_id in effect.conflicts)}
    left = next((job_id for job_id in ids if job_id not in settled), None)
    return page._replace(passed_over=left, refused=refused.get(left or 0, ""))


def _retry_tree(change: BulkChange, tree_id: int, statuses: list[str], database: str) -> Page:
    """Retry jobs of a tree at once: between pages workers would complete a part of it."""
    problem = trees.begin_retry(tree_id)
    if problem:
        return _stop(change, problem, database)
    with connections[database].cursor() as cursor:
        effect = retry_tree(cursor, tree_id, statuses, change.options)
    _add_up(change, len(effect.changed) + len(effect.conflicts), effect)
    return _save(change, effect, None, database)


def _save(change: BulkChange, effect: Effect, position: Position | None, database: str) -> Page:
    """Store what a page came to, and where the next one begins; None: there is none."""
    change.position = position
    if position is None:
        change.finished_at = Now()
    change.save(
        using=database,
        update_fields=[
            "changed", "passed_over", "conflicts", "conflict_ids", "error", "position",
            "finished_at",
        ],
    )  # fmt: skip
    return Page(effect.changed, position is not None)


def _apply(
    change: BulkChange, action: Action, user: Any, ids: list[int], refused: dict[int, str]
) -> Effect | None:
    """Do the action to a page of jobs; note in *refused* what the server said of some.

    Return None, with nothing done, if jobs would be moved to where *user* may not act.
    """
    database = job_database()
    with transaction.atomic(using=database):
        effect = _act(change, action, ids, refused)
        if action.name == "move" and is_narrowed(user, action.verb):
            moved = Job.objects.using(database).filter(pk__in=effect.changed)
            if narrow(user, action.verb, moved).count() < len(effect.changed):
                transaction.set_rollback(True, using=database)
                return None
    return effect


def _act(change: BulkChange, action: Action, ids: list[int], refused: dict[int, str]) -> Effect:
    """Do the action to jobs; leave those that the server refuses, and do the others."""

    def act(some: list[int]) -> Effect:
        with job_cursor() as cursor:
            return action.apply(cursor, some, change.options)

    def warn(job_id: int, error: DatabaseError) -> None:
        logger.warning("bulk change refused change=%s job=%s: %s", change.pk, job_id, error)
        # Behind the first line may stand the whole row, with values that people may not see.
        refused[job_id] = refusal_text(str(error).partition("\n")[0])

    return do_to_most(ids, act, warn)


def _stop(change: BulkChange, problem: str, database: str) -> Page:
    """End the change before its end, and say why."""
    change.error, change.finished_at = problem, Now()
    change.save(using=database, update_fields=["error", "finished_at"])
    return Page([], False)


def _refusal(change: BulkChange, user: Any, action: Action | None) -> str:
    """Return why the change must not go on, "" if it may."""
    if action is None:
        return _("This version does not know the action.")
    if user is None:
        return _("Stopped: whoever asked for it has no account any more.")
    # A deletion leaves no jobs to be asked about.
    is_new = change.position is None
    selection = Selection.from_json(change.selection)
    if not may(user, action.verb) or (is_new and not trees.may_do(user, action, selection)):
        return str(_("Stopped: %s is no longer allowed to do this.") % user.get_username())
    return ""


def _walk(change: BulkChange, user: Any) -> Walk:
    action = ACTIONS[change.verb]
    selection = trees.as_counted(change.verb, Selection.from_json(change.selection))
    allowed = allowed_to(user, action.verb, selection)
    suits = action.suits(change.options)
    return Walk(selection, action.statuses, suits, allowed, spared=action.spared)


def _add_up(change: BulkChange, jobs: int, effect: Effect) -> None:
    change.changed += len(effect.changed)
    change.conflicts += len(effect.conflicts)
    change.passed_over += jobs - len(effect.changed) - len(effect.conflicts)
    room = MAX_CONFLICTS - len(change.conflict_ids)
    change.conflict_ids = [*change.conflict_ids, *map(list, effect.conflicts[: max(room, 0)])]
    change.error = ""


def _note_error(change_id: int, error: Exception) -> None:
    text = with_text(type(error).__qualname__, error).replace("\0", "")[:MAX_ERROR]
    try:
        BulkChange.objects.using(job_database()).filter(pk=change_id).update(error=text)
    except DatabaseError:
        # The connection is gone, or the caller's transaction is to be rolled back.
        return
