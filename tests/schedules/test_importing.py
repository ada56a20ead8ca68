"""Schedules of django-celery-beat and django-q2: what becomes of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError

from django_pgjobs import schedule
from django_pgjobs.models import Schedule
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.schedules.importing import (
    import_rows,
    row_of_celery_beat,
    row_of_django_q,
)
from tests.schedules import tasks
from tests.schedules.support import NOTE_TIME, declaring_anew

pytestmark = pytest.mark.django_db

REMIND = tasks.remind.module_path
# A Wednesday.
LATER = datetime(2030, 5, 15, 3, 30, tzinfo=UTC)


def crontab(*fields: str, zone: str = "Europe/Berlin") -> SimpleNamespace:
    """Return a row of CrontabSchedule."""
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    return SimpleNamespace(**dict(zip(names, fields, strict=True)), timezone=zone)


def beat(**columns: Any) -> SimpleNamespace:
    """Return a row of PeriodicTask."""
    nothing = dict.fromkeys(("crontab", "interval", "solar", "clocked", "start_time", "expires"))
    given = {"pk": 1, "name": "theirs", "task": NOTE_TIME, "args": "[]", "kwargs": "{}"}
    return SimpleNamespace(**nothing | given | {"one_off": False, "enabled": True} | columns)


def q2(**columns: Any) -> SimpleNamespace:
    """Return a row of django-q2's Schedule."""
    given: dict[str, Any] = {"pk": 1, "name": "theirs", "func": NOTE_TIME, "args": "", "kwargs": ""}
    given |= {"schedule_type": "D", "minutes": None, "cron": "", "repeats": -1, "next_run": LATER}
    return SimpleNamespace(**given | columns)


def interval(every: int, period: str) -> SimpleNamespace:
    """Return a row of IntervalSchedule."""
    return SimpleNamespace(every=every, period=period)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"crontab": crontab("30", "2", "*", "*", "1-5"), "args": '["x"]'},
            {"cron": "30 2 * * 1-5", "timezone": "Europe/Berlin", "args": ["x"]},
        ),
        ({"interval": interval(10, "seconds")}, {"every": 10.0, "max_runs": None}),
        ({"interval": interval(2, "days"), "start_time": LATER}, {"starts_at": LATER}),
        ({"interval": interval(1, "hours"), "expires": LATER}, {"ends_at": LATER}),
        ({"interval": interval(1, "hours"), "one_off": True}, {"max_runs": 1}),
        (
            {"clocked": SimpleNamespace(clocked_time=LATER), "one_off": True},
            {"starts_at": LATER, "ends_at": LATER + timedelta(seconds=1), "max_runs": 1},
        ),
    ],
)
def test_a_schedule_of_celery_beat(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    [found] = import_rows([beat(**theirs)], row_of_celery_beat)
    assert found.row is not None, found.said
    assert {name: getattr(found.row, name) for name in ours} == ours


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"solar": SimpleNamespace(event="sunset")}, "goes by the sun"),
        ({"crontab": crontab("0", "9", "1", "*", "1")}, "one is enough"),
        ({"crontab": crontab("0", "9", "*", "*", "x")}, "expected cron"),
        ({"interval": interval(5, "microseconds")}, "expected every"),
        ({"interval": interval(1, "days"), "args": "[1, 2, 3]"}, "note_time"),
        ({"interval": interval(1, "days"), "args": "{"}, "Expecting"),
        ({"interval": interval(1, "days"), "task": "celery.else"}, "no task celery"),
        ({"clocked": SimpleNamespace(clocked_time=datetime(2020, 1, 1, tzinfo=UTC))}, "is over"),
    ],
)
def test_what_celery_beat_has_and_we_have_not(theirs: dict[str, Any], said: str) -> None:
    [found] = import_rows([beat(**theirs)], row_of_celery_beat)
    assert found.row is None
    assert said in found.said


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"schedule_type": "I", "minutes": 5}, {"every": 300.0, "starts_at": LATER}),
        ({"schedule_type": "H"}, {"every": 3600.0}),
        ({"schedule_type": "D"}, {"cron": "15 9 * * *", "timezone": "Asia/Kathmandu"}),
        ({"schedule_type": "W"}, {"cron": "15 9 * * 3"}),
        ({"schedule_type": "BW"}, {"every": 14 * 86400.0}),
        ({"schedule_type": "M"}, {"cron": "15 9 15 1,2,3,4,5,6,7,8,9,10,11,12 *"}),
        ({"schedule_type": "Q"}, {"cron": "15 9 15 2,5,8,11 *"}),
        ({"schedule_type": "Y"}, {"cron": "15 9 15 5 *"}),
        ({"schedule_type": "C", "cron": "*/5 * * * *"}, {"cron": "*/5 * * * *"}),
        ({"schedule_type": "O"}, {"starts_at": LATER, "max_runs": 1}),
        ({"repeats": 3, "args": "'x'"}, {"max_runs": 3, "args": ["x"]}),
        (
            {"func": REMIND, "args": "'x', 'y'", "kwargs": ""},
            {"args": ["x", "y"], "kwargs": {}},
        ),
        ({"func": REMIND, "kwargs": "kind='x'"}, {"kwargs": {"kind": "x"}}),
        ({"func": REMIND, "kwargs": "{'kind': 'x'}"}, {"kwargs": {"kind": "x"}}),
    ],
)
def test_a_schedule_of_django_q2(
    theirs: dict[str, Any], ours: dict[str, Any], settings: Any
) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"
    [found] = import_rows([q2(**theirs)], row_of_django_q)
    assert found.row is not None, found.said
    assert {name: getattr(found.row, name) for name in ours} == ours


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"repeats": 0}, "has ended"),
        ({"schedule_type": "X"}, "'X' is not known"),
        ({"schedule_type": "M", "next_run": LATER + timedelta(days=15)}, "not in every month"),
        ({"func": "math.copysign"}, "no task math.copysign"),
        ({"args": "__import__('os')"}, "malformed"),
        ({"args": "1 2"}, "cannot be read"),
        ({"kwargs": "{1"}, "cannot be read"),
        ({"schedule_type": "I", "minutes": 10**18}, "too large"),
        ({"kwargs": "a=="}, "cannot be read"),
        ({"kwargs": "name=open('x')"}, "malformed"),
    ],
)
def test_what_django_q2_has_and_we_have_not(theirs: dict[str, Any], said: str) -> None:
    [found] = import_rows([q2(**theirs)], row_of_django_q)
    assert found.row is None
    assert said in found.said


