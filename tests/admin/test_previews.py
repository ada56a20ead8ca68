"""One line of arguments: what is cut off stays readable, and secrets stay secret."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_pgjobs import task
from django_pgjobs.admin.job_list.previews import MAX_READ, MAX_SHOWN, arguments_line
from django_pgjobs.declaring.redaction import MASK
from tests.factories import make_job
from tests.helpers import in_a_loop


@task
def sign_in(user: str, password: str) -> None:
    """A task with a secret that has a place instead of a name."""


def line(args: Any, kwargs: Any, path: str = "no.such.task") -> str:
    """Return the line of a job with these arguments."""
    return arguments_line(path, json.dumps(args)[:MAX_READ], json.dumps(kwargs)[:MAX_READ])


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ([], {}, ""),
        ([1, "x", None, True, 1.5], {}, '1, "x", null, true, 1.5'),
        ([], {"a": 1, "b": [1, 2], "c": {"d": {}}}, 'a=1, b=[1, 2], c={"d": {}}'),
        ([[]], {"a b": "ü"}, '[], a b="ü"'),
        ([10**30], {}, "1" + "0" * 30),
        ([], {"token": "s3cret"}, f"token={MASK}"),
        ([], {"token": ["s3cret", {"a": ["s3cret"]}], "b": 1}, f"token={MASK}, b=1"),
        (
            [{"a": {"API_KEY": {"x": "s3cret"}, "y": 2}}],
            {},
            f'{{"a": {{"API_KEY": {MASK}, "y": 2}}}}',
        ),
        ([[{"password": 1}], {"pwd": 2}], {}, f'[{{"password": {MASK}}}], {{"pwd": {MASK}}}'),
        ({"a": 1}, [2], "a=1, 2"),
        (None, "text", 'null, "text"'),
        (["{}[],:"], {"a": '"token": 1'}, '"{}[],:", a="\\"token\\": 1"'),
    ],
)
def test_arguments_read_like_a_call(args: Any, kwargs: Any, expected: str) -> None:
    assert line(args, kwargs) == expected


def test_a_name_may_be_written_in_escapes() -> None:
    assert arguments_line("x", "[]", r'{"to\u006ben": "s3cret"}') == f"token={MASK}"


@in_a_loop("length", range(150, 230, 3))
@pytest.mark.parametrize(
    "value", ["s3cret-" * 40, ["s3cret"] * 40, {"s3cret": "s3cret" * 40}, 10**90]
)
def test_what_is_cut_off_within_a_secret_does_not_tell_it(length: int, value: Any) -> None:
    kwargs = {"a": "x" * (length - 30), "token": value, "b": "end"}
    text = line([], kwargs)
    assert "s3cret" not in text
    assert "1000000" not in text
    text = line([kwargs, {"other": [kwargs]}], {})
    assert "s3cret" not in text
    assert "1000000" not in text


def test_every_place_to_cut_at_keeps_the_secret() -> None:
    full = json.dumps(
        {"a": [1, {"token": "s3cret", "b": {"session": ["s3cret"]}}], "pwd": "s3cret"}
    )
    for end in range(len(full)):
        text = full[:end].ljust(MAX_READ, " ")
        assert "s3" not in arguments_line("x", "[]", text), full[:end]


def test_a_line_is_cut_off_and_says_so() -> None:
    shown = line(["x" * 500], {})
    assert shown.startswith('"xxx')
    assert shown.endswith("…")
    assert len(shown) == MAX_SHOWN + 1
    assert line([1, 10**300], {}) == "1, …"


def test_a_secret_by_its_place_is_masked_where_the_task_is_known() -> None:
    path = sign_in.module_path
    assert line(["ann", "s3cret", 3], {}, path) == f'"ann", {MASK}, 3'
    assert line(["ann", {"x": "s3cret"}], {}, path) == f'"ann", {MASK}'


def test_what_is_no_json_ends_the_line() -> None:
    assert arguments_line("x", None, "{}") == "…"
    assert arguments_line("x", "[]", '{"a\\x": 1}') == '"a\\x"=1'
    for text in (
        "",
        "]",
        "}",
        ",",
        ":",
        "[",
        "{",
        '"',
        "[[[",
        "]]]",
        '{"a"',
        '{"token":',
        '{"token"',
    ):
        arguments_line("x", text, text)


@pytest.mark.django_db
def test_the_list_masks_secrets_and_unpacks_nothing_large(admin_client: Client) -> None:
    make_job(kwargs={"api_token": "s3cret", "order": 17})
    large = random.Random(1).randbytes(50_000).hex()
    make_job("shop.large", args=[large])
    text = admin_client.get(reverse("admin:pgjobs_job_changelist")).content.decode()
    assert "s3cret" not in text
    assert f"api_token={MASK}, order=17" in text
    assert '<div class="pgjobs-args"><bdi>…</bdi></div>' in text
