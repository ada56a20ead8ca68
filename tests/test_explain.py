"""Job.explain(): each reason, its words and the jobs it names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.expressions import RawSQL
from django.utils import timezone, translation
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.control.explain import explain
from django_pgjobs.models import Explanation, Job, Worker
from django_pgjobs.models.control import Dependency, Pause, QueueSettings, RateLimit
from django_pgjobs.values.moments import duration, exact_moment, moment_in_words
from tests import tasks
from tests.explaining import codes, only, outlook
from tests.factories import make_job, make_jobs, make_running_job, make_worker

pytestmark = pytest.mark.django_db

LATER = sql.SQL("clock_timestamp() + interval '1 hour'")
EARLIER = sql.SQL("clock_timestamp() - interval '1 hour'")
ADD = "tests.tasks.add"


@pytest.fixture(autouse=True)
def worker(db: None) -> int:
    """Register a live worker that would take every job of these tests."""
    return make_worker(task_paths=[ADD, "tests.tasks.echo"], slots=1000)


def test_the_job_its_id_and_its_result_give_the_same_answer() -> None:
    """S1.2: see whether a task is stuck, and tell that from other failures."""
    result = tasks.add.enqueue(1, 2)
    found = Job.objects.get(pk=result.id).explain()
    assert isinstance(found, Explanation)
    assert found == explain(result.id) == explain(result) == explain(int(result.id))
    assert (found.job_id, found.status) == (int(result.id), "ready")
    assert str(found) == str(found.reasons[0]) == found.reasons[0].text


def test_a_job_that_is_not_there_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="got 4711"):
        explain(4711)
    with pytest.raises(ValueError, match="expected a job"):
        explain("soon")


def test_nothing_holds_the_job_back() -> None:
    reason = outlook(make_job())
    assert reason.code == "next_look"
    assert "(test:1) takes it at its next poll, within 5 s" in reason.text


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "successful"}, "Successful."),
        ({"status": "failed", "attempts": 3, "errors": [{"exception_class": "a.B"}]},
         "Failed. Attempt 3 ended with a.B."),
        ({"status": "failed", "attempts": 1, "errors": [
            {"exception_class": "builtins.ValueError", "message": "no price.\nBuy one."}]},
         "Failed. Attempt 1 ended with ValueError: no price."),
        ({"status": "failed"}, "Failed."),
        ({"status": "cancelled", "note": "job 7 failed"}, "Cancelled. Note: job 7 failed."),
    ],
)  # fmt: skip
def test_a_finished_job(columns: dict[str, Any], words: str) -> None:
    reason = only(make_job(finished_at=EARLIER, **columns))
    assert reason.code == "finished"
    assert reason.text.startswith("It finished at ") and "(60 min ago)" in reason.text
    assert reason.text.endswith(words)


def test_a_running_job_names_its_worker_attempt_and_lease(worker: int) -> None:
    job = make_running_job(worker, attempts=2, max_attempts=5)
    reason = only(job.id)
    assert reason.code == "running"
    assert "Worker test:1 runs it: attempt 2 of 5, begun " in reason.text
    assert "lease ends " in reason.text


def test_attempts_that_were_lost_come_on_top(worker: int) -> None:
    job = make_running_job(worker, attempts=4, max_attempts=3, lost_count=2)
    assert "attempt 4 of 5, begun " in only(job.id).text


def test_an_attempt_whose_number_only_the_task_bounds(worker: int) -> None:
    assert "attempt 1, begun" in only(make_running_job(worker).id).text


@pytest.mark.parametrize("kind", ["expired", "ended", "deleted"])
def test_a_job_whose_worker_is_gone(kind: str) -> None:
    worker = make_worker(lease_seconds=-1) if kind == "expired" else make_worker(ended_at=EARLIER)
    job = make_running_job(4711 if kind == "deleted" else worker)
    reason = only(job.id)
    assert reason.code == "lease_lost"
    assert "is gone: another one takes the job over" in reason.text
    Worker.objects.all().delete()
    assert codes(job.id) == ["lease_lost", "no_worker"]


def test_a_running_job_that_was_asked_to_end(worker: int) -> None:
    job = make_running_job(worker, cancel_requested_at=EARLIER)
    assert codes(job.id) == ["running", "cancel_requested"]


@pytest.mark.parametrize(
    ("columns", "code", "words"),
    [
        ({"run_after": LATER}, "scheduled", "as asked for"),
        ({"due_at": LATER, "note": "retry after Mishap", "attempts": 2,
          "errors": [{"exception_class": "tests.Mishap"}]},
         "retry", "Attempt 2 failed with tests.Mishap; the next one is due"),
        ({"due_at": LATER, "note": "snoozed: no stock"}, "snoozed", "put it off (snoozed: no"),
        ({"due_at": LATER, "note": "unknown task"}, "unknown_task", "the task tests.tasks.add"),
        ({"due_at": LATER, "note": "worker lost: its lease ended"}, "rescued", "was lost"),
        ({"due_at": LATER, "note": "released"}, "given_back", "Note: released."),
        ({"due_at": LATER}, "given_back", "Note: -."),
    ],
)  # fmt: skip
def test_a_job_that_is_due_later(columns: dict[str, Any], code: str, words: str) -> None:
    """S1.22."""
    reason = only(make_job(**columns))
    assert reason.code == code
    assert words in reason.text
    assert "(in 60 min)" in reason.text or "(in 59 min)" in reason.text


@pytest.mark.parametrize("due", [None, EARLIER])
def test_a_job_that_the_server_refuses_says_so(due: Any) -> None:
    note = "passed over: no room\nCONTEXT:  PL/pgSQL function keep_out()"
    job_id = make_job(note=note, due_at=due)
    reason = only(job_id)
    assert reason.code == "refused"
    assert "the server refuses to change its row (no room)" in reason.text
    pause(queue="default")
    assert codes(job_id) == ["refused", "queue_paused"]


def test_a_refusal_of_before_is_not_why_a_job_waits_now() -> None:
    assert codes(make_job(note="passed over: no room", due_at=LATER)) == ["given_back"]
    waiting = make_job(note="passed over: no room", hold="dependencies", waits_for=1)
    assert codes(waiting) == ["dependencies"]


def test_a_job_that_cannot_be_rescued_says_so(worker: int) -> None:
    note = "cannot be rescued: no room"
    lost = make_running_job(make_worker(ended_at=EARLIER), note=note)
    assert codes(lost.id) == ["lease_lost", "refused"]
    assert "(no room)" in explain(lost.id).reasons[1].text
    assert codes(make_running_job(worker, note=note).id) == ["running"]


def test_a_refusal_is_told_in_german() -> None:
    job_id = make_job(note="passed over: no room")
    with translation.override("de"):
        text = only(job_id).text
    assert text.startswith("Er wird übergangen, weil der Server") and "(no room)" in text


def test_a_job_that_has_just_become_due_may_start() -> None:
    assert explain(make_job(due_at=EARLIER)).is_ready_to_run


def test_a_pause_for_ever_has_no_end() -> None:
    job_id = make_job()
    for_ever = RawSQL("%s::timestamptz", ["infinity"])
    pause(queue="default")
    Pause.objects.update(resume_at=for_ever)
    assert "resumes" not in only(job_id).text


def test_a_job_that_waits_for_others_names_them_with_their_statuses(worker: int) -> None:
    """S1.15."""
    running, ready = make_running_job(worker).id, make_job()
    job_id = make_job(hold="dependencies", waits_for=2)
    for predecessor_id in (running, ready):
        Dependency.objects.create(
            predecessor_id=predecessor_id, job_id=job_id, after_failure="cancel"
        )
    reason = only(job_id)
    assert (reason.code, reason.refs) == ("dependencies", (running, ready))
    assert reason.text == f"It waits for jobs {running} (Running), {ready} (Ready)."


def test_many_predecessors_are_counted() -> None:
    ids = make_jobs(13)
    job_id = make_job(hold="dependencies", waits_for=13)
    Dependency.objects.bulk_create(
        Dependency(predecessor_id=before, job_id=job_id, after_failure="run") for before in ids
    )
    reason = only(job_id)
    assert reason.refs == tuple(ids[:10])
    assert reason.text.endswith(f"{ids[9]} (Ready) and 3 more.")


def test_a_predecessor_that_is_gone() -> None:
    job_id = make_job(hold="dependencies", waits_for=1)
    Dependency.objects.create(predecessor_id=4711, job_id=job_id, after_failure="run")
    assert only(job_id).text == "It waits for job 4711 (-)."


def test_a_hold_without_a_dependency_says_how_to_end_it() -> None:
    assert "Run it now all the same" in only(make_job(hold="dependencies")).text


def test_a_job_whose_predecessor_failed() -> None:
    failed = make_job(status="failed")
    job_id = make_job(hold="predecessor failed", waits_for=1)
    Dependency.objects.create(predecessor_id=failed, job_id=job_id, after_failure="hold")
    reason = only(job_id)
    assert (reason.code, reason.refs) == ("predecessor_failed", (failed,))
    assert f"{failed} (Failed)" in reason.text
    assert "run this one now all the same" in reason.text


def test_a_pause_says_since_when_by_whom_why_and_until_when() -> None:
    job_id = make_job(queue_name="mail")
    pause(queue="mail", reason="PDF bug", by="anna", until=timedelta(hours=3))
    text = only(job_id).text
    assert text.startswith("The queue “mail” has been paused since ")
    assert "by anna, because: PDF bug; it resumes " in text
    assert "(in 3 h)." in text or "(in 2 h)." in text


def test_a_paused_task() -> None:
    job_id = make_job()
    pause(task=tasks.add)
    reason = only(job_id)
    assert reason.code == "task_paused"
    assert reason.text.startswith(f"The task {ADD} has been paused since ")
    assert reason.text.endswith("ago).")


def test_a_paused_key_names_the_pattern() -> None:
    job_id = make_job(concurrency_key="shop:7")
    pause(key="shop:*")
    pause(key="shop_7")
    reason = only(job_id)
    assert reason.code == "key_paused"
    assert "“shop:7” has been paused as “shop:*”" in reason.text


def test_all_pauses_are_named_queue_first_and_those_that_are_over_are_not() -> None:
    job_id = make_job(concurrency_key="shop:7", run_after=LATER)
    pause(key="*")
    pause(task=ADD)
    pause(queue="default")
    Pause.objects.create(kind="key", name="shop:7", resume_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert codes(job_id) == ["scheduled", "queue_paused", "task_paused", "key_paused"]


@pytest.mark.parametrize(
    ("before", "words"), [(1, "1 job of its queue is"), (3, "3 jobs"), (1001, "More than 1000")]
)
def test_how_many_jobs_are_before_it(before: int, words: str) -> None:
    make_job("tests.tasks.echo", args=[], priority=100)
    pause(task=tasks.echo)
    make_job(queue_name="mail", priority=100)
    make_jobs(before - 1)
    make_job(priority=1)
    job_id = make_job()
    make_job()
    Worker.objects.update(slots=1001)
    first, last = explain(job_id).reasons
    assert (first.code, last.code) == ("behind", "next_look" if before < 1001 else "in_line")
    assert first.text.startswith(words)


@pytest.mark.parametrize(
    ("before", "columns", "code"),
    [
        (1, {}, "next_look"),
        (2, {}, "in_line"),
        (1, {"queue_name": "limited"}, "in_line"),
        (1, {"concurrency_key": "shop:7", "concurrency_limit": 5}, "in_line"),
        (1, {"rate_limit_keys": "fast:1"}, "in_line"),
    ],
    ids=["free slot", "slots", "queue", "key", "rate"],
)
def test_a_job_is_not_promised_what_those_before_it_may_take(
    before: int, columns: dict[str, Any], code: str
) -> None:
    """A slot, room in its queue, its key, tokens."""
    Worker.objects.update(slots=3)
    make_running_job(queue_name="mail", worker_id=Worker.objects.get().pk)
    QueueSettings.objects.create(queue_name="limited", max_running=2)
    make_running_job(queue_name="limited")
    RateLimit.objects.create(name="fast", count=100, period=1)
    assert outlook(make_job(**columns)).code == "next_look"
    make_jobs(before - 1, **columns)
    reason = outlook(make_job(**columns))
    assert reason.code == code
    assert ("when its turn comes" in reason.text) == (code == "in_line")


def test_with_keys_only_those_with_the_same_are_before_it_at_the_same_priority() -> None:
    make_jobs(2)
    make_jobs(3, concurrency_key="shop:8", concurrency_limit=5)
    make_jobs(4, concurrency_key="shop:7", concurrency_limit=5)
    job_id = make_job(concurrency_key="shop:7", concurrency_limit=5)
    assert explain(job_id).reasons[0].text.startswith("4 jobs")


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"backends": ["other"]}, "no_worker_for_backend"),
        ({"queues": ["mail"]}, "no_worker_for_queue"),
        ({"excluded_queues": ["default"]}, "no_worker_for_queue"),
        ({"task_paths": ["tests.tasks.echo"]}, "no_worker_for_task"),
        ({"quiet_requested_at": EARLIER}, "workers_quiet"),
        ({"stop_requested_at": EARLIER}, "workers_quiet"),
        ({"ended_at": EARLIER}, "no_worker"),
        ({"lease_seconds": -1}, "no_worker"),
    ],
)
def test_no_worker_would_take_it(worker: int, columns: dict[str, Any], code: str) -> None:
    """S1.2: the queue of jobs that nobody runs looks like an idle one."""
    Worker.objects.all().delete()
    make_worker(**({"task_paths": [ADD]} | columns))
    assert outlook(make_job()).code == code
    pause(task=ADD)
    assert codes(make_job()) == ["task_paused", code]


def test_a_task_that_no_worker_knows_may_be_in_a_module_that_none_loads(worker: int) -> None:
    """Such as shop/emails.py, which the web process imports and a worker does not."""
    Worker.objects.update(task_paths=["tests.tasks.echo"])
    assert "PGJOBS['TASK_MODULES']" in outlook(make_job()).text


def test_the_slots_of_all_workers_that_would_take_it_are_busy(worker: int) -> None:
    Worker.objects.update(slots=2)
    make_worker(task_paths=[ADD], queues=["mail"], slots=5)
    for _ in range(2):
        make_running_job(worker)
    reason = outlook(make_job())
    assert reason.code == "workers_busy"
    assert reason.text == "The workers that would take it (test:1) run 2 jobs in 2 slots."


def test_no_task_is_imported() -> None:
    make_worker(task_paths=["no.such.task"])
    assert outlook(make_job("no.such.task")).code == "next_look"


def test_the_words_are_in_the_active_language(monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = make_job(status="cancelled", finished_at=EARLIER)
    with translation.override("de"):
        catalog = translation.trans_real.catalog()  # type: ignore[attr-defined]
        key = "It finished at %(moment)s: %(status)s."
        monkeypatch.setitem(catalog._catalog._catalogs[0], key, "Zu Ende: %(status)s")
        assert only(job_id).text == "Zu Ende: Abgebrochen"


def test_times_are_in_the_current_time_zone() -> None:
    job_id = make_job(status="successful", finished_at="2026-01-01 00:00:00+00")
    with timezone.override("America/New_York"):
        assert "Dec. 31, 2025 19:00:00 EST" in only(job_id).text


@pytest.mark.parametrize("seconds", [0.0004, 0.024, 0.9994, 1.0])
def test_a_sentence_gives_parts_of_a_second_as_pages_do(seconds: float) -> None:
    now = timezone.now()
    said = moment_in_words(now - timedelta(seconds=seconds), now)
    assert said.endswith(f"({duration(seconds).replace('1.0', '1')} ago)")


def test_a_sentence_names_a_time_as_pages_do_with_its_zone() -> None:
    noon = datetime(2026, 1, 1, 11, tzinfo=UTC)
    with timezone.override("Europe/Berlin"):
        said = moment_in_words(noon, noon + timedelta(days=3))
        assert (
            said == f"{exact_moment(noon)} CET (3 d ago)" == "Jan. 1, 2026 12:00:00 CET (3 d ago)"
        )
        with translation.override("de"):
            assert moment_in_words(noon, noon).startswith("1. Januar 2026 12:00:00 CET (")