class Theirs:
    """A model whose rows are given."""

    def __init__(self, *rows: Any) -> None:
        self._default_manager = SimpleNamespace(order_by=lambda name: rows)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """django-celery-beat is installed and has three rows."""
    rows = Theirs(
        beat(name="stock", interval=interval(10, "seconds")),
        beat(name="off", crontab=crontab("0", "3", "*", "*", "*"), enabled=False),
        beat(name="sun", solar=SimpleNamespace()),
    )
    get_model: Callable[..., Any] = apps.get_model
    monkeypatch.setattr(
        apps,
        "get_model",
        lambda *names: rows if names[0] == "django_celery_beat" else get_model(*names),
    )


def take(*flags: str) -> str:
    """Run the command, which cannot take all of them; return what it says."""
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 3 schedules could not be taken"):
        call_command("jobs", "schedules", "import", "celery-beat", *flags, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("installed")
def test_a_dry_run_makes_nothing() -> None:
    text = take("--dry-run")
    assert "stock: would be made: every 10 s" in text
    assert "off: would be made: 0 3 * * * Europe/Berlin, paused" in text
    assert "sun: not taken: it goes by the sun" in text
    assert not Schedule.objects.exists()


@pytest.mark.usefixtures("installed")
def test_what_is_taken_is_planned_and_taken_once() -> None:
    take()
    fire_due()
    stock = Schedule.objects.get(name="stock")
    assert (stock.error, stock.next_at is not None) == ("", True)
    assert Schedule.objects.exclude(paused_at=None).get().name == "off"
    assert take().count("left as it is: there is one of this name") == 2
    assert Schedule.objects.count() == 2


@pytest.mark.usefixtures("installed")
def test_a_name_of_the_code_is_not_taken() -> None:
    """What was imported first would be run instead of what the code says."""
    out = StringIO()
    with declaring_anew():
        schedule(tasks.remind, name="stock", cron="@daily", args=["x"])
        with pytest.raises(CommandError, match="2 of 3 schedules"):
            call_command("jobs", "schedules", "import", "celery-beat", stdout=out)
    assert "stock: not taken: the code declares a schedule of this name." in out.getvalue()
    assert not Schedule.objects.filter(name="stock").exists()


def test_it_tells_what_is_made_and_what_is_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What Celery adds for itself is no failure."""
    rows = Theirs(
        beat(
            interval=interval(2, "days"),
            start_time=LATER,
            expires=LATER + timedelta(days=9),
            one_off=True,
            queue="mail",
            priority=0,
            expire_seconds=60,
            routing_key="",
        ),
        beat(name="clean", task="celery.backend_cleanup", crontab=crontab("0", "4", "*", "*", "*")),
    )
    monkeypatch.setattr(apps, "get_model", lambda *names: rows)
    call_command("jobs", "schedules", "import", "celery-beat", "--dry-run")
    assert capsys.readouterr().out.splitlines() == [
        (
            "theirs: would be made: every 2 d, starts 2030-05-15 09:15:00+05:45, "
            "ends 2030-05-24 09:15:00+05:45, 1 run, without its queue 'mail', "
            "without its priority 0, without its expire_seconds 60"
        ),
        "clean: not needed here: workers delete old jobs by themselves",
    ]


def test_their_app_has_to_be_installed() -> None:
    with pytest.raises(CommandError, match="'django_q' in INSTALLED_APPS"):
        call_command("jobs", "schedules", "import", "django-q2")


@pytest.mark.parametrize(
    ("theirs", "row_of"),
    [
        (beat(interval=interval(1, "hours"), args="[" * 100_000), row_of_celery_beat),
        (q2(args="-" * 100_000 + "1"), row_of_django_q),
        (q2(kwargs="x=" + "-" * 100_000 + "1"), row_of_django_q),
        (q2(kwargs="*x"), row_of_django_q),
        (q2(kwargs="1, name='x'"), row_of_django_q),
        (q2(kwargs="**x"), row_of_django_q),
        (q2(args="(" * 100_000), row_of_django_q),
        (q2(next_run=None), row_of_django_q),
        (q2(repeats=None), row_of_django_q),
        (q2(kwargs="x=1).y(z=2"), row_of_django_q),
    ],
)
def test_one_of_theirs_that_nobody_can_read_stops_no_other(
    theirs: Any, row_of: Callable[[Any], dict[str, Any]]
) -> None:
    good = beat(interval=interval(1, "hours"))
    if row_of is row_of_django_q:
        good = q2()
    broken, whole = import_rows([theirs, good], row_of)
    assert broken.row is None
    assert len(broken.said) < 1_000
    assert whole.row is not None
