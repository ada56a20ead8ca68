"""Coalescing: an enqueue that meets a waiting job merges its arguments into it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F, Func, JSONField
from django.test import override_settings
from psycopg import sql

from django_pgjobs import JobError, PayloadError, Task, task
from django_pgjobs.compat import InvalidTask
from tests.factories import count_jobs, get_job, make_job
from tests.models import Effect
from tests.test_unique import start_job, statements

pytestmark = pytest.mark.django_db


@task(unique_key="p:{product}", on_conflict="merge")
def sync(product: int, fields: Any = None, *, more: Any = None, **others: Any) -> None:
    """Merged by union."""


@task(unique_key="p:{product}", on_conflict="merge", merge="append")
def log(product: int, lines: Any = None, **others: Any) -> None:
    """Lists are appended."""


@task(unique_key="p:{product}", on_conflict="merge", merge="last")
def take(product: int, /, fields: Any = None, *rest: Any) -> None:
    """The newest arguments count, and need no names."""


@task(unique_key="{args}", on_conflict="merge")
def nameless(*values: Any) -> None:
    """Has arguments without names."""


def stored(job_id: str) -> str:
    """Return the text of a job's keyword arguments."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT kwargs::text FROM pgjobs_job WHERE id = %s", [int(job_id)])
        return str(cursor.fetchone()[0])


def merged(first: Any, second: Any, unique: Task = sync) -> Any:
    """Return what one argument comes to."""
    job = unique.enqueue(1, x=first)
    again = unique.enqueue(1, x=second)
    assert again.id == job.id
    value = get_job(job.id).kwargs["x"]
    assert again.kwargs == {"product": 1, "x": value}
    return value


UNION = [
    (["a"], ["b"], ["a", "b"]),
    (["b", "a"], ["a", "c", "b"], ["b", "a", "c"]),
    ([], [], []),
    (["a"], [], ["a"]),
    ([], ["a", "a"], ["a"]),
    ([1, "1", 1.0, True, None], [None, 1, True, "1"], [1, "1", True, None]),
    ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}, {"a": 1}], [{"a": 1, "b": 2}, {"a": 1}]),
    ([[1, 2]], [[2, 1], [1, 2]], [[1, 2], [2, 1]]),
    ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": 1, "b": 3, "c": 4}),
    ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ({}, {}, {}),
    (1, 2, 2),
    ("a", "b", "b"),
    ([1], 2, 2),
    (1, [2], [2]),
    ([1], {"a": 1}, {"a": 1}),
    ([1], None, None),
    (None, [1], [1]),
]


@pytest.mark.parametrize(("first", "second", "expected"), UNION, ids=str)
def test_union(first: Any, second: Any, expected: Any) -> None:
    """S4.6."""
    value = merged(first, second)
    assert value == expected
    assert list(map(type, value)) == list(map(type, expected)) if isinstance(value, list) else True


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["a"], ["b", "a"], ["a", "b", "a"]),
        ([], [], []),
        ([[1]], [[1]], [[1], [1]]),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ([1], 2, 2),
    ],
    ids=str,
)
def test_append(first: Any, second: Any, expected: Any) -> None:
    assert merged(first, second, log) == expected


def test_arguments_of_one_side_stay() -> None:
    job = sync.enqueue(1, fields=["a"], more=1)
    sync.enqueue(product=1, fields=["b"], other={"n": 2})
    assert get_job(job.id).kwargs == {
        "product": 1, "fields": ["a", "b"], "more": 1, "other": {"n": 2},
    }  # fmt: skip


def test_the_last_replaces_all_arguments_and_needs_no_names() -> None:
    job = take.enqueue(1, ["a"], 5)
    take.enqueue(1, ["b"])
    assert (get_job(job.id).args, get_job(job.id).kwargs) == ([1, ["b"]], {})


def test_arguments_are_stored_by_name_so_that_they_can_be_merged() -> None:
    """As they were given: a default is not an argument."""
    job = sync.enqueue(1, ["a"], more=2)
    assert (job.args, job.kwargs) == ([], {"product": 1, "fields": ["a"], "more": 2})
    assert sync.get_result(job.id) == job
    assert (get_job(job.id).args, stored(job.id)) == (
        [], '{"product":1,"fields":["a"],"more":2}',
    )  # fmt: skip


def test_arguments_without_names_are_refused_before_anything_is_sent() -> None:
    def refused() -> None:
        for call in (lambda: nameless.enqueue(1), lambda: nameless.enqueue_many([(1,)])):
            with pytest.raises(TypeError, match=r"nameless.* no names, so they cannot be merged"):
                call()
        with pytest.raises(TypeError, match="no names"):
            take.using(merge="union").enqueue(1)

    assert not {*statements(refused)} & {"WITH", "INSERT"}


