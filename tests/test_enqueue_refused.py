"""Bad input to an enqueue: refused before anything is sent, with words that help.

Each case says what was expected, what came and what to do; no statement reaches the server,
so the transaction of the caller goes on as if nothing had been asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from psycopg import sql

from django_pgjobs import checks, pause, requeue, reschedule, task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.models import Pause
from tests import tasks
from tests.factories import count_jobs, get_job, make_job
from tests.models import Effect
from tests.test_enqueue import renamed, take, take_context

pytestmark = pytest.mark.django_db

BACKEND = "django_pgjobs.backend.PgJobsBackend"
NAIVE = datetime(2031, 1, 1)  # noqa: DTZ001
FAR_EAST = timezone(timedelta(hours=14))
add, echo = tasks.add, tasks.echo


def in_program() -> None:
    """Stand in the program that was started."""


def in_child() -> None:
    """Stand in a process that it has started."""


in_program.__module__, in_child.__module__ = "__main__", "__mp_main__"
in_program, in_child = task(in_program), task(in_child)  # type: ignore[assignment]

Case = tuple[Callable[[], object], type[Exception], str]

SIGNATURE = r"tests\.test_enqueue\.take\(a: 'int', /, b: 'int' = 2, \*, c: 'int', d: 'int' = 4\)"
CALLS: dict[str, Case] = {
    "too few": (lambda: add.enqueue(1), TypeError, r"missing a required argument: 'b'"),
    "none": (add.enqueue, TypeError, r"missing a required argument: 'a'"),
    "too many": (lambda: add.enqueue(1, 2, 3), TypeError, "too many positional arguments"),
    "unknown": (lambda: add.enqueue(1, 2, z=3), TypeError, "unexpected keyword argument 'z'"),
    "only unknown": (
        lambda: add.enqueue(a=1, z=2),
        TypeError,
        r"tests\.tasks\.add.*: missing a required argument: 'b'\. It takes no 'z'\.$",
    ),
    "twice": (lambda: add.enqueue(1, a=1, b=2), TypeError, "multiple values for argument 'a'"),
    "positional by name": (lambda: take.enqueue(a=1, c=2), TypeError, SIGNATURE),
    "name by position": (lambda: take.enqueue(1, 2, 3, c=4), TypeError, SIGNATURE),
    "no keyword-only": (lambda: take.enqueue(1), TypeError, "'c'"),
    "context given": (lambda: take_context.enqueue(context=1), TypeError, "values .* 'context'"),
    "context's place": (lambda: take_context.enqueue(1, 2), TypeError, "too many positional"),
}
VALUES: dict[str, Case] = {
    "type": (lambda: echo.enqueue({"a": [object()]}), TypeError, r"at args\[0\]\['a'\]\[0\]"),
    "task": (lambda: echo.enqueue(add), TypeError, r"Unsupported type: .*Task.* at args\[0\]"),
    "model": (lambda: echo.enqueue(x=Effect()), TypeError, r"at kwargs\['x'\].*Pass a key"),
    "nan": (lambda: echo.enqueue(x=[float("nan")]), ValueError, r"at kwargs\['x'\]\[0\], got nan"),
    "infinity": (lambda: echo.enqueue(float("-inf")), ValueError, r"args\[0\], got -inf"),
    "nul": (lambda: echo.enqueue(1, "a\0"), ValueError, r"NUL characters at args\[1\]"),
    "nul in key": (lambda: echo.enqueue({"\0": 1}), ValueError, r"NUL .* at args\[0\] key"),
    "nul in name": (lambda: echo.enqueue(**{"\0": 1}), ValueError, r"NUL .* at kwargs key"),
    "surrogate": (lambda: echo.enqueue(k="\udcff"), ValueError, r"surrogates at kwargs\['k'\]"),
    "depth": (lambda: echo.enqueue(deep(101)), ValueError, "expected at most 100 levels"),
    "size": (lambda: echo.enqueue("x" * 262_144), ValueError, "at most 262144 bytes as JSON, got"),
    "size by name": (lambda: echo.enqueue(x="ä" * 50_000), ValueError, "expected kwargs to take"),
    "metadata": (
        lambda: add.using(metadata={"m": "x" * 300_000}).enqueue(1, 2),
        ValueError,
        "expected metadata to take at most 262144 bytes",
    ),
}
OPTIONS: dict[str, Case] = {
    "naive": (
        lambda: add.using(run_after=NAIVE).enqueue(1, 2),
        InvalidTask,
        r"run_after must be an aware datetime\.",
    ),
    "negative": (
        lambda: add.using(run_after=timedelta(seconds=-1)).enqueue(1, 2),
        InvalidTask,
        r"expected run_after to be 0 seconds or more, and finite, got -1\.",
    ),
    "expired": (
        lambda: add.using(expires=timedelta(seconds=-5)).enqueue(1, 2),
        InvalidTask,
        r"expected expires to be a datetime or a timedelta of more than 0, got -5 s\.",
    ),
    "too long": (
        lambda: add.using(run_after=timedelta.max).enqueue(1, 2),
        InvalidTask,
        "expected run_after within 1000 years from now, got",
    ),
    "too late": (
        lambda: add.using(run_after=datetime.max.replace(tzinfo=UTC)).enqueue(1, 2),
        InvalidTask,
        r"expected run_after from 0001-01-02 00:00\+00:00 to 9999-12-30 00:00\+00:00, got",
    ),
    "too early": (
        lambda: add.using(run_after=datetime.min.replace(tzinfo=FAR_EAST)).enqueue(1, 2),
        InvalidTask,
        r"expected run_after from 0001-01-02 00:00\+00:00 to 9999-12-30 00:00\+00:00, got",
    ),
    "priority": (
        lambda: add.using(priority=101).enqueue(1, 2),
        InvalidTask,
        r"priority must be a whole number between -100 and 100\.",
    ),
    "half a priority": (
        lambda: add.using(priority=0.5).enqueue(1, 2),  # type: ignore[arg-type]
        InvalidTask,
        "priority must be a whole number",
    ),
    "empty queue": (
        lambda: add.using(queue_name="").enqueue(1, 2),
        InvalidTask,
        "expected queue_name to be text of 1 to 128 bytes without NUL, got ''",
    ),
    "long queue": (
        lambda: add.using(queue_name="ä" * 65).enqueue(1, 2),
        InvalidTask,
        "expected queue_name to be text of 1 to 128 bytes",
    ),
    "queue's type": (
        lambda: add.using(queue_name=5).enqueue(1, 2),  # type: ignore[arg-type]
        InvalidTask,
        "expected queue_name to be text .* got 5",
    ),
    "nul in queue": (
        lambda: add.using(queue_name="a\0").enqueue(1, 2),
        InvalidTask,
        r"without NUL, got 'a\\x00'",
    ),
    "surrogate in queue": (
        lambda: add.using(queue_name="\ud800").enqueue(1, 2),
        InvalidTask,
        "expected queue_name",
    ),
    "rate limits": (
        lambda: add.using(rate_limit=[f"api-{place}" for place in range(200)]).enqueue(1, 2),
        ValueError,
        (
            "expected the rate limits of a job to take at most 1024 bytes in all, one a line, got "
            r"200 of \d+ bytes\. Use fewer"
        ),
    ),
    "long rate limits": (
        lambda: add.using(rate_limit=["a" * 500, "b" * 500, "c" * 23]).enqueue(1, 2),
        ValueError,
        "got 3 of 1025 bytes",
    ),
    "rate limits of a unique job": (
        lambda: add.using(unique_key="k", rate_limit=["ä" * 256, "b" * 512]).enqueue(1, 2),
        ValueError,
        "got 2 of 1025 bytes",
    ),
    "no priority": (
        lambda: add.using(priority=Decimal("nan")).enqueue(1, 2),  # type: ignore[arg-type]
        InvalidTask,
        "expected priority to be a whole number",
    ),
    "program": (
        lambda: in_program.enqueue(),
        InvalidTask,
        (
            r"expected __main__\.in_program to be in a module that workers import, got one in the "
            r"program that was started\. Move it to the tasks\.py of an app"
        ),
    ),
    "child of a program": (
        lambda: in_child.enqueue_from(Effect.objects.all()),
        InvalidTask,
        r"expected __mp_main__\.in_child to be in a module that workers import",
    ),
    "long correlation_id": (
        lambda: add.using(correlation_id="ä" * 128 + "x").enqueue(1, 2),
        InvalidTask,
        r"expected correlation_id to be text of at most 256 bytes without NUL, got 'ä+\.\.\.\.",
    ),
    "many tags": (
        lambda: add.using(tags=map(str, range(65))).enqueue(1, 2),
        InvalidTask,
        r"expected at most 64 tags, got 65\. Larger data goes into metadata\.",
    ),
    "long tag": (
        lambda: add.using(tags=["a", "ä" * 129]).enqueue(1, 2),
        InvalidTask,
        r"expected tags to be a list of strings of 1 to 256 bytes without NUL, got 'ä+\.\.\.\.",
    ),
    "empty tag": (
        lambda: add.using(tags=["a", ""]).enqueue(1, 2),
        InvalidTask,
        r"expected tags to be a list of strings of 1 to 256 bytes without NUL, got ''\.",
    ),
    "tags": (lambda: add.using(tags=["\0"]).enqueue(1, 2), InvalidTask, "expected tags"),
    "other name": (renamed.enqueue, InvalidTask, "expected tests.test_enqueue._renamed to be a"),
}
MANY: dict[str, Case] = {
    "second item": (
        lambda: add.enqueue_many([(1, 2), (1,)]),
        TypeError,
        r"item 1 of enqueue_many\(\): tests\.tasks\.add.* missing a required argument: 'b'",
    ),
    "value of an item": (
        lambda: echo.enqueue_many([{"x": 1}, {"x": [float("inf")]}]),
        ValueError,
        r"item 1 of enqueue_many\(\): expected a finite number at kwargs\['x'\]\[0\]",
    ),
    "text as item": (
        lambda: add.enqueue_many(["ab"]),  # type: ignore[list-item]
        TypeError,
        "item 0 .* expected a dict of keyword arguments or a tuple of positional ones, got 'ab'",
    ),
    "number as item": (lambda: echo.enqueue_many([5]), TypeError, "got 5"),  # type: ignore[list-item]
    "rate limits of an item": (
        lambda: add.using(rate_limit=["a" * 400, "{b}", "c" * 400]).enqueue_many(
            [(1, 2), (1, "x" * 400)]
        ),
        ValueError,
        r"item 1 of enqueue_many\(\): expected the rate limits of a job to take at most 1024 bytes",
    ),
    "names of items": (lambda: echo.enqueue_many([{1: 2}]), TypeError, "item 0 .*string"),
}
FROM: dict[str, Case] = {
    "unknown argument": (
        lambda: add.enqueue_from(Effect.objects.all(), z=F("pk")),
        TypeError,
        "tests.tasks.add",
    ),
    "missing argument": (
        lambda: add.enqueue_from(Effect.objects.all(), a=F("pk")),
        TypeError,
        "missing a required argument: 'b'",
    ),
    "constant": (
        lambda: add.enqueue_from(Effect.objects.all(), a=F("pk"), b=["a\0"]),
        ValueError,
        r"NUL characters at b\[0\]",
    ),
    "name of an argument": (
        lambda: echo.enqueue_from(Effect.objects.all(), **{"a\0": F("pk")}),
        ValueError,
        r"NUL characters at the names of arguments\[0\]",
    ),
    "surrogate in a name": (
        lambda: echo.enqueue_from(Effect.objects.all(), **{"\udc80": 1}),
        ValueError,
        r"surrogates at the names of arguments\[0\]",
    ),
    "type of a constant": (
        lambda: add.enqueue_from(Effect.objects.all(), a=F("pk"), b=object()),
        TypeError,
        "Unsupported type: .* at b",
    ),
}
CASES = CALLS | VALUES | OPTIONS | MANY | FROM


def deep(levels: int) -> list[Any]:
    """Return that many lists in each other."""
    return [deep(levels - 1)] if levels > 1 else []


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_without_a_statement_and_the_transaction_goes_on(name: str) -> None:
    """S1.16, S5.8, S5.17."""
    call, error, said = CASES[name]
    Effect.objects.create(key="before")
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries:
            with pytest.raises(error, match=said) as caught:
                call()
        assert len(str(caught.value)) < 1_000
        sent = [query["sql"].split()[0] for query in queries]
        # enqueue_many() opens its block before it knows that an item is wrong.
        assert sent == (["SAVEPOINT", "ROLLBACK", "RELEASE"] if name in MANY else [])
        good = add.enqueue(1, 2)
    assert add.get_result(good.id) == good
    assert (Effect.objects.count(), count_jobs()) == (1, 1)


OFFSETS = [timedelta(hours=23, minutes=59), timedelta(hours=-16), timedelta(microseconds=1)]


@pytest.mark.parametrize("offset", OFFSETS, ids=str)
def test_every_offset_of_a_time_zone_is_the_instant_that_it_means(offset: timedelta) -> None:
    """The server refuses 16 hours and more, and that ended the caller's transaction."""
    later = datetime(2031, 1, 1, 12, tzinfo=timezone(offset))
    done, waiting = make_job(status="failed", finished_at=sql.SQL("now()")), make_job()
    enqueued = add.using(run_after=later)
    ids = [enqueued.enqueue(1, 2).id, *enqueued.enqueue_many([(1, 2)]), done, waiting]
    assert enqueued.enqueue_from(Effect.objects.all(), a=1, b=2) == 0
    assert requeue(done, run_after=later)
    assert reschedule(waiting, later)
    assert [get_job(job_id).run_after for job_id in ids] == [later] * 4
    assert pause(queue="q", until=later)
    assert [row.resume_at for row in Pause.objects.all()] == [later]


