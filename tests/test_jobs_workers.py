"""`manage.py jobs workers`: who is there, what they hold, and orders to them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg import sql

from django_pgjobs.control import workers
from django_pgjobs.models import Token, Worker
from django_pgjobs.queries import worker_pages
from django_pgjobs.queries.notifications import CONTROL_CHANNEL
from tests.factories import ago, get_worker, make_running_job, make_token, make_worker
from tests.test_jobs_looks import rows_of

pytestmark = pytest.mark.django_db

NOW = sql.SQL("now()")


def test_workers_are_listed_with_their_states_and_what_they_hold(run: Any) -> None:
    busy = make_worker("web-1:44", host="web-1", pid=44, slots=8, queues=["mail", "fax"])
    jobs = sorted(make_running_job(busy).id for _ in range(2))
    make_worker("night", quiet_requested_at=NOW, excluded_queues=["fax"])
    make_worker("dead:9", lost=True, ended_at=NOW, heartbeat_at=ago(7_200))
    printed = run("workers")
    rows = {row[1]: [*row[:1], *row[2:]] for row in rows_of(printed)}
    assert rows["web-1:44"][1:2] + rows["web-1:44"][3:] == ["running", "8", "2", "0", "mail, fax"]
    assert rows["night (test:1)"][1] == "quiet"
    assert rows["night (test:1)"][-1] == "all but fax"
    assert rows["dead:9 (test:1)"][1:3] == ["lost", "2 h"]
    found = {row["name"]: row for row in json.loads(run("workers", "--json"))}
    assert sorted(job["id"] for job in found["web-1:44"]["jobs"]) == jobs
    assert (found["web-1:44"]["host"], found["web-1:44"]["held"]) == ("web-1", 2)


def test_null_among_the_queues_of_a_row_is_shown(run: Any) -> None:
    """By hand anything may be written."""
    make_worker("odd", queues=["mail", None], excluded_queues=["fax", None])
    assert rows_of(run("workers"))[0][-1] == "mail, None but fax, None"


def test_a_late_heartbeat_says_so(run: Any) -> None:
    make_worker(lease_seconds=30, heartbeat_at=ago(30))
    assert rows_of(run("workers"))[0][3].endswith(" s late")


def test_a_worker_over_http_has_no_process_here(run: Any) -> None:
    make_token()
    make_worker("node-1", token_id=Token.objects.get().pk)
    assert rows_of(run("workers"))[0][1] == "node-1 (over HTTP)"
    [row] = json.loads(run("workers", "--json"))
    assert (row["host"], row["pid"], row["is_over_http"]) == (None, None, True)
    # "heartbeat_seconds" is what a worker over HTTP is told at its registration.
    assert 0 <= row["silent_seconds"] < 60
    assert "heartbeat_seconds" not in row


def test_workers_warns_of_none_and_of_different_versions(run: Any) -> None:
    make_worker("a", ended_at=NOW)
    warning = "WARNING no worker is live: nothing runs. Start one: manage.py runjobs."
    assert run("workers").splitlines()[-1] == warning
    make_worker("b", version="1.0")
    make_worker("c", version="1.1")
    said = run("workers").splitlines()[-1]
    assert said == "WARNING live workers are of different versions."


def test_the_version_of_a_client_over_http_is_not_compared(run: Any) -> None:
    make_worker("a", version="1.0")
    make_token()
    make_worker("node-1", version="7", token_id=Token.objects.get().pk)
    assert "WARNING" not in run("workers")


def test_workers_says_what_it_does_not_count(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_COUNTED", 2)
    monkeypatch.setattr(worker_pages, "MAX_WORKERS", 2)
    busy = make_worker("busy")
    for _ in range(4):
        make_running_job(busy)
    assert rows_of(run("workers"))[0][5] == "2+"
    make_worker("idle")
    assert "there are more" not in run("workers")
    make_worker("night")
    assert run("workers").splitlines()[-1] == "there are more workers; the first 2 are shown."


@pytest.mark.parametrize(
    ("verb", "column", "done"),
    [
        ("quiet", "quiet_requested_at", "asked to claim no new jobs"),
        ("stop", "stop_requested_at", "asked to stop"),
    ],
)
def test_workers_are_asked_by_their_ids(run: Any, verb: str, column: str, done: str) -> None:
    chosen, other = make_worker(), make_worker()
    assert run("workers", verb, chosen) == f"worker {chosen}: {done}\n"
    assert getattr(get_worker(chosen), column) is not None
    assert getattr(get_worker(other), column) is None


def test_a_quiet_worker_is_asked_to_take_jobs_again(run: Any) -> None:
    worker = make_worker(quiet_requested_at=NOW)
    assert run("workers", "resume", worker) == f"worker {worker}: asked to take jobs again\n"
    assert get_worker(worker).quiet_requested_at is None


def test_all_live_workers_are_asked_at_once(run: Any) -> None:
    first, second = make_worker("a"), make_worker("b")
    ended = make_worker(ended_at=NOW)
    assert run("workers", "stop", "all").splitlines() == [
        f"worker {first} (a): asked to stop",
        f"worker {second} (b): asked to stop",
    ]
    assert get_worker(ended).stop_requested_at is None
    assert run("workers", "stop", "all") == "no live worker is in a state for that.\n"


def test_a_worker_that_was_not_asked_ends_with_1_and_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, live = make_worker(ended_at=NOW), make_worker()
    with pytest.raises(CommandError, match="2 of 3 workers were not asked to stop") as caught:
        call_command("jobs", "workers", "stop", str(ended), "4711", str(live))
    assert caught.value.returncode == 1
    assert f"worker {ended}: is not live, or was asked before" in capsys.readouterr().out
    assert get_worker(live).stop_requested_at is not None


@pytest.mark.django_db(transaction=True)
def test_workers_that_are_asked_are_notified() -> None:
    worker = make_worker()
    with connection.cursor() as cursor:
        cursor.execute(f"LISTEN {CONTROL_CHANNEL}")
    call_command("jobs", "workers", "quiet", str(worker))
    assert list(connection.connection.notifies(timeout=5, stop_after=1))


@pytest.mark.parametrize(
    "words",
    [
        ["quiet"],
        ["stop", "web-1:44"],
        ["stop", "0"],
        ["stop", ""],
        ["stop", "a\0b"],
        ["stop", "a\nb"],
        ["stop", "x" * 201],
        ["kill", "1"],
    ],
)
def test_an_order_needs_workers_or_all(words: list[str]) -> None:
    make_worker()
    with pytest.raises(CommandError):
        call_command("jobs", "workers", *words)
    assert not Worker.objects.exclude(stop_requested_at=None).exists()


def test_a_name_will_do_if_one_live_worker_has_it(run: Any) -> None:
    make_worker("web-1:44", ended_at=NOW)
    worker, other = make_worker("web-1:44"), make_worker("web-2")
    assert run("workers", "stop", "web-1:44") == f"worker {worker} (web-1:44): asked to stop\n"
    assert get_worker(worker).stop_requested_at is not None
    assert get_worker(other).stop_requested_at is None


def test_a_name_that_no_worker_or_several_have_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_worker("gone", ended_at=NOW)
    first, second = make_worker("twin"), make_worker("twin")
    with pytest.raises(CommandError, match=r"^2 of 2 workers were not asked to stop\.$"):
        call_command("jobs", "workers", "stop", "twin", "gone")
    assert capsys.readouterr().out.splitlines() == [
        f"worker twin: 2 live workers have this name, give an id: {first}, {second}",
        "worker gone: no live worker has this name",
    ]
    assert get_worker(first).stop_requested_at is None


def test_a_name_of_digits_is_an_id(run: Any) -> None:
    worker = make_worker("a")
    make_worker(str(worker))
    assert run("workers", "quiet", worker) == f"worker {worker}: asked to claim no new jobs\n"
    assert get_worker(worker).quiet_requested_at is not None


def test_lost_workers_are_forgotten_by_id_and_name_and_all_together(run: Any) -> None:
    gone = {"ended_at": NOW, "lost": True}
    first, live, ended = make_worker("a", **gone), make_worker("b"), make_worker("c", ended_at=NOW)
    second, third, fourth = (make_worker(name, **gone) for name in ("b", "twin", "twin"))
    assert run("workers", "forget", first) == f"worker {first}: forgotten\n"
    assert run("workers", "forget", "b") == f"worker {second} (b): forgotten\n"
    assert run("workers", "forget", "all").splitlines() == [
        f"worker {third} (twin): forgotten",
        f"worker {fourth} (twin): forgotten",
    ]
    assert run("workers", "forget", "all") == "no lost worker is in a state for that.\n"
    assert set(Worker.objects.values_list("pk", flat=True)) == {live, ended}


def test_only_lost_workers_are_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    live, ended = make_worker("a"), make_worker("b", ended_at=NOW)
    twins = [make_worker("twin", ended_at=NOW, lost=True) for _ in range(2)]
    with pytest.raises(CommandError, match=r"^4 of 4 workers were not forgotten\.$"):
        call_command("jobs", "workers", "forget", str(live), str(ended), "a", "twin")
    assert capsys.readouterr().out.splitlines() == [
        f"worker {live}: is not lost, or is gone",
        f"worker {ended}: is not lost, or is gone",
        "worker a: no lost worker has this name",
        f"worker twin: 2 lost workers have this name, give an id: {twins[0]}, {twins[1]}",
    ]
    assert Worker.objects.count() == 4
