"""What arguments and results may hold, and how a value that may not is refused."""

from __future__ import annotations

import json
import random
import sys
import uuid
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from django.db import connection
from django.utils.translation import gettext_lazy

from django_pgjobs.exceptions import PayloadError
from django_pgjobs.values.payload import (
    MAX_DEPTH,
    decode_arguments,
    encode_result,
    encode_value,
    scrub,
)
from tests import tasks

LIMIT = 100_000
SEED = 20_260


class Size(StrEnum):
    SMALL = "small"


class Level(IntEnum):
    HIGH = 3


def encode(value: object, max_bytes: int = LIMIT) -> str:
    """Encode as the arguments of an enqueue are."""
    return encode_value(value, name="args", max_bytes=max_bytes)


def nested(levels: int) -> list[Any]:
    """Return lists in each other: `[]` is one level."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


CHARACTERS = "aZ0 \"\\/\b\f\n\r\t\x01\x1f\x7f\x85é漢𝄞\u2028\u202e\ufeff\uffff[{]},:'%$"


def make_value(rng: random.Random, depth: int = 0) -> Any:
    """Return a random value of JSON's types."""
    kinds = ["text", "number", "exact", "plain"] + ["list", "dict"] * (depth < 5)
    kind = rng.choice(kinds)
    if kind == "text":
        return "".join(rng.choices(CHARACTERS, k=rng.randrange(12)))
    if kind == "number":
        return rng.choice(
            [rng.uniform(-1e9, 1e9), rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300)]
        )
    if kind == "exact":
        return rng.choice(
            [rng.randint(-(2**70), 2**70), 10 ** rng.randrange(400), -0.0, 1e16, 5e-324]
        )
    if kind == "plain":
        return rng.choice([None, True, False, 0, 1, "", [], {}])
    if kind == "list":
        return [make_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {
        "".join(rng.choices(CHARACTERS, k=rng.randrange(4))): make_value(rng, depth + 1)
        for _ in range(rng.randrange(5))
    }


def test_any_value_of_json_comes_back_as_json_makes_it() -> None:
    rng = random.Random(SEED)
    for _ in range(2_000):
        value = make_value(rng)
        # repr() tells 1 from 1.0, 0.0 from -0.0 and one order of keys from another.
        assert repr(json.loads(encode(value))) == repr(json.loads(json.dumps(value)))


@pytest.mark.django_db
def test_the_database_gives_back_every_value_unchanged_and_can_search_it() -> None:
    """Type `json` keeps 1e16, -0.0 and the order of keys, which `jsonb` does not."""
    rng = random.Random(SEED + 1)
    values = [make_value(rng) for _ in range(1_000)]
    ids = tasks.echo.enqueue_many((value,) for value in values)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT args::text, args::jsonb IS NOT NULL FROM pgjobs_job"
            " WHERE id = ANY(%s::bigint[]) ORDER BY id",
            [ids],
        )
        rows = cursor.fetchall()
    assert [repr(json.loads(args)) for args, _ in rows] == [repr([value]) for value in values]
    assert all(is_castable for _, is_castable in rows)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (range(3), [0, 1, 2]),
        (deque(["a"]), ["a"]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (UserDict({"a": (1,)}), {"a": [1]}),
        (b"bytes", "bytes"),
        ({"a": [b"\xc3\xa4"]}, {"a": ["ä"]}),
        (Size.SMALL, "small"),
        ([Level.HIGH], [3]),
        ({1: "a", None: "b", False: "c"}, {"1": "a", "null": "b", "false": "c"}),
    ],
)
def test_what_django_normalizes_is_normalized_alike(value: object, expected: object) -> None:
    assert json.loads(encode(value)) == expected


LONG = 10**5_000


@pytest.mark.parametrize(
    ("make", "error", "place", "said"),
    [
        (lambda bad: [bad], TypeError, "args[0]", "Unsupported type: <class 'object'>"),
        (lambda bad: {"a": [1, bad]}, TypeError, "args['a'][1]", "is not JSON serializable"),
        (lambda bad: (0, {"x": {"y": bad}}), TypeError, "args[1]['x']['y']", "Pass a key"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(
    make: Callable[[object], object], error: type[Exception], place: str, said: str
) -> None:
    with pytest.raises(error) as caught:
        encode(make(object()))
    assert f" at {place}" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001
        Decimal("1.5"),
        uuid.UUID(int=1),
        {1, 2},
        1j,
        gettext_lazy("Lazy"),
        print,
        tasks.add,
    ],
    ids=lambda value: type(value).__name__,
)
def test_types_that_json_does_not_have_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"Unsupported type: .* at args\[0\]: it is not JSON"):
        encode([value])


@pytest.mark.parametrize(
    ("value", "place", "said"),
    [
        (float("nan"), "args", "expected a finite number"),
        ([1, float("inf")], "args[1]", "got inf"),
        ({"a": {"b": float("-inf")}}, "args['a']['b']", "got -inf"),
        ({float("nan"): 1}, "args key nan", "expected a finite number"),
        (["a\0b"], "args[0]", "without NUL characters"),
        ({"k\0": 1}, "args key 'k\\x00'", "without NUL characters"),
        ([b"a\0"], "args[0]", "without NUL characters"),
        ({"a": ["x", "\ud800"]}, "args['a'][1]", "without lone surrogates"),
        (["\udfff\ud800"], "args[0]", "without lone surrogates"),
        ({"\udc80": 1}, "args key '\\udc80'", "without lone surrogates"),
        ([0, b"\xff"], "args[1]", "UTF-8"),
        ({"n": [LONG]}, "args['n'][0]", "digits"),
    ],
)
def test_a_value_that_postgres_cannot_hold_is_refused_with_its_place(
    value: object, place: str, said: str
) -> None:
    """NUL, lone surrogates and NaN, wherever they hide."""
    with pytest.raises(ValueError, match="expected") as caught:
        encode(value)
    assert f" at {place}" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("key", [(1, 2), object(), frozenset()])
