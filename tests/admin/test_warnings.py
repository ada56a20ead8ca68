"""What the Overview warns of: in words, when it is so, and not when it is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import Error
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from psycopg import sql

from django_pgjobs.admin.overview.destinations import page_of
from django_pgjobs.models import Pause, QueueSettings, RateLimit, Statistic
from django_pgjobs.queries.overview import Installation, get_installation
from django_pgjobs.warnings import listing, situation
from django_pgjobs.warnings.listing import light_checks, list_warnings
from django_pgjobs.warnings.notices import HARM, shorten
from django_pgjobs.warnings.situation import Situation
from tests import helpers
from tests.admin.warning_support import linked_ids, no_dead_rows, notices, texts
from tests.factories import ago, make_batch, make_job, make_jobs, make_running_job, make_worker
from tests.http import tasks as remote

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db


def facts(**changes: Any) -> Installation:
    """Return what the server says now, with some of it changed."""
    with connection.cursor() as cursor:
        found = get_installation(cursor, max_workers=10, old_seconds=1e9, unsealed_seconds=1e9)
    return found._replace(**changes)


def test_when_all_is_well_there_is_no_warning() -> None:
    make_worker()
    make_jobs(3)
    make_running_job(make_worker("b:1"))
    make_job(status="failed", finished_at=ago(5))
    assert texts() == []


def test_jobs_that_no_worker_over_http_takes() -> None:
    """Whether workers of ours live or not: they leave the queue of remote tasks alone."""
    make_jobs(2, queue_name="node", task_path=remote.resize.module_path)
    said = ["2 jobs wait in queue node and no live worker over HTTP serves it."]
    assert texts() == said
    make_worker(excluded_queues=["node"])
    assert texts() == said
    make_worker(queues=["node"], token_id=1, task_paths=[remote.resize.module_path])
    assert texts() == []


def test_jobs_of_a_queue_that_no_worker_serves() -> None:
    make_worker(queues=["mail"])
    make_jobs(57, queue_name="reports")
    make_jobs(2, queue_name="mail")
    assert texts() == ["57 jobs wait in queue reports and no live worker serves it."]


@pytest.mark.parametrize(
    "columns",
    [
        {"queues": ["other"]},
        {"excluded_queues": ["default"]},
        {"backends": ["other"]},
        {"queues": ["other"], "excluded_queues": ["other"]},
    ],
    ids=str,
)
def test_who_serves_a_queue_is_asked_as_the_claim_asks(columns: dict[str, Any]) -> None:
    make_worker(**columns)
    make_job()
    assert texts() == ["1 job waits in queue default and no live worker serves it."]
    make_worker(queues=["default"])
    assert texts() == []


@pytest.mark.parametrize("order", ["quiet_requested_at", "stop_requested_at"])
def test_workers_that_were_asked_to_claim_nothing(order: str) -> None:
    make_worker(**{order: ago(5)})
    make_worker("b:1", queues=["mail"])
    make_jobs(2)
    asked = "all live workers that serve it were asked to claim nothing."
    assert texts() == [f"2 jobs wait in queue default and {asked}"]
    make_worker("c:1")
    assert texts() == []


def test_jobs_that_may_not_run_yet_miss_no_worker() -> None:
    make_job(run_after=sql.SQL("now() + interval '1 hour'"))
    make_job(hold="dependencies", waits_for=1)
    assert texts() == []


def test_no_worker_at_all_is_one_warning() -> None:
    make_jobs(2, queue_name="a")
    make_jobs(3, queue_name="b")
    assert texts() == ["5 jobs wait and no worker is alive. Start one: manage.py runjobs."]


def test_many_queues_without_a_worker_are_not_a_page_of_warnings() -> None:
    make_worker(queues=["mail"])
    for number in range(9):
        make_job(queue_name=f"queue-{number}")
    found = texts()
    assert len(found) == 6
    assert found[-1] == "The same holds for 4 other queues."


def test_a_job_that_has_waited_long() -> None:
    make_worker()
    slow = make_job(queue_name="slow", enqueued_at=ago(601))
    first = make_job(enqueued_at=ago(400))
    make_job(enqueued_at=ago(350))
    assert texts() == [
        f"Job {slow}, the oldest of queue slow that may run, has waited for 10 min.",
        f"Job {first}, the oldest of queue default that may run, has waited for 6 min.",
    ]


def test_a_job_that_a_limit_may_keep_is_not_said_to_be_free() -> None:
    make_worker()
    RateLimit.objects.create(name="api", count=1, period=3_600.0)
    job_id = make_job(rate_limit_keys="api", enqueued_at=ago(601))
    said = f"Job {job_id}, the oldest of queue default, has waited for 10 min. A limit may keep it"
    assert texts() == [f"{said}: its page says why."]
    QueueSettings.objects.create(queue_name="mail", max_running=1)
    make_running_job(make_worker("b:1", slots=2), queue_name="mail")
    job_id = make_job(queue_name="mail", enqueued_at=ago(500))
    assert texts()[1].startswith(f"Job {job_id}, the oldest of queue mail, has waited for 8 min.")


def test_a_job_of_an_unknown_task_is_none_that_waits_for_long() -> None:
    make_worker()
    make_job("shop.tasks.gone", enqueued_at=ago(900))
    assert [notice.kind for notice in notices()] == ["unknown_task"]


def test_a_job_that_waits_as_it_should() -> None:
    make_worker()
    make_job(enqueued_at=ago(900), run_after=ago(5))
    make_job(enqueued_at=ago(290))
    assert texts() == []


def test_a_worker_that_was_lost() -> None:
    """S2.32."""
    make_worker()
    make_worker("b:1", lost=True, ended_at=ago(60))
    make_worker("c:1", lease_seconds=-5)
    make_worker("d:1", lost=True, ended_at=ago(9_000))
    make_worker("e:1", ended_at=ago(60))
    [text] = texts()
    assert text == (
        "2 workers were lost in the last hour: they said no goodbye. Jobs that were running there "
        "run again."
    )


def test_what_lost_workers_ran_waits_for_a_live_one() -> None:
    make_worker(lost=True, ended_at=ago(60))
    [text] = texts()
    assert text.endswith("run again when a worker is alive.")


def test_jobs_that_wait_for_a_decision_are_told_of(admin_client: Client) -> None:
    make_worker()
    make_job(hold="dependencies", waits_for=1)
    assert texts() == []
    ids = make_jobs(1, hold="predecessor failed")
    assert texts()[0].startswith(f"Job {ids[0]}, one of the oldest, is held, because a job before ")
    ids += make_jobs(1, hold="predecessor failed")
    [notice] = notices()
    assert notice.text.startswith(f"2 of the oldest jobs, such as {ids[0]}, are held, because a ")
    assert notice.kind == "held"
    assert set(ids) < linked_ids(admin_client, notice)


def test_workers_of_different_versions() -> None:
    make_worker(version="0.2")
    make_worker("b:1", version="0.3")
    make_worker("c:1", version="0.1", ended_at=ago(5))
    assert texts() == ["Live workers are of different versions: 0.2, 0.3."]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_keeps_dead_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    make_worker()
    with helpers.connect(autocommit=False) as other:
        other.execute("SET application_name = 'forgotten shell'")
        other.execute("SELECT txid_current()")
        assert texts() == []
        monkeypatch.setattr(situation, "OLD_TRANSACTION_SECONDS", 0.0)
        [text] = texts()
        assert f"(process {other.info.backend_pid}, forgotten shell)" in text
        other.rollback()
        assert texts() == []


def test_many_dead_rows() -> None:
    assert list_warnings(Situation(facts(live_rows=10, dead_rows=49_999))) == []
    assert list_warnings(Situation(facts(live_rows=90_000, dead_rows=80_000))) == []
    [notice] = list_warnings(Situation(facts(live_rows=10, dead_rows=80_000)))
    assert notice.text.startswith("The table of live jobs holds 80,000 dead rows and 10 live ones")


def test_a_setting_that_is_wrong(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    def complain() -> list[Error]:
        return [Error("two databases.", id="pgjobs.W001")]

    monkeypatch.setattr(listing, "check_router", complain)
    assert texts() == ["two databases."]
    settings.SILENCED_SYSTEM_CHECKS = ["pgjobs.W001"]
    assert texts() == []


def test_many_settings_that_are_wrong(settings: Any) -> None:
    settings.PGJOBS = {f"KEY_{number}": 1 for number in range(7)}
    found = shorten(list_warnings(Situation(facts()), light_checks()))
    said = [notice.text for notice in found if notice.kind in ("broken", "settings")]
    assert said[0] == "unknown key 'KEY_0' in PGJOBS. Remove it."
    assert said[5:] == ["More checks fail: see manage.py check."]


def test_a_warning_leads_to_the_jobs_that_it_counts(admin_client: Client) -> None:
    make_worker(queues=["mail"])
    ids = make_jobs(43, queue_name="reports & more")
    make_job(queue_name="mail")
    make_job(queue_name="reports & more", hold="dependencies", waits_for=1)
    [notice] = notices()
    assert linked_ids(admin_client, notice) == set(ids)
    text = admin_client.get(reverse("admin:app_list", args=["pgjobs"])).content.decode()
    assert "43 jobs wait in queue reports &amp; more and no live worker serves it." in text
    shown = text.partition('class="pgjobs-notices"')[2].partition("</ul>")[0]
    assert f"{reverse('admin:pgjobs_job_changelist')}?tab=ready&amp;queue=reports" in shown


def test_the_worst_comes_first() -> None:
    make_worker(version="0.2", queues=["mail"])
    make_worker("b:1", version="0.3", queues=["mail"])
    Pause.objects.create(kind="queue", name="mail")
    make_job(queue_name="mail")
    make_job(queue_name="other")
    make_worker("c:1", lost=True, ended_at=ago(60))
    kinds = [notice.kind for notice in notices()]
    assert kinds == ["unserved", "lost_workers", "paused", "versions"]
    assert kinds == sorted(kinds, key=HARM.index)


def test_a_rate_limit_without_its_row_is_warned_about_while_jobs_wait_for_it() -> None:
    """Nobody would notice otherwise: its jobs wait for ever, in silence."""
    make_worker()
    make_job(rate_limit_keys="shopify:17")
    [text] = [text for text in texts() if "rate limit" in text]
    assert "of shopify:17, which does not exist: they cannot start. Make one named shopify" in text
    RateLimit.objects.create(name="shopify", count=1, period=1.0)
    assert not [text for text in texts() if "rate limit" in text]


def test_many_keys_of_a_rate_limit_are_one_warning() -> None:
    make_worker()
    for key in ("shopify:1", "shopify:2", "shopify:3", "shopify:4", "mail"):
        make_job(rate_limit_keys=key)
    assert [notice.subject for notice in notices()] == ["mail", "shopify"]
    assert texts()[1] == (
        "Jobs wait for the rate limit of shopify:1, shopify:2, shopify:3, …, which does not "
        "exist: they cannot start. Make one named shopify."
    )


def test_many_keys_of_a_rate_limit_hide_no_other_one() -> None:
    make_worker()
    for number in range(30):
        make_job(rate_limit_keys=f"shopify:{number:02}")
    make_job(rate_limit_keys="trello:1")
    assert [notice.subject for notice in notices()] == ["shopify", "trello"]


def test_jobs_that_wait_for_a_limit_in_vain_wait_for_no_slot() -> None:
    worker = make_worker(slots=1)
    make_running_job(worker, queue_name="default")
    make_job(rate_limit_keys="shopify:17", enqueued_at=ago(3_000))
    make_job(rate_limit_keys="mail", rate_cost=6, enqueued_at=ago(2_000))
    RateLimit.objects.create(name="mail", count=5, period=1.0)
    assert [notice.kind for notice in notices()] == ["missing_rate", "missing_rate"]
    make_job(rate_limit_keys="mail", enqueued_at=ago(150))
    [text] = [notice.text for notice in notices() if notice.kind == "busy"]
    assert text == (
        "The only slot of the workers of queue default is busy, and 1 job waits, for 2 min."
    )


def test_batches_that_stand_still() -> None:
    make_batch("whole")
    make_batch("filling", sealed_at=None)
    make_batch("ended", sealed_at=None, tree_completed_at=ago(9), created_at=ago(90_000))
    assert texts() == []
    forgotten = make_batch("forgotten", sealed_at=None, created_at=ago(90_000))
    part = make_batch("part", parent_id=make_batch("owner"), broken="odd")
    assert texts() == [
        f"Batch part #{part} cannot be counted; its page says why.",
        f"Batch forgotten #{forgotten} is not sealed for more than a day: it cannot end.",
    ]


def test_a_batch_that_stands_still_is_led_to(admin_client: Client) -> None:
    part = make_batch("part", parent_id=make_batch("owner"), broken="odd")
    text = admin_client.get(reverse("admin:app_list", args=["pgjobs"])).content.decode()
    notices = text.partition('class="pgjobs-notices"')[2].partition("</ul>")[0]
    assert f'href="{reverse("admin:pgjobs_batch_change", args=[part])}"' in notices


def test_a_burst_below_what_a_job_takes_is_warned_about() -> None:
    make_worker()
    make_job(rate_limit_keys="shopify:17", rate_cost=6)
    RateLimit.objects.create(name="shopify", count=5, period=1.0)
    [text] = [text for text in texts() if "rate limit" in text]
    assert text == (
        "Jobs wait for the rate limit of shopify:17 and take 6 tokens at once, but shopify has a "
        "burst of 5: they cannot start. Raise it."
    )


def test_jobs_that_look_stuck(admin_client: Client) -> None:
    """S2.32: the warning, and the page with just these jobs."""
    worker = make_worker(slots=5)
    Statistic.objects.create(
        begins_at=timezone.now() - timedelta(hours=1),
        queue_name="default",
        task_path="tests.tasks.add",
        runs=[0] * 10 + [50],
    )
    make_running_job(worker, last_attempted_at=ago(50))
    assert texts() == []
    ids = [make_running_job(worker, last_attempted_at=ago(500 + each)).id for each in range(2)]
    first, second = notices()
    page, key, _ = page_of(first)
    assert (page, key, page_of(second).key) == ("pgjobs_job_change", ids[1], ids[0])
    assert first.text.startswith(f"Job {ids[1]} of tests.tasks.add looks stuck. It has run for 8 ")
    ids += [make_running_job(worker, last_attempted_at=ago(400 - each)).id for each in range(4)]
    shown = notices()
    assert (len(shown), shown[-1].text) == (6, "1 more job looks stuck.")
    text = admin_client.get(reverse(f"admin:{page_of(shown[-1]).page}")).content.decode()
    assert "6 running jobs look stuck." in text
    for job_id in ids:
        assert f'href="{reverse("admin:pgjobs_job_change", args=[job_id])}"' in text
    assert text.count("data-pgjobs-row=") == 6


def test_the_page_of_stuck_jobs_without_any(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:pgjobs_job_stuck")).content.decode()
    assert "No running job looks stuck." in text
