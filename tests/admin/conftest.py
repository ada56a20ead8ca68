"""People who look at pages, some of an installation with two tenants."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_pgjobs.bulk import preview
from tests.admin.tenants import ONLY_OWN, make_person


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is to be there at once takes its time: the machine may be busy."""
    monkeypatch.setattr(preview, "QUICK_SECONDS", 60)


@pytest.fixture
def viewer(client: Client) -> Client:
    """Somebody who may look and do nothing."""
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(user)
    return client


@pytest.fixture
def two_tenants(settings: Any) -> None:
    """The project lets people see and do what is of the queue "own"."""
    settings.PGJOBS = {"ADMIN_PERMISSION": ONLY_OWN}


@pytest.fixture
def person(two_tenants: None) -> User:
    """Somebody with every permission of this package, narrowed by the project."""
    return make_person()


@pytest.fixture
def person_client(person: User) -> Client:
    """The browser of that person."""
    browser = Client()
    browser.force_login(person)
    return browser
