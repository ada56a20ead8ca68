"""Keys: templates and functions, in Python for one job and in the database for a QuerySet."""

from __future__ import annotations

import re
import uuid
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import (
    BooleanField,
    CharField,
    Count,
    DecimalField,
    ExpressionWrapper,
    F,
    FloatField,
    Q,
    TextField,
    UUIDField,
    Value,
)
from django.db.models.functions import Cast, Concat, Now, Substr
from django.test.utils import CaptureQueriesContext

from django_pgjobs import Task, task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.keys import parse_template, render_key
from django_pgjobs.declaring.redaction import MASK
from django_pgjobs.exceptions import DuplicateJob
from django_pgjobs.models import Job
from django_pgjobs.values.bounds import MAX_KEY_BYTES
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.models import Effect

pytestmark = pytest.mark.django_db


@task(
    concurrency_key="shop:{shop}", concurrency_limit=3, ordering="skip", rate_cost=2,
    rate_limit=["z:{shop}", "a", "z:{shop}"],
)  # fmt: skip
def send(shop: Any, product: Any = 7) -> None:
    """Has every kind of key that the claim reads."""


@task(concurrency_limit=2)
def limited(value: Any = None) -> None:
    """Has a limit, but no key of its own."""


@task(unique_key="{task}:{shop}-{product}", rate_limit="r:{product}")
def send_once(shop: Any, product: Any = 7) -> None:
    """Has a default in its key."""


def keys(job: Any) -> tuple[str | None, str | None, str | None]:
    """Return the three columns."""
    return job.concurrency_key, job.rate_limit_keys, job.unique_key


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("shop:{shop}", (("shop:", "shop"),)),
        ("{a}{b}", (("", "a"), ("", "b"))),
        ("plain", (("plain", None),)),
        ("{{x}}{a}%s", (("{", None), ("x}", None), ("", "a"), ("%s", None))),
        ("ä {a} ö", (("ä ", "a"), (" ö", None))),
    ],
)
def test_a_template_is_text_and_names(template: str, parts: Any) -> None:
    assert parse_template(template) == parts


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>3}", "{a b}", "{{a}"]
)
def test_what_is_no_template_is_refused_where_it_is_declared(template: str) -> None:
    with pytest.raises(ValueError, match="is no key template"):
        parse_template(template)
    for option in ("concurrency_key", "unique_key", "rate_limit"):
        with pytest.raises(InvalidTask, match=rf"{option}: .*is no key template"):
            task(**{option: template})(limited.func)


@pytest.mark.parametrize("key", ["", 5, "a\nb", "a\0", "\ud800", b"x", [""]])
def test_what_is_no_key_is_refused_where_it_is_declared(key: Any) -> None:
    for option in ("concurrency_key", "unique_key"):
        with pytest.raises(InvalidTask, match=f"expected {option} to be a template"):
            task(**{option: key})(limited.func)


def test_a_name_that_is_no_argument_is_refused_where_it_is_declared() -> None:
    said = r"names \['shop'\], which is no argument of the task; expected some of \['value'\]"
    with pytest.raises(InvalidTask, match=said):
        task(concurrency_key="shop:{shop}")(limited.func)
    with pytest.raises(InvalidTask, match=said):
        limited.using(unique_key="{value} {shop}")


RENDERED = [
    ("shop:{a}", {"a": 7}, "shop:7"),
    ("shop:{a}", {"a": "x y"}, "shop:x y"),
    ("{a}/{b}", {"a": -1, "b": ""}, "-1/"),
    ("{task}", {"a": 1}, "app.tasks.f"),
    ("{task}", {"task": "mine"}, "mine"),
    (
        "{args}",
        {"b": 1, "a": [1, {"c": None}]},
        "sha256:" + sha256(b'{"a":[1,{"c":null}],"b":1}').hexdigest()[:32],
    ),
    ("{args}", {"args": "mine"}, "mine"),
    ("k {args}", {"a": "ä"}, "k sha256:" + sha256('{"a":"ä"}'.encode()).hexdigest()[:32]),
    (
        "{a}:{api_token}",
        {"a": 7, "api_token": "hunter2"},
        "7:sha256:" + sha256(b"hunter2").hexdigest()[:32],
    ),
    (lambda a: f"<{a}>", {"a": 1}, "<1>"),
    (lambda a: None, {"a": 1}, None),
    ("{a}", {"a": "ä" * 256}, "ä" * 256),
]