def test_a_key_that_json_cannot_have_is_refused_with_its_place(key: object) -> None:
    with pytest.raises(TypeError, match=r"at args\[0\] key "):
        encode([{key: 1}])


class WithoutRepr:
    """What has no repr, and says so by an exception without a text."""

    def __repr__(self) -> str:
        raise Mute


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize("key", [WithoutRepr(), 10**5_000], ids=["any value", "number"])
def test_a_key_without_a_repr_is_refused_with_its_place(key: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"at args\[0\] key <"):
        encode([{key: 1}])


def test_escaped_text_that_only_looks_like_a_bad_character_is_stored() -> None:
    for text in ("\\u0000", "\\ud800", "\x01\x7f\uffff", "😀"):
        assert json.loads(encode([text])) == [text]


def test_a_hundred_levels_are_stored_and_one_more_is_refused() -> None:
    assert json.loads(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 5_000, 100_000):
        with pytest.raises(ValueError, match=f"expected at most {MAX_DEPTH} levels"):
            encode(nested(levels))


def test_flat_data_may_hold_any_number_of_brackets() -> None:
    for value in ([[]] * 500, "[" * 500, [{"{": "{"}] * 200):
        assert json.loads(encode(value)) == value


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="levels"):
        encode(loop)
    mapping: dict[str, Any] = {}
    mapping["self"] = [mapping]
    with pytest.raises(ValueError, match="levels"):
        encode(mapping)


def test_the_limit_counts_the_bytes_that_are_stored() -> None:
    text = encode(["ä", 1])
    assert encode(["ä", 1], max_bytes=len(text)) == text
    assert len(text) == len(text.encode())
    with pytest.raises(ValueError, match="expected args") as caught:
        encode(["ä", 1], max_bytes=len(text) - 1)
    said = str(caught.value)
    assert f"at most {len(text) - 1} bytes as JSON, got {len(text)}" in said
    assert "PGJOBS['MAX_PAYLOAD_BYTES']" in said


def test_the_error_for_a_huge_value_is_short() -> None:
    for value in (["x" * LIMIT * 2], {"x" * LIMIT: object()}, [b"\xff" * LIMIT]):
        with pytest.raises((TypeError, ValueError)) as caught:
            encode(value)
        assert len(str(caught.value)) < 1_000


def test_stored_arguments_are_decoded() -> None:
    assert decode_arguments("[]", "{}") == ([], {})
    assert decode_arguments('[1, "ä"]', '{"a": null}') == ([1, "ä"], {"a": None})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ("[", "{}"),
        ("{}", "{}"),
        ("1", "{}"),
        ("[]", "[]"),
        ("[]", '"x"'),
        ("null", "{}"),
        ("[" + "1" * 5_000 + "]", "{}"),
        ("[1e400]", "{}"),
        ("[" * 200 + "]" * 200, "{}"),
        ("[" * 5_000 + "]" * 5_000, "{}"),
        ("[]", '{"a":' * 400 + "1" + "}" * 400),
    ],
)
def test_stored_arguments_that_cannot_be_used_raise_payload_error(args: str, kwargs: str) -> None:
    """What raw SQL can store and Python, or a later step, cannot stand."""
    with pytest.raises(PayloadError):
        decode_arguments(args, kwargs)


def test_a_result_of_none_takes_no_space() -> None:
    assert encode_result(None, LIMIT) is None
    assert encode_result([None], LIMIT) == "[null]"
    with pytest.raises(ValueError, match=r"at the return value\['x'\]"):
        encode_result({"x": float("nan")}, LIMIT)
    with pytest.raises(ValueError, match="expected the return value to take at most 10 bytes"):
        encode_result("x" * 10, 10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ä 😀", "plain ä 😀"),
        ("a\0b", "a␀b"),
        ("a\ud800b", "a\\ud800b"),
        ("", ""),
    ],
)
def test_scrubbed_text_can_be_stored(text: str, expected: str) -> None:
    assert scrub(text) == expected
    scrub(text).encode()


def test_the_middle_of_a_long_text_is_left_out() -> None:
    text = scrub("a" * 500 + "b" * 1_000 + "c" * 500, 1_000)
    assert text.startswith("a" * 500 + "\n")
    assert text.endswith("\n" + "c" * 500)
    assert "1000 characters left out" in text
    assert scrub("a" * 1_000, 1_000) == "a" * 1_000


@pytest.mark.slow
def test_a_number_that_no_server_takes_is_refused_where_python_would_write_it() -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert len(encode([10**130_000, "1" * 140_000], 2**20)) > 270_000
        for value in ([1, 10**131_072], {"a": 10**140_000}):
            with pytest.raises(ValueError, match=r"fewer digits in the number at args\["):
                encode(value, 2**20)
    finally:
        sys.set_int_max_str_digits(limit)
