"""A batch that is open by hand is sealed on its page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from django_pgjobs import workflow
from django_pgjobs.models import Batch
from django_pgjobs.signals import admin_action_performed
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.bulk_support import log_in
from tests.admin.test_workflow_actions import entries
from tests.admin.test_workflows import PAGE, read
from tests.factories import make_batch
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db

SEAL = "admin:pgjobs_batch_seal"


def seal_address(client: Client, batch_id: int) -> str:
    """Return where the form on the page of a batch seals it."""
    found = re.search(r'<form method="post" action="([^"]*)">', read(client, PAGE, batch_id))
    assert found
    return found[1]


@pytest.mark.slow
def test_a_batch_that_is_open_by_hand_is_sealed(admin_client: Client) -> None:
    heard: list[dict[str, Any]] = []

    def hear(**values: Any) -> None:
        heard.append(values)

    with workflow("forgotten", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
    run_jobs()
    assert "it is not sealed. Press Seal… on its page" in read(admin_client, PAGE, flow.pk)
    admin_action_performed.connect(hear)
    try:
        response = admin_client.post(seal_address(admin_client, flow.pk), {"reason": "forgotten"})
    finally:
        admin_action_performed.disconnect(hear)
    assert response["Location"] == reverse(PAGE, args=[flow.pk])
    run_jobs()
    flow.refresh_from_db()
    assert flow.tree_completed_at
    assert entries("seal") == [(str(flow), "seal: forgotten")]
    assert [(each["action"], each["selection"]) for each in heard] == [("seal", {"batch": flow.pk})]
    assert ">Seal…<" not in read(admin_client, PAGE, flow.pk)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_page_names_its_button(admin_client: Client, language: str) -> None:
    admin_client.cookies[settings.LANGUAGE_COOKIE_NAME] = language
    text = read(admin_client, PAGE, make_batch(sealed_at=None))
    why = text.partition('class="pgjobs-why"')[2].partition("</section>")[0]
    [button] = re.findall(r'<summary class="button">(.*?)</summary>', text)
    assert button in why


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"sealed_at": None, "cancel_requested_at": NOW},
        {"sealed_at": None, "follows": "each"},
        {"sealed_at": None, "completed_at": NOW, "tree_completed_at": NOW},
    ],
)
def test_what_is_not_open_by_hand_is_not_sealed(
    admin_client: Client, columns: dict[str, Any]
) -> None:
    flow = make_batch(parent_id=make_batch() if "follows" in columns else None, **columns)
    before = Batch.objects.filter(pk=flow).values().get()
    assert ">Seal…<" not in read(admin_client, PAGE, flow)
    response = admin_client.post(reverse(SEAL, args=[flow]), follow=True)
    assert "the workflow changed meanwhile" in response.content.decode()
    assert Batch.objects.filter(pk=flow).values().get() == before
    assert entries("seal") == []


def test_a_batch_is_sealed_by_post_with_a_reason_of_some_length(admin_client: Client) -> None:
    flow = make_batch(sealed_at=None)
    assert admin_client.get(reverse(SEAL, args=[flow])).status_code == 405
    assert admin_client.post(reverse(SEAL, args=[10**9])).status_code == 404
    response = admin_client.post(reverse(SEAL, args=[flow]), {"reason": "x" * 501}, follow=True)
    assert "at most 500 characters" in response.content.decode()
    assert Batch.objects.get(pk=flow).sealed_at is None


def test_who_may_only_look_seals_nothing() -> None:
    flow = make_batch(sealed_at=None)
    client = log_in("view_job")
    assert ">Seal…<" not in read(client, PAGE, flow)
    assert client.post(reverse(SEAL, args=[flow])).status_code == 403
    assert Batch.objects.get(pk=flow).sealed_at is None
