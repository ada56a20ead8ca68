"""`manage.py demo`: its parts, and the whole with small numbers and real workers."""

from __future__ import annotations

import argparse
import io
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction

from django_pgjobs import Discard, Retry
from django_pgjobs.models import Job
from example_project.shop import payments, signup
from example_project.shop.demo import feed
from example_project.shop.demo.checks import Check, check_payments, check_sign_ups
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.plan import Plan, make_plan
from example_project.shop.demo.progress import Progress
from example_project.shop.models import Order, WelcomeMail
from tests import helpers
from tests.helpers import ROOT, wait_until

SECONDS = 90  # for a whole demo on a machine that has other things to do
FEW = ("--products=40", "--edits=40", "--employees=300")


class Terminal(io.StringIO):
    """A terminal that keeps what was written to it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


# --- The parts


@pytest.mark.parametrize(("customers", "webhooks"), [(20, 20), (61, 47), (3000, 3000)])
def test_a_plan_adds_up(customers: int, webhooks: int) -> None:
    plan = make_plan("run", customers=customers, webhooks=webhooks)
    assert len(plan.committed) + len(plan.rolled_back) == customers
    assert plan.rolled_back
    assert plan.webhooks == webhooks
    events = sum(len(order.events) for order in plan.early + plan.orders)
    assert events + plan.duplicates + plan.malformed == webhooks
    assert min(len(plan.early), plan.duplicates, plan.malformed) > 0
    assert any(address.endswith("@slow.example") for address in plan.committed)


def test_progress_is_one_line_redrawn_on_a_terminal() -> None:
    out = Terminal()
    progress = Progress(out, "work", 10)
    progress.show(5, "half")
    progress.say("a message")
    progress.finish(10)
    text = out.getvalue()
    assert text.count("\r\033[K") == 3
    assert "\r\033[Ka message\n" in text
    assert "5 of 10" in text
    assert "half" in text


def test_progress_is_a_line_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 1, 2, 4, 4, 4, 5, 9, 9])
    monkeypatch.setattr("example_project.shop.demo.progress.monotonic", lambda: next(clock))
    out = io.StringIO()
    progress = Progress(out, "work", 10)
    for done in (1, 2, 3, 4):
        progress.show(done)
    progress.finish(10)
    lines = out.getvalue().splitlines()
    assert [line.split(" of ")[0].split()[-1] for line in lines] == ["3", "10"]
    assert "\033" not in out.getvalue()


def test_progress_does_without_blocks_where_they_cannot_be_written() -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    out = Ascii()
    Progress(out, "work", 2).finish(1)
    assert "##############--------------" in out.getvalue()


@pytest.fixture
def done(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Plan, feed.Sent]:
    """A plan, sent and worked off without a worker."""
    settings.ROOT_URLCONF = "example_project.urls"
    settings.SHOP_WEBHOOK_SECRET = "whsec_test"
    settings.ALLOWED_HOSTS = ["localhost"]
    monkeypatch.setattr(signup.EmailMessage, "send", lambda message: 1)
    run = secrets.token_hex(3)
    plan = make_plan(run, customers=30, webhooks=40)
    feed.create_products()
    sent = feed.feed(plan, Progress(io.StringIO(), "", 1))
    feed.place_orders(plan.early, sent.customers)
    for module in (payments, signup):
        monkeypatch.setattr(module, "current_job", lambda: SimpleNamespace(id=1, attempt=1))
    tasks = {
        task.module_path: task for task in (signup.send_welcome_mail, payments.apply_payment_event)
    }
    for job in Job.objects.order_by("pk"):
        try:
            with transaction.atomic():
                tasks[job.task_path].func(**job.kwargs)
        except (Discard, Retry):
            pass
    return run, plan, sent


def failed(checks: list[Check]) -> list[str]:
    return [check.text for check in checks if not check.passed]


@pytest.mark.slow
def test_the_checks_pass_when_everything_happened_once(
    done: tuple[str, Plan, feed.Sent],
) -> None:
    run, plan, sent = done
    assert failed(check_sign_ups(run, plan, sent) + check_payments(plan)) == []


@pytest.mark.slow
def test_a_second_welcome_mail_is_noticed(done: tuple[str, Plan, feed.Sent]) -> None:
    run, plan, sent = done
    mail = WelcomeMail.objects.latest("pk")
    WelcomeMail.objects.create(customer=mail.customer, recipient=mail.recipient)
    assert failed(check_sign_ups(run, plan, sent)) == [
        "customers with exactly one welcome mail",
        "welcome mails in all",
    ]


@pytest.mark.slow
def test_a_job_of_a_rolled_back_sign_up_is_noticed(done: tuple[str, Plan, feed.Sent]) -> None:
    run, plan, sent = done
    sent.rolled_back_jobs.append(sent.jobs[0])
    assert failed(check_sign_ups(run, plan, sent)) == ["jobs left by rolled-back sign-ups"]


@pytest.mark.slow
def test_an_order_changed_twice_is_noticed(done: tuple[str, Plan, feed.Sent]) -> None:
    _, plan, _ = done
    order = Order.objects.get(reference=plan.orders[0].reference)
    order.revision += 1
    order.save()
    assert failed(check_payments(plan)) == [
        "changes to orders, one for each event",
        "orders with the right status and amounts",
    ]


@pytest.mark.slow
def test_a_webhook_that_is_refused_ends_the_demo(
    done: tuple[str, Plan, feed.Sent], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "sign", lambda *args: "")
    with pytest.raises(DemoError, match="got 403"):
        feed.feed(make_plan("again", customers=20, webhooks=20), Progress(io.StringIO(), "", 1))


# --- The whole

StartDemo = Callable[..., "subprocess.Popen[str]"]
DEMO = ROOT / "example_project" / "manage.py"
HEED_SIGINT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def start_demo(
    django_db_setup: None, django_db_blocker: Any, tmp_path: Path
) -> Iterator[StartDemo]:
    """Start `manage.py demo *options` on a fresh database of the test server."""
    name = f"test_demo_{os.getpid()}_{secrets.token_hex(3)}"
    processes: list[subprocess.Popen[str]] = []
    with django_db_blocker.unblock(), helpers.connect() as server:
        server.execute(f"CREATE DATABASE {name}")

        def start(*options: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                # Tests that were started in the background of a shell may ignore SIGINT.
                [sys.executable, "-c", HEED_SIGINT, str(DEMO), "demo", *options],
                env=os.environ
                | {
                    "DATABASE_URL": helpers.database_url(NAME=name),
                    "DJANGO_SETTINGS_MODULE": "example_project.settings",
                    "PYTHONIOENCODING": "utf-8",
                    "PYTHONUNBUFFERED": "1",
                    "TMPDIR": str(tmp_path),  # for the workers' log
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            processes.append(process)
            return process

        yield start
        for process in processes:
            if process.poll() is None:
                process.terminate()  # not kill: it has workers to stop
            process.communicate(timeout=20)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.process
@pytest.mark.slow
def test_the_demo_passes_and_can_be_repeated(start_demo: StartDemo) -> None:
    process = start_demo("--customers=60", "--webhooks=60", *FEW)
    text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, text
    assert "All is well" in text
    assert "kill -9" in text
    assert re.search(r"✓ jobs of the killed worker rescued +[1-9]", text)
    assert re.search(r"✓ jobs of the killed payroll worker rescued +[1-9]", text)
    assert "✕ " not in text.split("jobs enqueued")[1]
    assert "password admin (created)" in text
    assert "\033" not in text

    process = start_demo("--customers=40", "--webhooks=40", "--no-kill", *FEW)
    text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, text
    assert "kill -9" not in text
    assert "password admin (was there)" in text


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_leaves_no_worker(start_demo: StartDemo, number: int) -> None:
    process = start_demo("--customers=200", "--webhooks=20", "--no-kill", *FEW)
    assert process.stdout
    text = ""
    while not (found := re.search(r"Workers (\d+) and (\d+), logs in (\S+)", text)):
        line = process.stdout.readline()
        assert line, text
        text += line
    pids = [int(found[1]), int(found[2])]
    logs = [Path(found[3], f"worker-{number}.log") for number in (1, 2)]
    for log in logs:
        wait_until(lambda log=log: helpers.READY.search(log.read_text()), message=log.read_text)
    assert all(map(is_running, pids))
    process.send_signal(number)
    rest, _ = process.communicate(timeout=20)
    assert process.returncode == 130, text + rest
    assert "Traceback" not in rest
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("value", ["3", "many", "1000000"])
def test_a_senseless_number_is_refused(value: str) -> None:
    from example_project.shop.management.commands.demo import amount

    with pytest.raises(argparse.ArgumentTypeError, match="from 20 to 100000") as error:
        amount(value)
    assert repr(value) in str(error.value)
