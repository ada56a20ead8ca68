"""Why is a job not running? What the claim would say of it, put into words.

The limits of its key, its queue and its rates are judged by the function that chooses for the claim
(choosing.py), the place in the line of its key by a term that the claim uses as well. No task
is imported. Texts are in the active language, times in the current time zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.choosing import obstacles_of
from django_pgjobs.control.explanation import Explanation, Reason
from django_pgjobs.control.pause_words import pause_in_words
from django_pgjobs.control.stuck import reasons_of
from django_pgjobs.control.takers import list_of, taker_of
from django_pgjobs.declaring.lacking import lacks_something
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.queries import explain as queries
from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.explain import JobFacts, LaneRow, LimitedQueue, RateRow
from django_pgjobs.queries.filling import control_of
from django_pgjobs.status import FINISHED, Hold, JobStatus
from django_pgjobs.values import notes
from django_pgjobs.values.job_ids import job_id_of
from django_pgjobs.values.moments import duration_in_words, moment_in_words

MAX_NAMED = 10  # jobs and workers
MAX_COUNTED = 1_000  # jobs before one
MAX_BATCHES = 10_000  # of its workflow that are looked at
# What the note of a job that was given back means.
NOTES = {
    notes.RETRY: "retry",
    notes.SNOOZED: "snoozed",
    notes.UNKNOWN_TASK: "unknown_task",
    notes.WORKER_LOST: "rescued",
}
# Reasons that go away as other jobs end, or with time.
PASSING = {"key_full", "key_order", "queue_full", "rate_limit"}


def explain(job: Any) -> Explanation:
    """Say why a job, given the Job, its id or its TaskResult, is not running.

    Nothing is written or locked. Raise LookupError if there is no such job.
    """
    job_id = job_id_of(job)
    with job_cursor() as cursor:
        facts = queries.get_facts(cursor, job_id, max_named=MAX_NAMED)
        if facts is None:
            raise LookupError(
                f"expected the id of a stored job, got {job_id}. The transaction that enqueued it "
                "was rolled back or is not committed yet, or the job finished and its retention "
                "is over."
            )
        if facts.status in FINISHED:
            reasons = (_finished(facts), *_of_workflow(cursor, facts))
            return Explanation(job_id, facts.status, False, reasons)
        if facts.status == JobStatus.RUNNING:
            return Explanation(job_id, facts.status, False, tuple(_running(cursor, facts)))
        blockers = list(_blockers(cursor, facts))
        waits = (*_in_order(cursor, facts, blockers), *_expires(facts))
        return Explanation(job_id, facts.status, not blockers, waits)


def _finished(job: JobFacts) -> Reason:
    values = {
        "status": JobStatus(job.status).label,
        "moment": moment_in_words(job.finished_at, job.now),
        "attempts": job.attempts,
        "exception": job.last_error,
        "note": job.note,
    }
    text = _("It finished at %(moment)s: %(status)s.") % values
    if job.status == JobStatus.FAILED and job.last_error:
        text += " " + _("Attempt %(attempts)s ended with %(exception)s.") % values
    elif job.status == JobStatus.CANCELLED and job.note:
        text += " " + _("Note: %(note)s.") % values
    return Reason("finished", text)


def _of_workflow(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    """Yield why what follows in its workflow does not run; *refs* would be ids of jobs."""
    yield from _not_run(cursor, job)
    found = queries.list_unsealed(cursor, job.id, max_looked_at=MAX_BATCHES, max_batches=MAX_NAMED)
    if found:
        text = _(
            "Its workflow has not ended, and what follows waits: nobody has said that no more jobs "
            "come to %(batches)s (not sealed). Press Seal… on the page of the batch, or call "
            "manage.py jobs workflows seal %(first)s."
        )
        named = ", ".join(f"batch {batch_id}" for batch_id in found)
        yield Reason("unsealed", text % {"batches": named, "first": found[0]})


def _not_run(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    """Yield what was not run for the job's sake."""
    if job.status == JobStatus.SUCCESSFUL:
        return
    found, has_cancelled = queries.list_not_run(cursor, job.id, max_batches=MAX_NAMED)
    if found:
        text = _(
            "What follows its batch and needs all to succeed (gather, then) is not run: "
            "%(batches)s. Retry its batch: that runs when all before it has succeeded."
        )
        # The batch counts a cancelled job a moment later.
        if has_cancelled or job.status == JobStatus.CANCELLED:
            text = _(
                "What follows its batch and needs all to succeed (gather, then) is not run: "
                "%(batches)s. Retry its batch, with what was cancelled: that runs when all before "
                "it has succeeded."
            )
        named = ", ".join(f"batch {batch_id}" for batch_id in found)
        yield Reason("not_run", text % {"batches": named})


