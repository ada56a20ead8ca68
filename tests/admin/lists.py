"""Reading the list of jobs as a browser gets it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.test import Client
from django.urls import reverse
from psycopg import sql

from tests.factories import make_job, make_running_job

NOW = sql.SQL("now()")
LATER = sql.SQL("now() + interval '1 hour'")


def address() -> str:
    """Return the address of the list."""
    return reverse("admin:pgjobs_job_changelist")


def listed(client: Client, **query: Any) -> str:
    """Return the list of jobs."""
    response = client.get(address(), query)
    assert response.status_code == 200
    return response.content.decode()


def send(client: Client, form: dict[str, Any], *, follow: bool = False, **query: str) -> Any:
    """Send the form of the list with *query*, and return the answer."""
    return client.post(f"{address()}?{urlencode(query)}", form, follow=follow)


def ids_in(text: str) -> list[int]:
    """Return the ids of the jobs in the list, in its order."""
    return [int(found) for found in re.findall(r'class="pgjobs-task" href="(\d+)/', text)]


def link(text: str, rel: str) -> dict[str, str] | None:
    """Return the query of the link to the next or previous page, None without one."""
    found = re.search(rf'<a href="\?([^"]*)" rel="{rel}"', text)
    return query_of(found[1]) if found else None


def query_of(text: str) -> dict[str, str]:
    """Return the parameters of an address as it stands in a page."""
    return dict(parse_qsl(unescape(text), keep_blank_values=True))


def counts(text: str) -> dict[str, str]:
    """Return what each tab says of its count."""
    nav = text[text.index('class="pgjobs-tabs"') : text.index("</nav>", text.index("pgjobs-tabs"))]
    found = re.findall(r"<a [^>]*>(\w+) <span class=\"pgjobs-quiet\">(.*?)</span></a>", nav)
    return {name.lower(): re.sub(r"<[^>]*>", " ", number).strip() for name, number in found}


def make_one_of_each() -> dict[str, int]:
    """Make a job for each tab; return their ids."""
    return {
        "scheduled": make_job(run_after=LATER),
        "ready": make_job(),
        "running": make_running_job().id,
        "retrying": make_job(attempts=2, max_attempts=3, due_at=LATER),
        "blocked": make_job(hold="dependencies", waits_for=1),
        "failed": make_job(status="failed", finished_at=NOW),
        "cancelled": make_job(status="cancelled", finished_at=NOW),
        "successful": make_job(status="successful", finished_at=NOW),
    }
