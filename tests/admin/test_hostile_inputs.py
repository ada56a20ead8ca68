"""Whatever stands in an address or a form, a page answers: no text of a visitor breaks one.

The addresses are those of the resolver, the names of parameters those that the package's source
asks for and that the pages' own forms have: what is added later is tried here, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import NoReverseMatch, reverse

from django_pgjobs import task
from django_pgjobs.admin.job_list.links import AFTER, BEFORE, COUNT_AFTER, PAGE_SIZE, TAB
from django_pgjobs.models import Job
from tests import helpers
from tests.admin.test_view_only import NAMES, Rows
from tests.factories import make_job
from tests.helpers import some_always
from tests.test_admin import NOW, page

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

# As they stand in an address, encoded: what is no text in any encoding is among them.
HOSTILE = {
    "NUL": b"a\0b",
    "line break": b"a\r\nX-Evil: 1\n",
    "surrogate": b"\xed\xa0\x80",
    "no UTF-8": b"\xff\xfe",
    "long number": b"9" * 30,
    "longest number": b"9223372036854775807",
    "huge": b"1e999",
    "no number": b"nan",
    "infinite": b"infinity",
    "late": b"20000-01-01",
    "last": b"9999-12-31T23:59:59",
    "deep": b"[" * 5_000,
    "long": b"x" * 20_000,
    "places": b"%s%(x)s{0}{{ x }}",
    "search": b"args.\0:1 id:99999999999999999999 error:( q:",
}
ASKED = re.compile(
    r"""(?:GET|POST|given)(?:\.get|\.getlist)?[(\[]"(\w+)"|"(\w+)"\ (?:not\ )?in\ request\."""
)
FIELD = re.compile(
    r"""<(?:input|select|textarea|button)[^>]*\ name="([^"]+)"|href="[^"]*[?;](\w+)=""", re.VERBOSE
)
# Of one name: there is a button of a job for each status.
MOST = 3
# The first of them always, the others in .ci/run.
VALUES = some_always(HOSTILE, every=len(HOSTILE))
# One of each kind, for what is tried one by one.
FEW = ("NUL", "surrogate", "long number")


def asked_for() -> set[str]:
    """Return the names of parameters that the source of the admin asks for."""
    folder = helpers.ROOT / "django_pgjobs" / "admin"
    found = [ASKED.findall(path.read_text()) for path in folder.rglob("*.py")]
    return {name for names in found for pair in names for name in pair if name}


def fields_of(client: Client, rows: Rows) -> set[str]:
    """Return the names of the fields on all pages."""
    found: set[str] = set()
    for name in NAMES:
        for address in rows.addresses(name):
            for pair in FIELD.findall(client.get(address).content.decode()):
                found.update(filter(None, pair))
    return found


KNOWN = (
    *("q", "tab", "after", "before", "range", "name", "kind", "next", "verb", "selection", "do"),
    *("queue", "task", "worker", "index", "action", "select_across", "_selected_action", "at"),
)


# Collected once: the same for all tests.
FOUND: set[str] = set()


def query_of(names: set[str], value: bytes) -> str:
    """Return a query in which all parameters have one value."""
    return urlencode(dict.fromkeys(sorted(names), value))


@pytest.fixture
def rows() -> Rows:
    """One of everything."""
    return Rows()


@pytest.fixture
def names(admin_client: Client, rows: Rows) -> set[str]:
    """Every parameter that there is."""
    if not FOUND:
        FOUND.update({TAB, PAGE_SIZE, AFTER, BEFORE, COUNT_AFTER})
        FOUND.update(asked_for() | fields_of(admin_client, rows))
    return FOUND


def test_the_parameters_are_found(names: set[str]) -> None:
    assert set(KNOWN) - names == set()
    assert len(names) > 40


def answers(client: Client, method: str, address: str, query: str) -> None:
    """Send a request; a page that falls raises here."""
    if method == "get":
        response = client.get(f"{address}{'&' if '?' in address else '?'}{query}")
    else:
        kind = "application/x-www-form-urlencoded"
        response = client.post(address, query, content_type=kind)
    assert response.status_code < 500, address
    assert "X-Evil" not in response.headers


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("method", ["get", pytest.param("post", marks=pytest.mark.slow)])
def test_no_parameters_break_a_page(
    admin_client: Client, rows: Rows, names: set[str], method: str, value: str
) -> None:
    """On a page of a bulk change the link of it stays: a damaged one is told so at once."""
    query = query_of(names, HOSTILE[value])
    # Before anything is deleted by one of them.
    addresses = [address for name in NAMES for address in rows.addresses(name)[:MOST]]
    for address in addresses:
        answers(admin_client, method, address.partition("?")[0], query)
        if "?" in address:
            kept = names - {"verb", "selection", "name"}
            answers(admin_client, method, address, query_of(kept, HOSTILE[value]))


@pytest.mark.parametrize("value", FEW)
def test_no_single_parameter_breaks_the_list(
    admin_client: Client, names: set[str], value: str
) -> None:
    make_job(status="failed", finished_at=NOW)
    for name in sorted(names):
        answers(admin_client, "get", page("job", "changelist"), query_of({name}, HOSTILE[value]))


@pytest.mark.parametrize("value", VALUES)
def test_no_key_in_an_address_breaks_a_page(admin_client: Client, value: str) -> None:
    key = quote(HOSTILE[value], safe="")
    found = [address for name in NAMES for address in addresses_with_keys(name)]
    assert len(found) > 15
    for address in found:
        for method in ("get", "post"):
            answers(admin_client, method, address.replace("/7/", f"/{key}/"), "")


def addresses_with_keys(name: str) -> Iterator[str]:
    """Yield the address of that name with a 7 for each of its parts."""
    for count in (1, 2):
        with suppress(NoReverseMatch):
            yield reverse(f"admin:{name}", args=["7"] * count)


@task
def take(values: Any = None) -> None:
    """Take a list."""


@pytest.mark.parametrize(
    "text",
    ["[" * 5_000, "[" * 5_000 + "]" * 5_000, "[" * 500 + "]" * 500, '{"a":' * 5_000, "[NaN]",
     "[1e999]", "[" + "9" * 5_000 + "]", '["\\u0000"]', '["\\ud800"]'],
    ids=lambda text: text[:8],
)  # fmt: skip
def test_what_cannot_be_arguments_is_refused_in_the_form_of_a_copy(
    admin_client: Client, text: str
) -> None:
    job_id = make_job(take.module_path)
    where = page("job", "copy", job_id)
    for args, kwargs in ((text, "{}"), ("[]", f'{{"values": {text}}}')):
        data = {"args": args, "kwargs": kwargs, "queue_name": "default", "priority": "0"}
        response = admin_client.post(where, data)
        assert response.status_code == 200
        assert 'class="errorlist"' in response.content.decode()
    assert Job.objects.count() == 1


def test_the_admin_has_the_pages_that_are_tried() -> None:
    assert any(model is Job for model in admin.site._registry)
    assert len(NAMES) >= 35
