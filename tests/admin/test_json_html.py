"""JSON values and tracebacks as pages draw them: exact, masked, escaped, bounded."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from django_pgjobs.admin.job_page.json_html import OPEN_LINES, json_html
from django_pgjobs.admin.job_page.traceback_html import last_project_frame, traceback_html
from django_pgjobs.declaring.redaction import MASK, redact_text
from django_pgjobs.models.fields import Undecodable

HOSTILE = "<script>alert(1)</script>'\"&"
TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.12/site-packages/requests/adapters.py", line 688, in send
    raise ConnectTimeout(e, request=request)
  File "/usr/lib/python3.12/socket.py", line 1, in connect
    connect()
    ~~~~~~~^^
  File "/srv/shop/billing/tasks.py", line 41, in send_invoice
    client.post(invoice.url, json=payload)
  [Previous line repeated 3 more times]
requests.exceptions.ConnectTimeout: <late>

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 1, in f
ValueError: x
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/shop/a.py", line 1, in f
  |     raise ExceptionGroup
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
"""


def text_of(html: str) -> str:
    """Return what a reader sees of *html*."""
    return unescape(re.sub(r"<[^>]*>", "", html))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (12345678901234567890123, "12345678901234567890123"),
        (1e16, "1e+16"),
        ("é", '"é"'),
        ([], "[]"),
        ({}, "{}"),
        ([1, "a", None], '[1, "a", null]'),
        ({"a": {}, "b": []}, '{"a": {}, "b": []}'),
        ({"a": [1]}, '{\n  "a": [1]\n}'),
        ("\ud800", '"\\ud800"'),
        (HOSTILE, '"<script>alert(1)</script>\'\\"&"'),
        ({HOSTILE: HOSTILE}, None),
    ],
    ids=repr,
)
def test_a_value_is_drawn_as_its_json(value: Any, text: str | None) -> None:
    html = json_html(value)
    html.encode()
    assert "<script>" not in html
    if text is not None:
        assert text_of(html) == text


def test_values_of_secret_names_are_masked() -> None:
    value = {"user": "anna", "api_token": "s3cret", "list": [{"password": {"deep": "s3cret"}}]}
    html = json_html(value)
    assert "s3cret" not in html
    assert html.count(MASK) == 2
    assert json_html(value, reveal=True).count("s3cret") == 2


def test_what_cannot_be_decoded_is_text_and_masked() -> None:
    html = json_html(Undecodable('{"n": 1, "token": "s3cret"}'))
    assert "s3cret" not in html
    assert '"n": 1' in text_of(html)
    assert "s3cret" in json_html(Undecodable('{"token": "s3cret"}'), reveal=True)


@pytest.mark.parametrize(
    "text",
    [
        '{"token": "s3cret"}',
        '{"token": "s3cr',
        '{"token": ["s3cret", {"x": "s3cret"}], "a": 1}',
        '{"token"  :  12345, "a": 1}',
        '{"a": {"\\u0074oken": "s3cret"}}',
        '["a", ":x", {":token": "s3cret"}]',
        '{"a\\"b": 1, "token": "\\"s3cret\\""}',
        '{"token": -1.5e3}',
        '{"token": {"a": "}", "b": "s3cret"}, "c": "kept"}',
    ],
)
def test_broken_json_text_is_masked(text: str) -> None:
    masked = redact_text(text)
    for secret in ("s3cr", "12345", "1.5e3"):
        assert secret not in masked
    assert MASK in masked
    if '"kept"' in text:
        assert '"c": "kept"' in masked


def test_text_without_secrets_is_left_alone() -> None:
    for text in ('{"a": "token", "b": [1, 2]}', "[1" + "0" * 5_000 + "]", "", '"', "\\"):
        assert redact_text(text) == text


@pytest.mark.slow
def test_a_long_value_is_folded_and_a_huge_one_cut() -> None:
    assert "<details" not in json_html(list(range(20)))
    assert "<details" in json_html([{"a": number} for number in range(OPEN_LINES)])
    for value in ("x" * 2_000_000, ["<" * 100] * 5_000, [[1, 2]] * 50_000, {"&" * 70_000: 1}):
        html = json_html(value, whole_url="/all/")
        assert len(html) < 70_000
        assert 'href="/all/"' in html
        assert "…" in html
    assert "href" not in json_html("x" * 100_000)


def test_a_deep_value_is_drawn() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]
    assert "…" in json_html(value, reveal=True)


def test_a_traceback_folds_libraries_and_shows_the_projects_frames() -> None:
    html = traceback_html(TRACEBACK)
    folded = "".join(re.findall(r"<details.*?</details>", html, re.DOTALL))
    assert "adapters.py" in folded
    assert "socket.py" in folded
    assert "frozen importlib" in folded
    assert "billing/tasks.py" not in folded
    assert "2 frames of libraries" in folded
    assert "1 frame of libraries" in folded
    [project] = re.findall(r'<pre class="pgjobs-frame-project">(.*?)</pre>', html, re.DOTALL)
    assert "client.post" in project
    assert "repeated 3 more times" in project
    assert "&lt;late&gt;" in html
    assert [line for line in TRACEBACK.splitlines() if line not in text_of(html)] == []


def test_a_traceback_of_a_group_is_drawn() -> None:
    html = traceback_html(GROUP)
    [project] = re.findall(r'<pre class="pgjobs-frame-project">(.*?)</pre>', html, re.DOTALL)
    assert "shop/a.py" in project
    assert "two (2 sub" not in project


@pytest.mark.parametrize("text", [HOSTILE, "", "\n\n", 'File "', '  File "x", line 1', "\ud800"])
def test_what_is_no_traceback_is_drawn_as_it_is(text: str) -> None:
    html = traceback_html(text)
    html.encode()
    assert "<script>" not in html


def test_the_end_of_a_long_traceback_is_drawn() -> None:
    html = traceback_html("x\n" * 100_000 + "ValueError: last")
    assert len(html) < 20_000
    assert "ValueError: last" in html


def test_the_last_line_of_the_projects_own_is_found() -> None:
    line = 'File "/srv/shop/billing/tasks.py", line 41, in send_invoice'
    assert last_project_frame(TRACEBACK) == line
    assert last_project_frame("ValueError") == ""