def test_an_alias_that_no_column_takes_is_refused() -> None:
    for alias in ("", "x" * 129, "a\0", "\ud800"):
        with override_settings(
            TASKS={"default": {"BACKEND": BACKEND}, alias: {"BACKEND": BACKEND}}
        ):
            with pytest.raises(InvalidTask, match="expected the alias in TASKS to be text of 1 to"):
                add.using(backend=alias)
            [message] = checks.check_settings()
            assert "expected an alias of 1 to 128 bytes without NUL in TASKS" in message.msg


def test_rate_limits_of_rows_that_are_too_long_together_are_named() -> None:
    Effect.objects.create(key="x" * 400)
    limited = add.using(rate_limit=["a" * 400, "{b}", "c" * 400])
    with transaction.atomic():
        with pytest.raises(ValueError, match=r"rate_limit of 1 to 512 bytes.* 1024 bytes in all"):
            limited.enqueue_from(Effect.objects.all(), a=1, b=F("key"))
        add.enqueue(1, 2)


@pytest.mark.parametrize("name", ["too few", "type", "nul", "size"])
def test_an_async_enqueue_refuses_the_same(name: str) -> None:
    def call(task: Any, *args: Any, **kwargs: Any) -> None:
        async_to_sync(task.aenqueue)(*args, **kwargs)

    calls: dict[str, Callable[[], None]] = {
        "too few": lambda: call(add, 1),
        "type": lambda: call(echo, {"a": [object()]}),
        "nul": lambda: call(echo, 1, "a\0"),
        "size": lambda: call(echo, "x" * 262_144),
    }
    _, error, said = CASES[name]
    with pytest.raises(error, match=said):
        calls[name]()
    assert count_jobs() == 0


