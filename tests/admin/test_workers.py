"""The page Workers: states, what runs, and the orders that people give."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs.control.workers import heartbeat_of, state_of
from django_pgjobs.declaring.registry import OWN_MODULES
from django_pgjobs.models import Token, Worker
from django_pgjobs.queries import worker_pages
from tests.factories import ago, get_worker, make_jobs, make_running_job, make_token, make_worker
from tests.test_admin import HOSTILE

pytestmark = pytest.mark.django_db

LIST = "admin:pgjobs_worker_changelist"
NOW = sql.SQL("now()")


def read(client: Client, name: str = LIST, *args: Any) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(reverse(name, args=args))
    assert response.status_code == 200
    return response.content.decode()


def send(client: Client, order: str, **values: str) -> Any:
    """Send an order as the buttons do."""
    return client.post(reverse("admin:pgjobs_worker_control"), {"do": order, **values})


def row_of(worker_id: int) -> worker_pages.WorkerRow:
    """Return a worker as the page reads it."""
    with connection.cursor() as cursor:
        row = worker_pages.get_worker(cursor, worker_id)
    assert row is not None
    return row


def beat(seconds_ago: float) -> sql.Composable:
    """Return SQL of a heartbeat in the past."""
    return sql.SQL("now() - make_interval(secs => {})").format(seconds_ago)


@pytest.mark.parametrize(
    ("columns", "state", "heartbeat"),
    [
        ({}, "running", "on-time"),
        # Heartbeat and lease are 60 s apart.
        ({"lease_seconds": 41, "heartbeat_at": beat(19)}, "running", "on-time"),
        ({"lease_seconds": 30, "heartbeat_at": beat(30)}, "running", "late"),
        ({"lease_seconds": -5, "heartbeat_at": beat(65)}, "lost", "lost"),
        ({"quiet_requested_at": NOW}, "quiet", "on-time"),
        ({"quiet_requested_at": NOW, "stop_requested_at": NOW}, "stopping", "on-time"),
        ({"ended_at": NOW}, "ended", "on-time"),
        ({"ended_at": NOW, "lost": True}, "lost", "on-time"),
    ],
)
def test_a_worker_has_a_state_in_words(
    admin_client: Client, columns: dict[str, Any], state: str, heartbeat: str
) -> None:
    worker_id = make_worker("web-1:44", **columns)
    row = row_of(worker_id)
    assert (state_of(row), heartbeat_of(row)) == (state, heartbeat)
    for text in (read(admin_client), read(admin_client, "admin:pgjobs_worker_change", worker_id)):
        assert f"</span> {state.capitalize()}</span>" in text


def test_workers_that_ended_long_ago_are_left_out(admin_client: Client) -> None:
    make_worker("old:1", ended_at=sql.SQL("now() - interval '2 days'"))
    make_worker("new:1", ended_at=sql.SQL("now() - interval '2 hours'"))
    text = read(admin_client)
    assert "new:1" in text
    assert "old:1" not in text
    assert "No worker is live" in text


def test_those_that_ended_are_below_the_live_ones_newest_end_first(admin_client: Client) -> None:
    for name, minutes in (("first:1", 9), ("last:1", 1), ("middle:1", 5)):
        make_worker(name, ended_at=sql.SQL("now() - interval '1 min' * {}").format(minutes))
    make_worker("live:1")
    make_worker("live:2")
    found = re.findall(r"\b(?:first|last|middle|live):\d", read(admin_client))
    assert list(dict.fromkeys(found)) == ["live:2", "live:1", "last:1", "middle:1", "first:1"]


def test_a_worker_shows_what_it_runs_and_how_full_it_is(admin_client: Client) -> None:
    busy, idle = make_worker("busy:1", slots=4), make_worker("idle:1", slots=8)
    jobs = [make_running_job(busy, task_path="shop.tasks.send") for _ in range(3)]
    text = read(admin_client)
    for job in jobs:
        assert f"shop.<wbr>tasks.<wbr>send #{job.id}" in text
        assert reverse("admin:pgjobs_job_change", args=[job.id]) in text
    assert "</meter> 3/4" in text
    assert "</meter> 0/8" in text
    assert "send #" not in read(admin_client, "admin:pgjobs_worker_change", idle)


def test_more_running_jobs_than_are_shown_are_counted(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgjobs.control.workers.MAX_JOBS", 2)
    worker_id = make_worker(slots=4)
    for _ in range(5):
        make_running_job(worker_id)
    text = read(admin_client)
    assert text.count("add #") == 2
    assert "and 3 more" in text
    assert "async, or claimed ahead" in text


def test_what_runs_longest_is_shown_first_whatever_its_id(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waited for its time, or for a retry, began after jobs that came later."""
    monkeypatch.setattr("django_pgjobs.control.workers.MAX_JOBS", 2)
    worker_id = make_worker(slots=4)
    jobs = [
        make_running_job(worker_id, last_attempted_at=ago(60 * minutes)).id
        for minutes in (1, 5, 3, 9)
    ]
    shown = [int(found) for found in re.findall(r"add #(\d+)", read(admin_client))]
    assert shown == [jobs[3], jobs[1]]