def _attempt(number: int, most: int | None) -> str:
    text = _("attempt %(attempt)s of %(most)s") if most else _("attempt %(attempt)s")
    return text % {"attempt": number, "most": most}


def _running(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    values = {
        "worker": job.worker_name or "?",
        "moment": moment_in_words(job.last_attempted_at, job.now),
        "lease": moment_in_words(job.lease_ends, job.now),
    }
    values["attempt_in_words"] = _attempt(job.attempts, job.allowed_attempts)
    if job.lease_ends is None or job.lease_ends <= job.now:
        text = _(
            "Worker %(worker)s, which began it %(moment)s (%(attempt_in_words)s), is gone: another "
            "one takes the job over."
        )
        if job.worker_name is None and job.last_attempted_at is None:
            text = _("Its row says that it runs, but no worker does that: one takes it over.")
        yield Reason("lease_lost", text % values)
        yield from _refused(job)
        yield from _without_worker(cursor, job)
    else:
        yield Reason(
            "running",
            _(
                "Worker %(worker)s runs it: %(attempt_in_words)s, begun %(moment)s. "
                "The worker's lease ends %(lease)s unless renewed."
            )
            % values,
        )
        yield from (Reason(*each) for each in reasons_of(cursor, job.id))
    if job.cancel_requested_at is not None:
        values["moment"] = moment_in_words(job.cancel_requested_at, job.now)
        yield Reason("cancel_requested", _("Cancellation was requested at %(moment)s.") % values)


def _without_worker(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    """Yield that nobody is there to take over a job of a lost worker."""
    workers = queries.get_workers(cursor, job, max_named=MAX_NAMED)
    if not workers.live:
        yield taker_of(job, workers)


def _blockers(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    """Yield what keeps a ready job from being claimed."""
    waits = [*_expired(job), *_holds(cursor, job), *_due(job)]
    yield from waits
    if not waits:
        yield from _refused(job)
    yield from (_pause(pause, job) for pause in job.pauses)
    lane = queries.get_lane(cursor, job, max_named=MAX_NAMED)
    obstacles = obstacles_of(lane.head)
    short = [row for row in lane.rates if ("rate_limit", row.rate.key) in obstacles]
    hopeless = [row for row in short if row.name is None or lane.cost > row.burst]
    yield from (_hopeless_rate(row, job, lane) for row in hopeless)
    if waits:
        return
    codes = {obstacle.code for obstacle in obstacles}
    if "key_full" in codes:
        yield _key(job, lane)
    if lane.next_id not in (None, job.id):
        yield _order(cursor, job, lane.next_id, is_full="key_full" in codes)
    if job.queue is not None and "queue_full" in codes:
        yield _queue(job, job.queue)
    yield from (_rate(row, job, lane) for row in short if row not in hopeless)


def _refused(job: JobFacts) -> Iterator[Reason]:
    if job.note.startswith((notes.PASSED_OVER, notes.NOT_RESCUED)):
        text = _(
            "It is passed over, because the server refuses to change its row (%(reason)s); it is "
            "tried again until that is mended."
        )
        said = job.note.partition(": ")[2].partition("\n")[0]
        yield Reason("refused", text % {"reason": said})


def _expired(job: JobFacts) -> Iterator[Reason]:
    if job.expires_at is not None and job.expires_at <= job.now:
        text = _(
            "It expired %(moment)s: nobody begins it any more, and a worker ends it as cancelled."
        )
        yield Reason("expired", text % {"moment": moment_in_words(job.expires_at, job.now)})


def _expires(job: JobFacts) -> Iterator[Reason]:
    if job.expires_at is not None and job.expires_at > job.now:
        text = _("Unless it begins before, it ends as cancelled %(moment)s, when it expires.")
        yield Reason("expires", text % {"moment": moment_in_words(job.expires_at, job.now)})


def _holds(cursor: Cursor, job: JobFacts) -> Iterator[Reason]:
    if job.hold is None:
        return
    found = queries.list_predecessors(cursor, job.id, max_jobs=MAX_NAMED)
    refs = tuple(predecessor.id for predecessor in found)
    labels = [
        f"{each.id} ({JobStatus(each.status).label if each.status else '-'})" for each in found
    ]
    total = found[0].total if found else 0
    values = {"jobs": list_of(labels, total)}
    if job.hold == Hold.PREDECESSOR_FAILED:
        text = _(
            "One of the jobs it waited for failed: %(jobs)s. Requeue that one, run this one now "
            "all the same, or cancel it."
        )
        yield Reason("predecessor_failed", text % values, refs)
    elif found:
        text = ngettext("It waits for job %(jobs)s.", "It waits for jobs %(jobs)s.", total)
        yield Reason("dependencies", text % values, refs)
    else:
        text = _(
            "It waits for other jobs, but no row says for which. Run it now all the same, or "
            "cancel it."
        )
        yield Reason("dependencies", text)


def _due(job: JobFacts) -> Iterator[Reason]:
    # A job that is due by now is promoted by the poll that claims it.
    if job.due_at is None or job.due_at <= job.now:
        return
    code = next((code for note, code in NOTES.items() if job.note.startswith(note)), "given_back")
    if job.due_at == job.run_after:
        code = "scheduled"
    texts = {
        "scheduled": _("It is due %(moment)s, as asked for."),
        "retry": _(
            "Attempt %(attempts)s failed with %(exception)s; the next one is due %(moment)s."
        ),
        "snoozed": _("The task put it off (%(note)s); it is due %(moment)s."),
        "unknown_task": _(
            "A worker that does not know the task %(task)s gave it back; it is due %(moment)s."
        ),
        "rescued": _("The worker that ran it was lost; the next attempt is due %(moment)s."),
        "given_back": _("It is due %(moment)s. Note: %(note)s."),
    }
    values = {
        "moment": moment_in_words(job.due_at, job.now),
        "attempts": job.attempts,
        "exception": job.last_error,
        "note": job.note or "-",
        "task": job.task_path,
    }
    yield Reason(code, texts[code] % values)


def _pause(pause: PauseRow, job: JobFacts) -> Reason:
    return Reason(f"{pause.kind}_paused", pause_in_words(pause, job.now, key=job.concurrency_key))


def _key(job: JobFacts, lane: LaneRow) -> Reason:
    head, refs = lane.head, tuple(lane.running_ids)
    values = {
        "key": job.concurrency_key,
        "running": head.running,
        "most": lane.max_running,
        "limit": lane.pattern,
        "jobs": list_of(refs, head.running),
    }
    text = _("%(running)s of %(most)s jobs of the concurrency key “%(key)s” run: %(jobs)s.")
    if lane.pattern is not None:
        text += " " + _("The limit is the row “%(limit)s”.")
    return Reason("key_full", text % values, refs)


def _order(cursor: Cursor, job: JobFacts, next_id: int, *, is_full: bool) -> Reason:
    values = {"key": job.concurrency_key, "id": next_id}
    text = _("The key “%(key)s” keeps its order, and job %(id)s is before this one.") % values
    # While another one runs, that is what the first one waits for as well.
    first = None if is_full else queries.get_facts(cursor, next_id, max_named=MAX_NAMED)
    if first is not None:
        for reason in _blockers(cursor, first):
            text += " " + _("That job: %(reason)s") % {"reason": reason.text}
            break
    return Reason("key_order", text, (next_id,))


def _queue(job: JobFacts, queue: LimitedQueue) -> Reason:
    refs = tuple(queue.running_ids or ())
    text = _("The queue “%(queue)s” is limited: %(running)s of %(most)s jobs run: %(jobs)s.") % {
        "queue": job.queue_name,
        "running": queue.running,
        "most": queue.max_running,
        "jobs": list_of(refs, queue.running),
    }
    return Reason("queue_full", text, refs)


def _hopeless_rate(row: RateRow, job: JobFacts, lane: LaneRow) -> Reason:
    values = {"key": row.rate.key, "name": row.rate.key.partition(":")[0], "burst": row.burst}
    if row.name is None:
        text = _(
            "There is no rate limit for “%(key)s”. Make one named “%(name)s”: in the admin, by "
            "RateLimit.objects.create(name=…, count=…, period=…), or in PGJOBS['RATE_LIMITS'] "
            "and migrate."
        )
        return Reason("no_rate_limit", text % values)
    text = _("It can never start: “%(key)s” has a burst of %(burst)s, and ") % values
    said, refs = _cost_in_words(job, lane)
    return Reason("cost_above_burst", text + said + " " + _("Raise the burst of the limit."), refs)


def _rate(row: RateRow, job: JobFacts, lane: LaneRow) -> Reason:
    text = _(
        "The rate limit “%(key)s” (%(count)s in %(period)s) is used up: it has enough again "
        "%(moment)s, unless others take it first; "
    ) % {
        "key": row.rate.key,
        "count": row.count,
        "period": duration_in_words(row.period),
        "moment": moment_in_words(row.free_at, job.now),
    }
    said, refs = _cost_in_words(job, lane)
    return Reason("rate_limit", text + said, refs)


def _cost_in_words(job: JobFacts, lane: LaneRow) -> tuple[str, tuple[int, ...]]:
    if lane.cost == job.rate_cost:
        return _("it takes %(cost)s.") % {"cost": lane.cost}, ()
    text = _("job %(id)s, which is before this one, takes %(cost)s.")
    first = lane.head.ids[0]
    return text % {"id": first, "cost": lane.cost}, (first,)


def _in_order(cursor: Cursor, job: JobFacts, blockers: list[Reason]) -> Iterator[Reason]:
    """Yield all reasons; what must change first, such as the lack of a worker, as the first."""
    workers = queries.get_workers(cursor, job, max_named=MAX_NAMED)
    yield from (reason for reason in blockers if reason.code not in PASSING)
    if not workers.awake:
        yield taker_of(job, workers)
    yield from (reason for reason in blockers if reason.code in PASSING)
    if not blockers:
        yield from _lacking(job)
        count, has_more = queries.count_before(cursor, job.id, max_jobs=MAX_COUNTED)
        yield from _before(count, has_more=has_more)
        if workers.awake:
            yield taker_of(job, workers, before=MAX_COUNTED + 1 if has_more else count)


def _lacking(job: JobFacts) -> Iterator[Reason]:
    """Yield that the worker that claims it will first fill in its row; calls no function."""
    try:
        task = find_task(job.task_path)
    except UnknownTask:  # tasks that are not loaded here are unknown
        return
    if job.undeclared is not None and lacks_something(task, control_of(job)):
        text = _(
            "Its row was written without what its task declares (keys, limits, queue, priority). "
            "The worker that takes it adds that, and it waits as the task says."
        )
        yield Reason("undeclared", text)


def _before(count: int, *, has_more: bool) -> Iterator[Reason]:
    if has_more:
        text = _("More than %(count)s jobs of its queue are before it.") % {"count": MAX_COUNTED}
        yield Reason("behind", text)
    elif count:
        text = ngettext(
            "%(count)s job of its queue is before it.",
            "%(count)s jobs of its queue are before it.",
            count,
        )
        yield Reason("behind", text % {"count": count})
