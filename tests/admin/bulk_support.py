"""What the tests of the pages of bulk changes share."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.bulk import preview
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from tests.test_admin import page

FAILED = Selection({"status": "failed"})


def address(verb: str, selection: Selection, **options: str) -> str:
    """Return the address of the page that asks."""
    return bulk_address(admin.site._registry[Job], verb, selection, **options)


def let_counts_take(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let counts beyond the newest rows take so long."""
    real = preview.Walk.total

    def total(walk: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(%s)", [seconds])
        return real(walk)

    monkeypatch.setattr(preview.Walk, "total", total)


def text_of(client: Client, where: str) -> str:
    """Return the text of a page without tags and runs of white space."""
    response = client.get(where)
    assert response.status_code == 200
    text = re.sub(r"<[^>]*>", " ", response.content.decode().replace("<wbr>", ""))
    return html.unescape(re.sub(r"\s+", " ", text))


def token_of(client: Client, where: str) -> str:
    """Return what the form of the page carries."""
    found = re.search(r'name="preview" value="([^"]+)"', client.get(where).content.decode())
    assert found
    return found[1]


def confirm(client: Client, where: str, **fields: Any) -> Any:
    """Look at the page and confirm it; return the response."""
    data = {"preview": token_of(client, where), "reason": "", "when": "now", **fields}
    return client.post(where, data)


def said(client: Client) -> str:
    """Return the messages that the next page shows, without tags."""
    text = client.get(page("job", "bulk")).content.decode()
    found = re.search(r'<ul class="messagelist">(.*?)</ul>', text, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", found[1])).strip() if found else ""


def log_in(*codenames: str) -> Client:
    """Return a client of somebody of the staff with some permissions."""
    user = User.objects.create_user("someone", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def counting(where: str) -> str:
    """Return the address of a page that counts all."""
    return f"{where}&count=1"


def post(client: Client, where: str, token: str, **fields: str) -> tuple[int, str]:
    """Confirm what a page of before was about; return the status and the text of the answer."""
    response = client.post(where, {"preview": token, "reason": "", **fields})
    return response.status_code, html.unescape(response.content.decode())


def confirm_again(client: Client, where: str, text: str, **fields: str) -> None:
    """Confirm what the page drawn anew is about."""
    found = re.search(r'name="preview" value="([^"]+)"', text)
    assert found
    assert post(client, where, found[1], **fields)[0] == 302
