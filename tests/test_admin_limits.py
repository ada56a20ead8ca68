"""Limits and pauses in the admin: they can be changed, and wrong values are refused in words."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_pgjobs.models import ConcurrencyLimit, Pause, QueueSettings, RateLimit

MORE = "greater than or equal"

pytestmark = pytest.mark.django_db


def post(client: Client, model: str, *args: Any, **values: Any) -> Any:
    """Send a form and return the answer."""
    name = "change" if args else "add"
    return client.post(reverse(f"admin:pgjobs_{model}_{name}", args=args), values)


def test_a_limit_can_be_added_and_changed(admin_client: Client) -> None:
    """S1.15: dynamic settings."""
    given = {"pattern": "shop:*", "max_running": 5, "weight": 1, "note": ""}
    assert post(admin_client, "concurrencylimit", **given).status_code == 302
    assert post(
        admin_client, "concurrencylimit", "shop:*", **given | {"max_running": 7}
    ).status_code
    assert ConcurrencyLimit.objects.values_list("pattern", "max_running").get() == ("shop:*", 7)


def test_a_change_cannot_make_a_second_row(admin_client: Client) -> None:
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=5)
    post(admin_client, "concurrencylimit", "shop:*", pattern="other", max_running=6, weight=1)
    assert ConcurrencyLimit.objects.values_list("pattern", "max_running").get() == ("shop:*", 6)


@pytest.mark.parametrize(
    ("model", "values", "words"),
    [
        (
            "concurrencylimit",
            {"pattern": "a", "max_running": 0, "weight": 1},
            MORE,
        ),
        (
            "queuesettings",
            {"queue_name": "a", "max_running": -1, "boost": 0},
            MORE,
        ),
        ("queuesettings", {"queue_name": "a", "boost": 300}, "less than or equal"),
        ("ratelimit", {"name": "a", "count": 0, "period": 1}, MORE),
        ("ratelimit", {"name": "a", "count": 5, "period": 0}, MORE),
        ("ratelimit", {"name": "a", "count": 5, "period": 1, "burst": 6}, "at most the count"),
        ("pause", {"kind": "planet", "name": "a"}, "Select a valid choice"),
        ("pause", {"kind": "queue", "name": ""}, "This field is required"),
    ],
)
def test_a_wrong_value_is_refused_in_words(
    admin_client: Client, model: str, values: dict[str, Any], words: str
) -> None:
    response = post(admin_client, model, **values)
    assert response.status_code == 200
    assert words in response.content.decode()
    for table in (ConcurrencyLimit, QueueSettings, RateLimit, Pause):
        assert not table.objects.exists()


@pytest.mark.parametrize("model", ["concurrencylimit", "queuesettings", "ratelimit", "pause"])
def test_the_lists_are_there(admin_client: Client, model: str) -> None:
    ConcurrencyLimit.objects.create(pattern="shown", max_running=5)
    QueueSettings.objects.create(queue_name="shown")
    RateLimit.objects.create(name="shown", count=1, period=1)
    Pause.objects.create(kind="queue", name="shown")
    text = admin_client.get(reverse(f"admin:pgjobs_{model}_changelist")).content.decode()
    assert "shown" in text
