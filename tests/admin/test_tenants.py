"""Who sees the jobs of one tenant learns nothing of another's, on any page, and changes nothing.

Everything of the other tenant is called zebra, or has a number that begins like `NUMBER`. What a
person asks for comes back in the answer, so what names something of the other tenant is answered
as the same question about something that is not there (a quagga).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import (
    BulkChange,
)
from tests.admin.bulk_support import address as bulk_address
from tests.admin.bulk_support import token_of
from tests.admin.tenants import (
    MATRIX,
    NUMBER,
    Rows,
    ask,
    nothing_in,
    plain,
    shown,
    state,
)
from tests.admin.test_view_only import NAMES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.usefixtures("two_tenants"),
]


def forms(rows: Rows, name: str) -> Iterator[dict[str, Any]]:
    """Yield forms that would do something at that address, if somebody else sent them."""
    yield {}
    yield {"at": "2030-01-01 00:00", "reason": "x", "post": "yes"}
    yield {"args": "[]", "kwargs": "{}", "queue_name": "zebra-queue", "priority": "0"}
    yield {"cancel": "1"}
    yield {"continue": "1"}
    if not name.startswith("pgjobs_job_"):
        yield from forms_of_all(rows)


def forms_of_all(rows: Rows) -> Iterator[dict[str, Any]]:
    """Yield forms of what is about the whole installation."""
    yield {"_save": "1", "post": "yes", "count": "9", "max_running": "9", "period": "1"}
    yield {"kind": "queue", "name": "zebra-queue", "reason": "x"}
    yield {"kind": "queue", "name": "own", "reason": "x"}
    yield {"queue_name": "fresh", "max_running": "7", "boost": "0", "pattern": "fresh"}
    yield {"kind": "key", "name": "zebra*", "target": "key zebra*"}
    yield {"target": "queue zebra-queue", "key": "zebra-rate:zebra", "confirmed": "1"}
    for verb in ("quiet", "resume", "stop", "forget"):
        for whom in ("all", str(rows.worker)):
            yield {"do": f"{verb} {whom}", "confirmed": "1"}


def test_every_address_is_in_the_matrix() -> None:
    """A new page has to say here what it shows to whom."""
    assert set(MATRIX) == set(NAMES)


@pytest.mark.parametrize("name", sorted(MATRIX))
def test_no_page_says_anything_of_another_tenant(
    person_client: Client, person: User, name: str
) -> None:
    rows = Rows(person)
    around = (
        []
        if name != "pgjobs_job_overview"
        else [reverse("admin:index"), reverse("admin:app_list", args=["pgjobs"])]
    )
    for address in MATRIX[name](rows, True) + around:
        text = ask(person_client, address)
        assert "zebra" not in text, address
        assert str(NUMBER)[:6] not in text, address


@pytest.mark.parametrize("name", sorted(MATRIX))
def test_what_another_tenant_has_looks_like_what_is_not_there(
    person_client: Client, person: User, name: str
) -> None:
    """Also its absence would tell: 403 for a job of others, 404 for none."""
    rows = Rows(person)
    for address in MATRIX[name](rows, False):
        if "selection=" in address:
            assert "zebra" not in ask(person_client, address)
            continue
        # Ages are told to the second: what differs once may have been asked in two of them.
        for _ in range(3):
            told = nothing_in(ask(person_client, address))
            otherwise = ask(person_client, nothing_in(address))
            if told == otherwise:
                break
        assert told == otherwise, address


# A change of one's own may be ended and continued, and a bulk change lets a worker do it.
@pytest.mark.parametrize("name", sorted(set(MATRIX) - {"pgjobs_job_bulk"}))
def test_no_form_changes_anything_of_another_tenant(
    person_client: Client, person: User, name: str
) -> None:
    rows = Rows(person)
    before = state()
    pages = MATRIX[name](rows, False) + plain(name)(rows, True) if name in (
        "pgjobs_queue_resume", "pgjobs_rate_reset", "pgjobs_worker_control", "pgjobs_queue_pause",
        *(f"pgjobs_{model}_add" for model in ("pause", "queuesettings", "concurrencylimit")),
    ) else MATRIX[name](rows, False)  # fmt: skip
    for address in pages:
        for form in forms(rows, name):
            response = person_client.post(address, form)
            assert response.status_code < 500, address
            assert state() == before, (address, form)
    assert not LogEntry.objects.filter(user=person).exists()


@pytest.mark.parametrize("verb", sorted(set(ACTIONS) - {"export", "move"}))
def test_a_bulk_change_of_everything_leaves_the_other_tenant_alone(
    person_client: Client, person: User, verb: str
) -> None:
    rows = Rows(person)
    before = state()
    where = bulk_address(verb, Selection({}))
    form = {"preview": token_of(person_client, where), "when": "now", "amount": "1", "unit": "60"}
    response = person_client.post(where, form | ({"when": "in"} if verb == "postpone" else {}))
    assert response.status_code == 302
    assert BulkChange.objects.filter(user_id=str(person.pk), verb=verb).exists()
    after = state()
    # One's own end lets go what waits for it, whoever's that is: it is what was asked for. So is
    # what one's own jobs count in their batches.
    counting = tuple(f"({batch_id}," for batch_id in (rows.own_batch, rows.mixed_batch))
    for found in (before, after):
        batches = found["pgjobs_batch"]
        found["pgjobs_batch"] = [row for row in batches if not row.startswith(counting)]
    # What ended is counted, by queue and task.
    counted = after.pop("pgjobs_statistic") or ()
    assert not [row for row in counted if ",own," not in row]
    before.pop("pgjobs_statistic")
    for table in after:
        if table != "pgjobs_dependency":
            assert after[table] == before[table], table


def test_an_export_of_everything_holds_what_one_sees(person_client: Client, person: User) -> None:
    rows = Rows(person)
    where = bulk_address("export", Selection({}))
    form = {"preview": token_of(person_client, where), "file_format": "jsonl"}
    text = shown(person_client.post(where, form))
    assert text.count('"status"') == len(rows.own)
    assert "zebra" not in text