def test_a_queue_that_is_not_listed_is_refused_when_named_and_when_enqueued() -> None:
    """The task may have been made under other settings."""
    made = add.using(queue_name="mail")
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}):
        with CaptureQueriesContext(connection) as queries:
            for refused in (
                lambda: add.using(queue_name="mail"),
                lambda: made.enqueue(1, 2),
                lambda: made.enqueue_many([(1, 2)]),
                lambda: made.enqueue_from(Effect.objects.all(), a=1, b=2),
                lambda: async_to_sync(made.aenqueue)(1, 2),
            ):
                with pytest.raises(InvalidTask, match="Queue 'mail' is not valid for backend"):
                    refused()
        assert not queries
        add.enqueue(1, 2)


def test_the_longest_labels_are_stored() -> None:
    labels = {"correlation_id": "ä" * 128, "tags": [f"{place:<256}" for place in range(64)]}
    job = get_job(add.using(**labels).enqueue(1, 2).id)
    assert {name: getattr(job, name) for name in labels} == labels


def test_the_limit_of_a_payload_is_a_setting() -> None:
    """S4.3."""
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 10}):
        echo.enqueue("123456")
        with pytest.raises(ValueError, match="at most 10 bytes as JSON, got 11"):
            echo.enqueue("1234567")


def test_the_largest_limit_fits_what_the_server_takes() -> None:
    """The domain's CHECK and the setting's upper bound are the same number."""
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 1_048_576}):
        for text in ("x", '"', "ä"):
            count = (1_048_576 - 4) // (len(json.dumps(text)) - 2)
            result = echo.enqueue(text * count)
            assert echo.get_result(result.id).args == [text * count]


def test_an_unknown_alias_of_a_backend_is_named() -> None:
    with pytest.raises(Exception, match="The connection 'nowhere' doesn't exist"):
        add.using(backend="nowhere")