@pytest.mark.parametrize(("key", "arguments", "expected"), RENDERED)
def test_a_key_is_made_of_the_arguments(key: Any, arguments: Any, expected: Any) -> None:
    assert render_key("unique_key", key, "app.tasks.f", arguments) == expected


def test_all_arguments_are_a_digest_however_long_they_are() -> None:
    made = {render_key("k", "{args}", "t", {"a": "x" * n}) for n in (0, 1, 2, 300, 301, 3_000)}
    assert len(made) == 6
    assert all(re.fullmatch("sha256:[0-9a-f]{32}", key or "") for key in made)


def test_which_arguments_a_key_hides_is_what_the_setting_says(settings: Any) -> None:
    """Other keys stay readable: patterns of limits and pauses are written for them."""
    arguments = {"iban": "DE89", "api_token": "hunter2"}
    assert "hunter2" not in str(render_key("k", "{iban}:{api_token}", "t", arguments))
    settings.PGJOBS = {"REDACT": ["iban"]}
    key = render_key("k", "{iban}:{api_token}", "t", arguments)
    assert key == "sha256:" + sha256(b"DE89").hexdigest()[:32] + ":hunter2"


def test_an_error_about_a_secret_argument_does_not_quote_it() -> None:
    with pytest.raises(TypeError, match=f"'api_token' of k to be text .* got {MASK}") as caught:
        render_key("k", "{api_token}", "t", {"api_token": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


@task(unique_key="{api_token}", rate_limit="call:{api_token}", on_conflict="raise")
def call(api_token: str) -> None:
    """Has a secret in its keys."""


def test_no_key_shows_a_secret_wherever_it_is_made() -> None:
    call.enqueue("hunter2")
    with pytest.raises(DuplicateJob) as caught:
        call.enqueue("hunter2")
    assert "hunter2" not in str(caught.value)
    [first] = stored(call)
    hidden = "sha256:" + sha256(b"hunter2").hexdigest()[:32]
    assert keys(first) == (None, f"call:{hidden}", hidden)
    with pytest.raises(DuplicateJob, match=hidden):
        call.enqueue_from(Effect.objects.all()[:1], api_token="hunter2")
    secrets = Effect.objects.order_by("pk")
    assert call.enqueue_from(secrets, api_token=F("key")) == 3
    assert [job.unique_key for job in stored(call)[1:]] == [
        render_key("k", "{api_token}", "t", {"api_token": effect.key}) for effect in secrets
    ]


@pytest.mark.parametrize(
    ("key", "arguments", "said"),
    [
        ("{a}", {"a": 1.5}, "expected the argument 'a' of unique_key to be text or a whole number"),
        ("{a}", {"a": True}, "got True. Give a function"),
        ("{a}", {"a": None}, "got None"),
        ("{a}", {"a": [1]}, r"got \[1\]"),
        ("{a}", {"a": ""}, "expected unique_key to be one line of text without NUL, got ''"),
        ("{a}", {"a": "x\ny"}, "one line of text"),
        ("{a}", {"a": "x\0"}, "without NUL"),
        ("{a}", {"a": "\ud800"}, "one line of text"),
        ("{a}", {"a": "ä" * 257}, f"at most {MAX_KEY_BYTES} bytes, got 514: 'ä"),
        (lambda a: 5, {"a": 1}, "expected unique_key to return text or None, got 5"),
        (lambda a: "", {"a": 1}, "got ''"),
    ],
)
def test_a_key_that_comes_to_nothing_usable_is_refused(key: Any, arguments: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        render_key("unique_key", key, "app.tasks.f", arguments)


def test_the_keys_of_a_job_are_stored_in_one_insert() -> None:
    """Rate limits are sorted, each once; defaults are arguments too."""
    with CaptureQueriesContext(connection) as queries:
        result = send.enqueue(1)
    assert [query["sql"].split("(")[0] for query in queries] == ["INSERT INTO pgjobs_job "]
    job = get_job(result.id)
    assert keys(job) == ("shop:1", "a\nz:1", None)
    assert (job.concurrency_limit, job.skips_waiting, job.rate_cost) == (3, True, 2)
    assert job.lane == "shop:1\na\nz:1"
    assert (job.args, job.kwargs) == ([1], {})
    assert keys(get_job(limited.enqueue().id))[0] == f"task:{limited.module_path}"
    assert keys(get_job(tasks.add.enqueue(1, 2).id)) == (None, None, None)


def test_many_jobs_have_their_own_keys() -> None:
    ids = send.enqueue_many([(1,), {"shop": "x"}, (1, 2)])
    assert [keys(get_job(job_id))[0] for job_id in ids] == ["shop:1", "shop:x", "shop:1"]
    with pytest.raises(
        TypeError, match=r"item 1 of enqueue_many\(\): expected the argument 'shop'"
    ):
        send.enqueue_many([(1,), (None,)])


def test_a_function_that_gives_none_leaves_the_key_out() -> None:
    some = send.using(concurrency_key=lambda shop, product: shop, rate_limit=lambda **k: k["shop"])
    ids = some.enqueue_many([("a",), (None,)])
    assert [keys(get_job(job_id)) for job_id in ids] == [("a", "a", None), (None, None, None)]


@pytest.fixture(autouse=True)
def effects() -> list[Effect]:
    """Three rows."""
    return Effect.objects.bulk_create(
        Effect(key=key, job_id=number, attempt=number % 2)
        for number, key in enumerate(["a", "b", "ä'\\%s {}"], 1)
    )


def stored(unique: Task) -> list[Any]:
    """Return the jobs of the task, oldest first."""
    return list(Job.objects.filter(task_path=unique.module_path).order_by("id"))


def test_the_keys_of_a_queryset_are_those_of_the_same_jobs_one_by_one(
    effects: list[Effect],
) -> None:
    queryset = Effect.objects.order_by("pk")
    for one in (send, limited, send_once, send.using(rate_limit="{product}{shop}{task}")):
        Job.objects.all().delete()
        names = {"value": F("key")} if one is limited else {"shop": F("key")}
        with CaptureQueriesContext(connection) as queries:
            assert one.enqueue_from(queryset, **names) == 3
        assert sum("pgjobs_job" in query["sql"] for query in queries) == 1
        made = stored(one)
        Job.objects.all().delete()
        one.enqueue_many({next(iter(names)): effect.key} for effect in effects)
        for ours, expected in zip(made, stored(one), strict=True):
            assert keys(ours) == keys(expected)
            assert ours.kwargs == expected.kwargs
            columns = ("concurrency_limit", "skips_waiting", "rate_cost", "unique_until_claimed")
            assert [getattr(ours, c) for c in columns] == [getattr(expected, c) for c in columns]


EXPRESSIONS: dict[str, tuple[Any, list[str]]] = {
    "number": (F("job_id"), ["1", "2", "3"]),
    "sum": (F("job_id") + 10, ["11", "12", "13"]),
    "text": (Substr("key", 1, 1), ["a", "b", "ä"]),
    "joined": (
        Concat(F("key"), Value("-%s"), output_field=TextField()),
        ["a-%s", "b-%s", "ä'\\%s {}-%s"],
    ),
    "cast": (Cast("job_id", CharField()), ["1", "2", "3"]),
    "constant": ("%s {} '", ["%s {} '"] * 3),
    "whole": (5, ["5"] * 3),
    "wrapped": (Value("x"), ["x"] * 3),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_a_part_of_a_key(name: str) -> None:
    expression, expected = EXPRESSIONS[name]
    send.enqueue_from(Effect.objects.order_by("pk"), shop=expression)
    assert [job.concurrency_key for job in stored(send)] == [f"shop:{text}" for text in expected]
    assert [job.rate_limit_keys for job in stored(send)] == [f"a\nz:{text}" for text in expected]


def test_a_uuid_reads_as_in_python() -> None:
    value = uuid.uuid4()
    send.enqueue_from(Effect.objects.all()[:1], shop=Cast(Value(str(value)), UUIDField()))
    assert [job.concurrency_key for job in stored(send)] == [f"shop:{value}"]


def test_slices_joins_and_aggregates_have_keys_too() -> None:
    per_attempt = Effect.objects.values("attempt").annotate(n=Count("pk"))
    assert send_once.enqueue_from(per_attempt.order_by("attempt"), shop=F("n")) == 2
    assert send.enqueue_from(Effect.objects.order_by("pk")[1:], shop=F("job_id")) == 2
    distinct = Effect.objects.order_by("attempt").distinct("attempt")
    assert send_once.using(unique_key="d{shop}").enqueue_from(distinct, shop=F("attempt")) == 2
    assert [job.unique_key for job in stored(send_once)] == [
        f"{send_once.module_path}:1-7", f"{send_once.module_path}:2-7", "d0", "d1",
    ]  # fmt: skip


FROM: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "function": (
        {"concurrency_key": lambda **kwargs: "x"},
        {"shop": 1},
        r"expected concurrency_key to be a template, got a function.*enqueue_many\(\)",
    ),
    "all": ({"unique_key": "{args}"}, {"shop": 1}, r"cannot compute \{args\} of unique_key"),
    "float": (
        {},
        {"shop": Cast("job_id", FloatField())},
        "text, a whole number or a UUID, got a F",
    ),
    "decimal": ({}, {"shop": Cast("job_id", DecimalField())}, "got a DecimalField"),
    "time": ({}, {"shop": Now()}, "got a DateTimeField"),
    "column": ({}, {"shop": F("made_at")}, "got a DateTimeField"),
    "truth": ({}, {"shop": ExpressionWrapper(Q(job_id=1), BooleanField())}, "got a BooleanField"),
    "untyped": ({}, {"shop": Value(object())}, "cannot tell the type of the argument 'shop'"),
    "constant": ({}, {"shop": 1.5}, "to be text or a whole number, got 1.5"),
    "default": ({"concurrency_key": "{product}"}, {"shop": 1, "product": None}, "got None"),
}


@pytest.mark.parametrize("name", FROM)
def test_what_the_database_cannot_compute_is_refused_without_a_statement(name: str) -> None:
    options, arguments, said = FROM[name]
    with CaptureQueriesContext(connection) as queries:
        with pytest.raises((TypeError, ValueError), match=said):
            send.using(**options).enqueue_from(Effect.objects.all(), **arguments)
    assert not queries


@pytest.mark.parametrize(
    "value",
    [
        Cast(Value(None), TextField()),
        Value("a\nb"),
        Concat(*[Value("x" * 100)] * 6, output_field=TextField()),
    ],
    ids=["null", "line", "long"],
)
@pytest.mark.parametrize("option", ["concurrency_key", "rate_limit", "unique_key"])
def test_a_row_that_gives_no_usable_key_is_refused(option: str, value: Any) -> None:
    """All or none, and the transaction goes on."""
    templates: dict[str, Any] = {"concurrency_key": "c", option: "{value}"}
    if option == "rate_limit":
        templates[option] = ["{value}", "a"]
    keyed = limited.using(**templates)
    with transaction.atomic():
        with pytest.raises(ValueError, match=f"each row to give a {option} of 1 to 512 bytes"):
            keyed.enqueue_from(Effect.objects.all(), value=value)
        limited.enqueue(1)
    assert count_jobs() == 1


def test_unused_types_are_no_hindrance() -> None:
    """Only what is in a key has to be plain."""
    send.enqueue_from(Effect.objects.all(), shop=F("pk"), product=Now())
    assert count_jobs() == 3
