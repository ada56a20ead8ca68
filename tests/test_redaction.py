"""Masking values by their names, in values and in JSON text that Python cannot decode."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgjobs.declaring.redaction import MASK, is_secret, redact, redact_text

VALUE = {
    "user": "anna",
    "Api-Key": "a",
    "auth": {"PASSWORD": {"old": "b"}, "list": [{"credit_card": 1}, "token"]},
}


def test_secret_names_are_found_at_every_depth_in_any_case() -> None:
    assert redact(VALUE) == {
        "user": "anna",
        "Api-Key": "a",
        "auth": {"PASSWORD": MASK, "list": [{"credit_card": MASK}, "token"]},
    }
    assert VALUE["auth"]["PASSWORD"] == {"old": "b"}  # type: ignore[index]


@pytest.mark.parametrize("value", [None, 1, "token", [], {}], ids=repr)
def test_what_has_no_names_is_left_alone(value: Any) -> None:
    assert redact(value) == value


def test_what_lies_very_deep_is_masked() -> None:
    value: Any = "secret"
    for _ in range(60):
        value = [value]
    assert "secret" not in str(redact(value))


def test_the_names_are_a_setting(settings: Any) -> None:
    settings.PGJOBS = {"REDACT": ["^iban$", "user"]}
    assert redact({"iban": 1, "ibans": 2, "user_id": 3, "token": 4}) == {
        "iban": MASK, "ibans": 2, "user_id": MASK, "token": 4,
    }  # fmt: skip
    assert [is_secret(name) for name in ("iban", "ibans", "token")] == [True, False, False]
    assert redact_text('{"iban": 1, "token": 2}') == f'{{"iban": {MASK}, "token": 2}}'


def test_nothing_is_masked_without_names(settings: Any) -> None:
    settings.PGJOBS = {"REDACT": []}
    assert redact(VALUE) == VALUE
    assert not is_secret("password")
    assert redact_text('{"token": 2}') == '{"token": 2}'


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"token": "a", "b": 1}', '{"token": #, "b": 1}'),
        ('{"token": {"a": ["x", "}"]}, "b": 1}', '{"token": #, "b": 1}'),
        ('{"token":', '{"token": #'),
        ('{"token": [1, 2', '{"token": #'),
        ('{"tok', '{"tok'),
        ('"token', '"token'),
        ('{"\\ud800token": 1}', '{"\\ud800token": #}'),
        ('{"bad \\x token": 1}', '{"bad \\x token": #}'),
    ],
)
def test_json_text_is_masked_though_it_is_cut_off_or_broken(text: str, masked: str) -> None:
    assert redact_text(text) == masked.replace("#", MASK)
