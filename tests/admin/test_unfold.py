"""The admin in the theme django-unfold: every page can be drawn.

pip install django-unfold
pytest --ds tests.admin.unfold_settings tests/admin/test_unfold.py
"""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from tests.admin.demo_data import fill
from tests.browser.pages import PAGES

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        "unfold" not in settings.INSTALLED_APPS, reason="needs tests.admin.unfold_settings"
    ),
]


def test_every_page_is_drawn(client: Client) -> None:
    fill()
    client.force_login(User.objects.get(username="admin"))
    addresses = {name: make() for name, make in PAGES.items()}
    answers = {name: client.get(address) for name, address in addresses.items()}
    assert {
        name: answer.status_code
        for name, answer in answers.items()
        if answer.status_code != 200 and name != "job, missing"
    } == {}
    assert "unfold" in answers["overview"].content.decode()
