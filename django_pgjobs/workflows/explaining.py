"""Why does a batch not end, or was not run? From its row, its jobs, and those it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.control.explanation import Reason
from django_pgjobs.queries import batches
from django_pgjobs.queries.batches import BatchFacts
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.workflows.blocks import AnyBatch, id_of, unknown

MAX_NAMED = 10
MAX_COUNTED = 1_000


@dataclass(frozen=True)
class BatchExplanation:
    """Why a batch is not complete, with all below it; *refs* of a reason are ids of batches.

    Codes: follows, parts, children, open (not sealed), making, not_run, running, waiting,
    cancelling, uncounted, missing, broken, complete.
    """

    batch_id: int
    is_complete: bool
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "\n".join(reason.text for reason in self.reasons)


def explain(batch: AnyBatch) -> BatchExplanation:
    """Say what a batch waits for; nothing is written or locked."""
    with job_cursor() as cursor:
        facts = batches.get_facts(
            cursor, id_of(batch), max_named=MAX_NAMED, max_counted=MAX_COUNTED
        )
    if facts is None:
        raise unknown(batch.pk)
    return BatchExplanation(batch.pk, facts.is_tree_complete, tuple(_reasons(facts)))


def _reasons(facts: BatchFacts) -> Iterator[Reason]:
    if facts.broken:
        text = _("It cannot be counted, which is tried each minute: %(error)s") % {
            "error": facts.broken
        }
        yield Reason("broken", text)
    if facts.failed_before:
        text = _(
            "Its job is not made, because not all before it succeeded, and its after_failure is "
            "not “run”. Retry what failed or was cancelled in"
        )
        yield _of_batches("not_run", text, facts.failed_before)
    if facts.is_tree_complete:
        yield Reason("complete", _("It is complete, and so is everything below it."))
        return
    yield from _reasons_of_seal(facts)
    if not facts.is_complete:
        yield from _reasons_of_jobs(facts)
    if facts.parts:
        yield _of_batches("parts", _("Parts of it are not complete"), facts.parts)
    if facts.is_complete and facts.children:
        yield _of_batches("children", _("Batches below it are not complete"), facts.children)
    # While jobs end, something is noted all the time.
    is_busy = facts.running or facts.waiting or facts.parts or facts.waits_for
    if facts.changes and (facts.is_sealing or not is_busy):
        yield Reason("uncounted", _why_uncounted(facts))


def _reasons_of_seal(facts: BatchFacts) -> Iterator[Reason]:
    if facts.is_cancelled:
        text = _("It is being cancelled: what waits ends, what runs is asked to.")
        yield Reason("cancelling", text)
    if facts.waits_for:
        yield _of_batches("follows", _("It follows batches that are not complete"), facts.waits_for)
    elif facts.follows and not facts.is_sealed:
        yield Reason("making", _("Jobs are still made of what it follows."))
    elif not facts.is_sealed and not facts.is_sealing:
        text = _(
            "Nobody has said that no more jobs come: it is not sealed. Press Seal… on its page in "
            "the admin, or call manage.py jobs workflows seal."
        )
        yield Reason("open", text)


def _why_uncounted(facts: BatchFacts) -> str:
    text = _(
        "What is noted of it is not counted yet: no worker runs, or a transaction that adds to it "
        "or changes it is open."
    )
    if facts.holder_pid is None:
        return text
    of_holder = _(
        "The oldest one that adds to batches or changes them has been open for %(seconds)d s, in "
        "session %(pid)d (%(name)s)."
    ) % {
        "pid": facts.holder_pid,
        "name": facts.holder_name or _("without a name"),
        "seconds": facts.holder_seconds or 0,
    }
    return f"{text} {of_holder}"


def _reasons_of_jobs(facts: BatchFacts) -> Iterator[Reason]:
    if facts.running:
        text = ngettext("%d job of it runs.", "%d jobs of it run.", facts.running) % facts.running
        yield Reason("running", text)
    if facts.waiting:
        waiting = (
            _("At least %d jobs of it wait.") % facts.waiting
            if facts.waiting == MAX_COUNTED
            else ngettext("%d job of it waits.", "%d jobs of it wait.", facts.waiting)
            % facts.waiting
        )
        asking = _("The first one is job %d; look there what it waits for.") % facts.first_waiting
        text = f"{waiting} {asking}"
        yield Reason("waiting", text)
    if facts.unfinished > 0 and not (facts.running or facts.waiting or facts.changes):
        yield Reason(
            "missing",
            _("Jobs that it waits for are not there: they are counted again within a minute."),
        )


def _of_batches(code: str, text: str, ids: list[int]) -> Reason:
    return Reason(code, f"{text}: {', '.join(map(str, ids))}", tuple(ids))