def test_values_stay_what_they_were() -> None:
    """Not as `jsonb` would: 1e16, -0.0, long numbers, the order of keys, any text."""
    value = {"z": 1e16, "a": [-0.0, 10**40, 1.10], 'ä"\\\n': "'\u2028\U0001f600%s {}"}
    job = sync.enqueue(1, x=[value], y=value, z=1e16)
    sync.enqueue(1, x=[1e16], y={"b": 1e16}, w=10**40)
    text = stored(job.id)
    assert "1e+16" in text
    assert list(json.loads(text).items()) == [
        ("product", 1), ("x", [value, 1e16]), ("y", value | {"b": 1e16}), ("z", 1e16),
        ("w", 10**40),
    ]  # fmt: skip
    assert [*json.loads(text)["y"]] == [*value, "b"]
    assert "-0.0" in text


def test_merging_is_one_statement_and_is_counted() -> None:
    """S4.6: the number of enqueues that came to one job stays on it."""
    job = sync.enqueue(1, ["a"])
    assert get_job(job.id).merged_count == 0
    for number in range(1, 4):
        assert statements(lambda: sync.enqueue(1, ["b"])) == ["WITH"]
        assert get_job(job.id).merged_count == number
    assert count_jobs() == 1


def test_the_most_urgent_of_the_merged_decides_and_the_keys_are_the_newest() -> None:
    """S4: a change of the price is urgent, whatever waits already."""
    job = sync.using(priority=1, tags=["t"], timeout=3, concurrency_key="c:{fields}").enqueue(
        1, "a"
    )
    for priority in (7, 2):
        sync.using(priority=priority, concurrency_key="c:{fields}", queue_name="q").enqueue(1, "b")
    row = get_job(job.id)
    assert (row.priority, row.concurrency_key, row.lane) == (7, "c:b", "c:b\n")
    assert (row.tags, row.timeout, row.queue_name) == (["t"], 3, "default")


def test_a_job_that_was_claimed_is_never_merged_into() -> None:
    """The attempt would not see the change: so a new job does."""
    first = sync.enqueue(1, ["a"])
    start_job(first.id)
    second = sync.enqueue(1, ["b"])
    sync.enqueue(1, ["c"])
    assert get_job(first.id).kwargs["fields"] == ["a"]
    assert (get_job(second.id).kwargs["fields"], get_job(second.id).merged_count) == (["b", "c"], 1)


def test_many_merge_with_each_other_and_with_what_waits() -> None:
    """In one statement."""
    old = sync.enqueue(2, ["z"])
    items: list[Any] = [(1, ["a"]), (2, ["b"]), {"product": 1, "fields": ["b"]}, (3,), (1, ["a"])]
    ids: list[str] = []
    sent = statements(lambda: ids.extend(sync.enqueue_many(items)))
    assert [word for word in sent if word not in ("SAVEPOINT", "RELEASE", "SELECT")] == ["WITH"]
    assert ids[0] == ids[2] == ids[4]
    assert ids[1] == old.id
    assert [get_job(job_id).kwargs for job_id in ids[:2]] == [
        {"product": 1, "fields": ["a", "b"]},
        {"product": 2, "fields": ["z", "b"]},
    ]
    assert [get_job(job_id).merged_count for job_id in (*ids[:2], ids[3])] == [2, 1, 0]
    assert log.enqueue_many([(1, [1]), (1, [1]), (1, [2])])
    assert get_job(log.enqueue(1, [1]).id).kwargs["lines"] == [1, 1, 2, 1]


def test_jobs_of_a_queryset_merge_with_each_other_and_with_what_waits() -> None:
    """In one statement, whatever the number of rows."""
    rows = [("a", 1), ("b", 2), ("c", 1), ("a", 1)]
    Effect.objects.bulk_create(Effect(key=key, job_id=number) for key, number in rows)
    old = sync.enqueue(2, ["z"])
    listed = sql_list(F("key"))
    queryset = Effect.objects.order_by("pk")
    sent = statements(lambda: sync.enqueue_from(queryset, product=F("job_id"), fields=listed))
    assert sent == ["SAVEPOINT", "WITH", "RELEASE"]
    assert get_job(old.id).kwargs == {"product": 2, "fields": ["z", "b"]}
    new = get_job(sync.enqueue(1).id)
    assert (new.kwargs, new.merged_count) == ({"product": 1, "fields": ["a", "c"]}, 3)
    log.enqueue_from(queryset, product=F("job_id"), lines=listed)
    assert get_job(log.enqueue(1).id).kwargs["lines"] == ["a", "c", "a"]


def test_what_would_grow_too_large_is_refused_and_nothing_is_changed() -> None:
    """Duplicates do not count: what fits in the end is merged."""
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 100}):
        job = sync.enqueue(1, ["a" * 30, "b" * 30])
        sync.enqueue(1, ["b" * 30, "a" * 30])
        before = get_job(job.id)
        for call in (
            lambda: sync.enqueue(1, ["c" * 30]),
            lambda: sync.enqueue_many([(2,), (1, ["c" * 30])]),
            lambda: sync.enqueue_many([(2, ["c" * 50]), (2, ["d" * 50])]),
        ):
            with transaction.atomic():
                with pytest.raises(
                    ValueError, match=r"merged kwargs of job \d+ .* at most 100 bytes"
                ):
                    call()
            assert get_job(job.id) == before
            assert count_jobs() == 1
        ids = sync.enqueue_many(
            [(1, ["a" * 30]), (3, ["c" * 50]), (3, ["c" * 50]), (3, ["c" * 50])]
        )
        assert get_job(ids[1]).merged_count == 2


