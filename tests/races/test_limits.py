"""Two who change a limit at the same moment."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from django_pgjobs.limits import ConcurrencyLimitForm
from django_pgjobs.models import ConcurrencyLimit
from tests.races.support import DjangoThread
from tests.races.test_unique import wait_until_waiting

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

KEY = "shop:*"


def change(*flags: str) -> str:
    """Change the limit by `jobs limits`; return what that prints."""
    said = io.StringIO()
    call_command("jobs", "limits", "key", KEY, *flags, stdout=said)
    return said.getvalue()


def test_changes_of_other_columns_are_kept(in_thread: Callable[..., DjangoThread]) -> None:
    ConcurrencyLimit.objects.create(pattern=KEY, max_running=100)
    with transaction.atomic():
        change("--max-running=1")
        other = in_thread(partial(change, "--note=slow API"))
        wait_until_waiting(other)
    assert "before: max-running 1, weight 1" in other.result()
    assert ConcurrencyLimit.objects.filter(max_running=1, note="slow API").exists()


def test_who_makes_it_second_changes_it(in_thread: Callable[..., DjangoThread]) -> None:
    with transaction.atomic():
        change("--max-running=1")
        other = in_thread(partial(change, "--max-running=2"))
        wait_until_waiting(other)
    assert "before: max-running 1, weight 1" in other.result()
    assert ConcurrencyLimit.objects.get().max_running == 2


def test_who_makes_it_last_changes_it_if_the_other_commits_just_before(
    in_thread: Callable[..., DjangoThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked whether there is one by then."""
    save = ConcurrencyLimitForm.save
    others = [partial(change, "--max-running=7")]

    def save_late(form: Any, **flags: Any) -> Any:
        while others:
            in_thread(others.pop()).result()
        return save(form, **flags)

    monkeypatch.setattr(ConcurrencyLimitForm, "save", save_late)
    assert "before: max-running 7, weight 1" in change("--max-running=9", "--note=slow API")
    assert ConcurrencyLimit.objects.filter(max_running=9, note="slow API").exists()