def test_of_very_many_jobs_it_says_that_there_are_more(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker claims thousands ahead: what is counted of them is no less than it says."""
    worker_id = make_worker(slots=4)
    make_jobs(1_200, status="running", worker_id=worker_id, claim=1, attempts=1)
    assert "</meter> 1,200/4" in read(admin_client)
    assert "and 1,190 more" in read(admin_client)
    monkeypatch.setattr("django_pgjobs.control.workers.MAX_COUNTED", 1_000)
    for text, left_out in (
        (read(admin_client), 990),
        (read(admin_client, "admin:pgjobs_worker_change", worker_id), 950),
    ):
        assert "</meter> more than 1,000/4" in text
        assert f"and more than {left_out} more" in text


def test_workers_of_two_versions_are_warned_about(admin_client: Client) -> None:
    make_worker(version="1.0")
    make_worker(version="0.9", lease_seconds=-1)
    assert "different versions" not in read(admin_client)
    make_worker(version="1.1")
    assert "different versions" in read(admin_client)


def test_one_worker_is_quieted_and_resumed_at_once(admin_client: Client) -> None:
    worker_id, other = make_worker("web-1:44"), make_worker("web-2:44")
    with CaptureQueriesContext(connection) as queries:
        answer = send(admin_client, f"quiet {worker_id}", next=reverse(LIST))
    assert (answer.status_code, answer["Location"]) == (302, reverse(LIST))
    assert any("pgjobs_control" in query["sql"] and "workers" in query["sql"] for query in queries)
    assert get_worker(worker_id).quiet_requested_at is not None
    assert get_worker(other).quiet_requested_at is None
    assert "Asked to claim no new jobs: 1 worker." in read(admin_client)
    send(admin_client, f"resume {worker_id}")
    assert get_worker(worker_id).quiet_requested_at is None
    entries = list(LogEntry.objects.order_by("pk"))
    assert [entry.change_message for entry in entries] == ["quiet worker", "resume worker"]
    assert {entry.object_id for entry in entries} == {str(worker_id)}
    assert "quiet worker" in read(admin_client, "admin:pgjobs_worker_history", worker_id)


def test_stopping_asks_first(admin_client: Client) -> None:
    worker_id = make_worker("web-1:44")
    answer = send(admin_client, f"stop {worker_id}")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "web-1:44" in text
    assert "Yes, stop" in text
    assert get_worker(worker_id).stop_requested_at is None
    assert send(admin_client, f"stop {worker_id}", confirmed="1").status_code == 302
    assert get_worker(worker_id).stop_requested_at is not None


def test_what_is_done_to_all_asks_first_and_meets_the_live_ones(admin_client: Client) -> None:
    live = [make_worker(f"live:{number}") for number in range(3)]
    stopping = make_worker("stopping:1", stop_requested_at=NOW)
    ended, lapsed = make_worker("ended:1", ended_at=NOW), make_worker("gone:1", lease_seconds=-1)
    answer = send(admin_client, "quiet all")
    text = answer.content.decode()
    assert all(f"live:{number}" in text for number in range(3))
    assert "ended:1" not in text
    send(admin_client, "quiet all", confirmed="1")
    assert all(get_worker(worker_id).quiet_requested_at for worker_id in live)
    for worker_id in (stopping, ended, lapsed):
        assert get_worker(worker_id).quiet_requested_at is None
    assert LogEntry.objects.count() == 3


def test_forgetting_deletes_lost_workers_only(admin_client: Client) -> None:
    lost = [make_worker(f"lost:{number}", ended_at=NOW, lost=True) for number in range(3)]
    kept = {make_worker(), make_worker(ended_at=NOW), make_worker(lease_seconds=-1)}
    send(admin_client, f"forget {lost[0]}")
    assert Worker.objects.count() == 5
    for worker_id in kept:
        send(admin_client, f"forget {worker_id}")
    send(admin_client, "forget all", confirmed="1")
    assert set(Worker.objects.values_list("pk", flat=True)) == kept


@pytest.mark.parametrize(
    "order", ["", "stop", "stop x", "stop -1", "dance all", "stop 1 2", "stop " + "9" * 30, "\0"]
)
def test_a_wrong_order_is_refused_in_words(admin_client: Client, order: str) -> None:
    make_worker()
    answer = send(admin_client, order, confirmed="1")
    assert answer.status_code == 302
    assert "names no worker and nothing to do" in read(admin_client)
    assert not LogEntry.objects.exists()


def test_an_order_to_a_worker_that_is_gone_says_so(admin_client: Client) -> None:
    send(admin_client, "quiet 12345")
    assert "No worker is in a state for that any more." in read(admin_client)
    assert "No worker is in a state" in send(admin_client, "stop 12345").content.decode()


def test_who_may_only_look_sees_no_button_and_orders_nothing(client: Client) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_job", "view_worker", "control_queue"])
    )
    client.force_login(user)
    worker_id = make_worker()
    for text in (read(client), read(client, "admin:pgjobs_worker_change", worker_id)):
        assert 'name="do"' not in text
    for verb in ("quiet", "resume", "stop", "forget"):
        for target in (worker_id, "all"):
            assert send(client, f"{verb} {target}", confirmed="1").status_code == 403
    for name, args in (("changelist", []), ("add", []), ("change", [worker_id])):
        assert client.post(reverse(f"admin:pgjobs_worker_{name}", args=args), {}).status_code == 403
    row = get_worker(worker_id)
    assert (row.quiet_requested_at, row.stop_requested_at) == (None, None)


def test_who_may_control_workers_needs_no_more(client: Client) -> None:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_job", "control_worker"])
    )
    client.force_login(user)
    worker_id = make_worker()
    assert f'value="quiet {worker_id}"' in read(client)
    assert send(client, f"quiet {worker_id}").status_code == 302
    assert get_worker(worker_id).quiet_requested_at is not None


def test_ordering_takes_a_post(admin_client: Client) -> None:
    worker_id = make_worker()
    address = reverse("admin:pgjobs_worker_control")
    assert admin_client.get(address, {"do": f"quiet {worker_id}"}).status_code == 405


@pytest.mark.parametrize("key", ["0", "abc", "9" * 30, "a/b"])
def test_a_worker_that_does_not_exist_leads_back(admin_client: Client, key: str) -> None:
    response = admin_client.get(reverse("admin:pgjobs_worker_change", args=[key]))
    assert (response.status_code, response["Location"]) == (302, reverse(LIST))


def test_the_tasks_that_a_worker_knows_are_those_of_the_project(admin_client: Client) -> None:
    """As `runjobs` counts them when it starts; each worker knows ours, too."""
    paths = ["shop.tasks.send", *(f"{module}.run" for module in OWN_MODULES)]
    text = read(admin_client, "admin:pgjobs_worker_change", make_worker(task_paths=paths))
    assert "<summary>1 task</summary>" in text
    assert OWN_MODULES[0] not in text


def test_hostile_names_are_inert(admin_client: Client) -> None:
    worker_id = make_worker(
        HOSTILE, host=HOSTILE, version=HOSTILE, queues=[HOSTILE], task_paths=[HOSTILE, "x"]
    )
    make_running_job(worker_id, task_path=HOSTILE, queue_name=HOSTILE)
    texts = [read(admin_client), read(admin_client, "admin:pgjobs_worker_change", worker_id)]
    texts.append(send(admin_client, f"stop {worker_id}").content.decode())
    for text in texts:
        assert "<script>alert" not in text
        assert "<img src=x" not in text


@pytest.mark.slow
def test_the_page_is_bounded(admin_client: Client) -> None:
    for number in range(worker_pages.MAX_WORKERS + 10):
        make_worker(f"worker-with-a-name-of-some-length-{number}:12345", slots=10, queues=["mail"])
    for worker_id in Worker.objects.values_list("pk", flat=True)[:50]:
        for _ in range(4):
            make_running_job(worker_id, task_path="shop.integrations.tasks.synchronise_products")
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 12
    assert len(text.encode()) < 150_000
    assert "There are more" in text


def test_a_worker_over_http_is_marked_with_its_token(admin_client: Client) -> None:
    make_token("node-1")
    token = Token.objects.get()
    worker = make_worker("far", host="http", version="v1", token_id=token.pk)
    make_worker("near", host="web-1", version="0.3")
    page = read(admin_client)
    assert page.count("over HTTP") == 1
    assert reverse("admin:pgjobs_token_change", args=[token.pk]) in page
    assert "different versions" not in page
    alone = read(admin_client, "admin:pgjobs_worker_change", worker)
    assert "over HTTP" in alone and "node-1" in alone and "http:0" not in alone
    Token.objects.all().delete()
    assert "over HTTP" in read(admin_client, "admin:pgjobs_worker_change", worker)