def test_a_waiting_job_of_plain_sql_is_merged_into_whatever_its_arguments_are() -> None:
    """Positional ones get their names first."""
    job_id = make_job(
        sync.module_path,
        unique_key="p:1",
        unique_until_claimed=True,
        args=[1, ["a"]],
        kwargs={"more": 2},
    )
    assert sync.enqueue(1, ["b"]).id == str(job_id)
    job = get_job(job_id)
    assert (job.args, job.kwargs) == ([], {"product": 1, "fields": ["a", "b"], "more": 2})
    assert job.merged_count == 1


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"args": {"a": 1}}, PayloadError),
        ({"args": [1, 2], "kwargs": [3]}, PayloadError),
        ({"args": [1, 2], "kwargs": {"fields": 3}}, JobError),
        (
            {"args": sql.SQL("'[ ]'::json"), "kwargs": sql.SQL(f"'{{\"n\": {'1' * 5000}}}'::json")},
            JobError,
        ),
    ],
    ids=["object", "array", "call", "digits"],
)
def test_a_waiting_job_that_cannot_be_called_is_no_poison(
    columns: dict[str, Any], error: type[Exception]
) -> None:
    job_id = make_job(sync.module_path, unique_key="p:1", **columns)
    before = get_job_text(job_id)
    with transaction.atomic():
        with pytest.raises(error):
            sync.enqueue(1, ["b"])
        sync.enqueue(2)
    assert get_job_text(job_id) == before


def get_job_text(job_id: int) -> Any:
    """Return the columns of a job as text."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT j::text FROM pgjobs_job AS j WHERE id = %s", [job_id])
        return cursor.fetchone()[0]


REFUSED: dict[str, dict[str, Any]] = {
    "expected merge to be one of": {"on_conflict": "merge", "merge": "first"},
    "expected merge to be one": {"on_conflict": "merge", "merge": "no path.x"},
    "merge has no effect without on_conflict='merge'": {"on_conflict": "replace", "merge": "last"},
    "expected max_wait to be more than 0 seconds": {"on_conflict": "merge", "max_wait": 0},
    "up to 1000 years, got": {"on_conflict": "merge", "max_wait": 1e300},
    "max_wait has no effect without": {"max_wait": 5},
    "contradicts unique_until='finished'": {"on_conflict": "merge", "unique_until": "finished"},
    "after contradicts on_conflict='merge'": {"on_conflict": "merge", "after": [1]},
    "expected on_conflict to be one of": {"on_conflict": "ignore"},
    "expected unique_until to be one of": {"unique_until": "claim"},
}


@pytest.mark.parametrize("said", REFUSED)
def test_contradictory_options_are_refused_where_they_are_given(said: str) -> None:
    plain = task(unique_key="p:{product}")(sync.func)
    with pytest.raises(InvalidTask, match=said.replace("(", r"\(")):
        plain.using(**REFUSED[said])


def reference(former: Any, latter: Any, merge: str) -> Any:
    """Merge the values of one argument, as the documentation says."""
    if isinstance(former, list) and isinstance(latter, list):
        items = former + latter
        texts = [json.dumps(item, sort_keys=True) for item in items]
        return items if merge == "append" else [
            item for place, item in enumerate(items) if texts[place] not in texts[:place]
        ]  # fmt: skip
    if isinstance(former, dict) and isinstance(latter, dict):
        return former | latter
    return latter


def random_value(source: random.Random, depth: int = 0) -> Any:
    """Return some JSON value of few different scalars, so that they meet again."""
    kind = source.randrange(8 if depth < 2 else 4)
    if kind < 4:
        return [None, True, source.randrange(4), source.choice(["", "a", "ä", '"'])][kind]
    values = [random_value(source, depth + 1) for _ in range(source.randrange(4))]
    return values if kind < 6 else {source.choice("abcd"): value for value in values}


@pytest.mark.slow
@pytest.mark.parametrize("unique", [sync, log], ids=["union", "append"])
def test_any_values_merge_as_documented(unique: Task) -> None:
    """A thousand merges against a model."""
    source = random.Random(7)
    merge = str(unique.merge or "union")
    for product in range(60):
        expected: dict[str, Any] = {"product": product}
        batch = []
        for _ in range(source.randrange(1, 30)):
            given = {
                source.choice("wxyz"): random_value(source) for _ in range(source.randrange(3))
            }
            batch.append({"product": product, **given})
            for name, value in given.items():
                expected[name] = (
                    reference(expected[name], value, merge) if name in expected else value
                )
        cut = source.randrange(len(batch) + 1)
        ids = unique.enqueue_many(batch[:cut])
        ids += [unique.enqueue(**arguments).id for arguments in batch[cut:]]
        assert len({*ids}) == 1
        assert get_job(ids[0]).kwargs == expected if len(batch) > 1 else True


def sql_list(expression: Any) -> Any:
    """Return an expression for a JSON array of one value."""
    return Func(expression, function="jsonb_build_array", output_field=JSONField())
