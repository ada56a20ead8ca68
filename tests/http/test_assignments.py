"""The ids of assignments: what is signed, and with which key."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.signing import Signer

from django_pgjobs.http.assignments import MAX_LENGTH, SALT, Assignment, opened

GIVEN = Assignment(17, 3, 5, 7)


def test_an_id_is_what_djangos_signer_makes(settings: Any) -> None:
    """So those that are out when a process is replaced hold in the next one."""
    settings.SECRET_KEY = "käse"
    signer = Signer(key="käse", sep="~", salt=SALT)
    assert GIVEN.sealed == signer.sign("17.3.5.7")
    assert opened(signer.sign("17.3.5.7"), 7) == GIVEN


def test_an_id_holds_while_its_key_is_a_fallback(settings: Any) -> None:
    sealed = GIVEN.sealed
    settings.SECRET_KEY = "another"
    assert opened(sealed, 7) is None
    settings.SECRET_KEY_FALLBACKS = ["older", "tests"]
    assert opened(sealed, 7) == GIVEN
    assert GIVEN.sealed != sealed


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed.replace("17.", "18.", 1),
        lambda sealed: sealed[:-1],
        lambda sealed: sealed.partition("~")[0],
        lambda sealed: sealed.partition("~")[0] + "~",
        lambda sealed: f"~{sealed}",
        lambda sealed: f"{sealed}=",
        lambda sealed: f"{sealed}ä",
        lambda sealed: "~",
        lambda sealed: "",
        lambda sealed: sealed + "x" * MAX_LENGTH,
    ],
)
def test_an_id_that_was_changed_is_none(change: Any) -> None:
    assert opened(change(GIVEN.sealed), 7) is None


def test_an_id_is_for_its_token_only() -> None:
    assert opened(GIVEN.sealed, 8) is None
