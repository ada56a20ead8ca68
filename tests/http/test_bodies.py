"""What a body may be, and what is said of one that is something else."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from django.http import UnreadablePostError

from django_pgjobs.http.bodies import MAX_DEPTH
from tests.http.support import ONLY_WSGI, Api, problem_of
from tests.http.test_routing import content, tried
from tests.http.workers import Remote


def errors_of(answer: Any) -> dict[str, str]:
    """Return pointer -> detail of a problem with wrong values."""
    assert problem_of(answer) == "invalid", answer.content
    return {each["pointer"]: each["detail"] for each in json.loads(answer.content)["errors"]}


def test_fields_are_read_by_their_types(api: Api) -> None:
    given = {
        "text": "ä",
        "choice": "b",
        "integer": 100.0,
        "number": 1,
        "flag": True,
        "texts": ["a", "abc"],
        "items": [{"number": 3}],
        "mapping": {"x": [1]},
        "json": {"deep": [None, 1e300]},
        "when": "2026-05-01T09:30:00+02:00",
        "inner": {"name": "n"},
    }
    read = {"integer": 100, "items": [3], "inner": "n"}
    when = {"when": "2026-05-01T07:30:00+00:00"}
    assert content(tried(api, "POST", "echo", given)) == given | read | when


def test_what_is_left_out_has_its_default_and_null_is_none(api: Api) -> None:
    found = content(tried(api, "POST", "echo", {"text": "x", "choice": None, "json": None}))
    assert (found["integer"], found["number"], found["choice"], found["texts"]) == (
        7,
        0.5,
        None,
        [],
    )


@pytest.mark.parametrize(
    ("name", "value", "pointer"),
    [
        ("text", "", "/text"),
        ("text", "x" * 11, "/text"),
        ("text", 5, "/text"),
        ("text", None, "/text"),
        ("choice", "c", "/choice"),
        ("choice", ["a"], "/choice"),
        ("integer", 101, "/integer"),
        ("integer", -1, "/integer"),
        ("integer", 0.5, "/integer"),
        ("integer", "7", "/integer"),
        ("integer", True, "/integer"),
        ("integer", None, "/integer"),
        ("integer", 10**4000, "/integer"),
        ("number", 1.01, "/number"),
        ("number", False, "/number"),
        ("number", 10**400, "/number"),
        ("flag", 1, "/flag"),
        ("flag", "true", "/flag"),
        ("texts", "ab", "/texts"),
        ("texts", ["a", "b", "c"], "/texts"),
        ("texts", ["a", "abcd"], "/texts/1"),
        ("texts", [None], "/texts/0"),
        ("items", {}, "/items"),
        ("items", [{"number": 0}], "/items/0/number"),
        ("items", [{"number": 1}, {}], "/items/1/number"),
        ("items", [[]], "/items/0"),
        ("items", [{"number": 1, "a/b~c": 2}], "/items/0/a~1b~0c"),
        ("mapping", [], "/mapping"),
        ("mapping", {"a": 1, "b": 1, "c": 1}, "/mapping"),
        ("inner", [], "/inner"),
        ("inner", {"name": 5}, "/inner/name"),
        ("when", "2026-05-01T09:30:00", "/when"),
        ("when", "2026-05-01", "/when"),
        ("when", "2026-02-30T00:00:00Z", "/when"),
        ("when", "0001-01-01T00:00:00Z", "/when"),
        ("when", 1767225600, "/when"),
        ("colour", "red", "/colour"),
    ],
)
def test_a_wrong_value_is_pointed_at(api: Api, name: str, value: Any, pointer: str) -> None:
    errors = errors_of(tried(api, "POST", "echo", {"text": "x", name: value}))
    assert list(errors) == [pointer]
    assert all(errors.values())


def test_all_that_is_wrong_is_told_at_once(api: Api) -> None:
    errors = errors_of(tried(api, "POST", "echo", {"integer": "x", "zzz": 1, "items": [{}, {}]}))
    assert set(errors) == {"/text", "/integer", "/zzz", "/items/0/number", "/items/1/number"}


def test_no_more_than_a_hundred_errors_are_told(api: Api) -> None:
    given = {f"field-{number}": 1 for number in range(5_000)}
    assert len(errors_of(tried(api, "POST", "echo", given))) == 100


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[%s]" % b",".join([rb'"\u0000"'] * 1_000), id="texts"),
        pytest.param(b"{%s}" % b",".join(b'"%d":1' % n for n in range(1_000)), id="fields"),
    ],
)
def test_a_long_name_is_not_repeated_in_each_error(api: Api, body: bytes) -> None:
    """It would be in memory, and in the answer, so often."""
    name = b"k" * 100_000
    remote = Remote(api)
    tracemalloc.start()
    try:
        answer = remote.send("heartbeat", b'{"assignments":[],"progress":{"%s":%s}}' % (name, body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    errors = errors_of(answer)
    assert all(pointer.endswith("k…") and len(pointer) < 1_000 for pointer in errors)
    assert len(answer.content) < 500_000
    assert peak < 10_000_000


def test_a_heartbeat_has_progress_of_as_many_as_it_may_name(api: Api) -> None:
    answer = Remote(api).post("heartbeat", {"assignments": [], "progress": {"a": {}, "b": {}}})
    assert set(errors_of(answer)) == {"/progress/a/done", "/progress/b/done"}
    many = {str(number): {} for number in range(2_001)}
    answer = Remote(api).post("heartbeat", {"assignments": [], "progress": many})
    assert set(errors_of(answer)) == {"/progress"}


@pytest.mark.parametrize(
    "body",
    [b"{", b"nul", b"{'a': 1}", b'{"text": "\xff"}', b"\xef\xbb\xbf{}", b'{"a": 1}{', b'{"a": 01}',
     b'{"text": "\x00"}', '{"text": "x"}'.encode("utf-16"), b"text=x", b" "],
)  # fmt: skip
def test_what_is_no_json_is_refused(api: Api, body: bytes) -> None:
    assert problem_of(tried(api, "POST", "echo", body)) == "not-json"


@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null", b"true", b'[{"text": "x"}]'])
def test_what_is_no_object_is_refused(api: Api, body: bytes) -> None:
    assert errors_of(tried(api, "POST", "echo", body)) == {"": "expected an object"}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5_000])
def test_a_number_that_is_none_is_refused(api: Api, number: str) -> None:
    errors = errors_of(tried(api, "POST", "echo", f'{{"text": "x", "json": {number}}}'.encode()))
    assert list(errors) == [""]


@pytest.mark.parametrize("levels", [MAX_DEPTH, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize("brackets", ["[]", ('{"a":', "}")])
def test_what_is_too_deep_is_refused(api: Api, levels: int, brackets: Any) -> None:
    opening, closing = brackets
    if levels * len(opening + closing) > 2_000_000:
        levels //= 10
    value = opening * levels + ("1" if opening != "[" else "") + closing * levels
    errors = errors_of(tried(api, "POST", "echo", f'{{"text": "x", "json": {value}}}'.encode()))
    assert errors == {"": f"expected at most {MAX_DEPTH} levels"}


def test_what_is_wide_is_not_deep(api: Api) -> None:
    given = {"text": "x", "json": [[] for _ in range(10_000)]}
    assert tried(api, "POST", "echo", given).status_code == 200


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ('"a\\u0000"', "/json"),
        ('{"a": ["\\ud800"]}', "/json/a/0"),
        ('{"a": "\\udfff"}', "/json/a"),
        ('{"\\u0000": 1}', "/json"),
        ('["\\uDBFF\\u0041"]', "/json/0"),
    ],
)
def test_text_that_postgresql_cannot_store_is_refused(api: Api, value: str, pointer: str) -> None:
    errors = errors_of(tried(api, "POST", "echo", f'{{"text": "x", "json": {value}}}'.encode()))
    assert list(errors) == [pointer]


def test_pairs_of_surrogates_are_characters(api: Api) -> None:
    body = b'{"text": "\\ud83d\\ude00", "json": "\\\\u0000"}'
    found = content(tried(api, "POST", "echo", body))
    assert (found["text"], found["json"]) == ("\U0001f600", "\\u0000")


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/json; charset=latin-1", "application/xml", "json"],
)  # fmt: skip
def test_a_body_of_another_type_is_refused(api: Api, content_type: str) -> None:
    answer = tried(api, "POST", "echo", {"text": "x"}, Content_Type=content_type)
    assert problem_of(answer) == "unsupported-media-type"


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=UTF-8", "Application/JSON", 'application/json; charset="utf8"'],
)
def test_json_in_utf8_is_taken(api: Api, content_type: str) -> None:
    answer = tried(api, "POST", "echo", {"text": "x"}, Content_Type=content_type)
    assert answer.status_code == 200, answer.content


def test_no_body_is_an_object_without_fields(api: Api) -> None:
    assert list(errors_of(tried(api, "POST", "echo", b""))) == ["/text"]


def test_a_body_that_is_too_large_is_refused(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_BODY_BYTES": 1024}
    fits = b'{"text": "x"' + b" " * (1024 - 13) + b"}"
    assert tried(api, "POST", "echo", fits).status_code == 200
    answer = tried(api, "POST", "echo", fits + b" ")
    assert problem_of(answer) == "too-large"
    assert "1024" in json.loads(answer.content)["detail"]


class Stream(io.BytesIO):
    """A body as a server gives it: it notes how much was read, and may break off."""

    def __init__(self, body: bytes, *, breaks: bool = False) -> None:
        super().__init__(body)
        self.breaks = breaks
        self.read_bytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.read_bytes += len(found)
        if self.breaks and not found:
            raise OSError("the client is gone")
        return found


def sent(api: Api, stream: Stream, **environ: str) -> Any:
    """Send a body whose length the headers tell differently, or not at all."""
    return api.client.generic(
        "POST",
        "/tried/echo",
        b"{}",
        content_type="application/json",
        headers={"Authorization": f"Bearer {api.secret}"},
        **{"wsgi.input": stream, **environ},
    )


@ONLY_WSGI
def test_a_body_that_is_larger_than_it_says_is_read_no_further(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_BODY_BYTES": 1024}
    stream = Stream(b" " * 10_000_000)
    assert problem_of(sent(api, stream, CONTENT_LENGTH="9999999")) == "too-large"
    assert stream.read_bytes == 0
    assert problem_of(sent(api, stream, CONTENT_LENGTH="1000")) == "not-json"
    assert stream.read_bytes <= 1000


@ONLY_WSGI
def test_a_client_that_vanishes_harms_nobody(api: Api) -> None:
    assert (
        problem_of(sent(api, Stream(b'{"te', breaks=True), CONTENT_LENGTH="100")) == "bad-request"
    )
    assert problem_of(sent(api, Stream(b'{"te'), CONTENT_LENGTH="100")) == "bad-request"
    assert UnreadablePostError.__mro__[1] is OSError


@ONLY_WSGI
@pytest.mark.parametrize("length", ["x", "-5", "1e3"])
def test_a_length_that_is_none_is_refused_or_no_body(api: Api, length: str) -> None:
    answer = sent(api, Stream(b'{"text": "x"}'), CONTENT_LENGTH=length)
    assert answer.status_code in (400, 422)


@ONLY_WSGI
def test_a_body_in_chunks_that_the_server_did_not_read_is_told_of(api: Api) -> None:
    answer = sent(
        api, Stream(b'{"text": "x"}'), CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked"
    )
    assert problem_of(answer) == "length-required"
