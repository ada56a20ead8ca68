"""What is masked for a person cannot be found out by searching, counting, changing or exporting."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgjobs.admin.job_list.links import COUNT_AFTER
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import create_change, run_change
from django_pgjobs.bulk.lookups import conditions, names_masked
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import BulkChange, Job
from tests.admin.bulk_support import address, confirm, log_in, text_of
from tests.admin.lists import address as list_address
from tests.admin.lists import ids_in, listed, send
from tests.factories import get_job, make_job
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db

SECRET = {"customer": {"id": 5, "password": "hunter2"}, "items": [{"card": "4111"}], "note": "{x"}


def reveal_mail(user: Any, permission: str, jobs: Any) -> Any:
    """Show masked values of the queue "mail" only; a function of a project."""
    is_other = jobs is None or permission != "pgjobs.reveal_job"
    return True if is_other else jobs.filter(queue_name="mail")


def lookups(*path: str, value: str) -> dict[str, Any]:
    """Return the lookup of an argument."""
    return {"argument": {"path": list(path), "value": value}}


@pytest.fixture
def jobs(settings: Any) -> tuple[int, int]:
    """The ids of two jobs with the same secrets; those of the first may be seen."""
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.reveal_mail"}
    mail, other = (
        make_job(queue_name=queue, kwargs=SECRET, status="failed", finished_at=NOW)
        for queue in ("mail", "other")
    )
    return mail, other


@pytest.fixture
def client() -> Client:
    """The browser of somebody who may reveal what the function leaves over."""
    return log_in("view_job", "reveal_job", "operate_job")


def test_a_search_for_a_masked_value_finds_what_one_may_reveal(
    client: Client, jobs: tuple[int, int]
) -> None:
    text = listed(client, q="args.customer.password:hunter2")
    assert ids_in(text) == [jobs[0]]
    assert "only in jobs whose masked values you may see" in text
    text = listed(client, q="args.customer.id:5")
    assert ids_in(text) == [jobs[1], jobs[0]]
    assert "only in jobs" not in text


def test_new_jobs_with_a_masked_value_are_not_counted(
    client: Client, jobs: tuple[int, int]
) -> None:
    query = {"q": "args.customer.password:hunter2", COUNT_AFTER: str(min(jobs) - 1)}
    assert client.get(list_address(), query).json() == {"text": "1 new job"}


@pytest.mark.parametrize(
    "found",
    [
        lookups("customer", "password", value="hunter2"),
        {"all_of": [lookups("items", "0", "card", value="4111"), {"status": "failed"}]},
        {"any_of": [{"queue_name": "none"}, lookups("customer", "password", value="hunter2")]},
    ],
)
def test_a_bulk_change_by_a_masked_value_is_of_what_one_may_reveal(
    client: Client, jobs: tuple[int, int], found: dict[str, Any]
) -> None:
    """Also if the link to it was made by somebody who may see more."""
    where = address("requeue", Selection(found))
    assert "1 job" in text_of(client, where)
    confirm(client, where)
    assert [get_job(job_id).status for job_id in jobs] == ["ready", "failed"]
    assert BulkChange.objects.get().changed == 1


def test_an_export_by_a_masked_value_is_of_what_one_may_reveal(
    client: Client, jobs: tuple[int, int]
) -> None:
    where = address("export", Selection(lookups("customer", "password", value="hunter2")))
    response = confirm(client, where, file_format="jsonl")
    text = b"".join(response.streaming_content).decode()
    assert text.count('"task_path"') == 1
    assert '"queue_name": "mail"' in text


def test_who_reveals_nothing_selects_nothing_by_a_masked_value(jobs: tuple[int, int]) -> None:
    viewer = log_in("view_job", "operate_job")
    selection = Selection(lookups("customer", "password", value="hunter2"))
    where = address("requeue", selection)
    assert "There is no job that this can be done to." in text_of(viewer, where)
    change = create_change(ACTIONS["requeue"], selection.pinned(), {}, user=User.objects.get())
    assert run_change(change.pk).changed == []
    assert {get_job(job_id).status for job_id in jobs} == {"failed"}
    assert not ids_in(listed(viewer, q="args.customer.password:hunter2"))


def test_an_action_on_all_that_a_search_finds_is_of_what_one_may_reveal(
    client: Client, jobs: tuple[int, int]
) -> None:
    form = {"action": "requeue", "select_across": "1", "_selected_action": str(jobs[0])}
    response = send(client, form, q="args.customer.password:hunter2")
    assert response.status_code == 302
    assert "1 job" in text_of(client, response["Location"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["customer"], '{"id": 5, "password": "hunter2"}'),
        (["items"], '[{"card": "4111"}]'),
        (["items", "0"], '{"card": "4111"}'),
    ],
)
def test_an_object_is_not_found_by_its_text(
    admin_client: Client, path: list[str], value: str
) -> None:
    """It could be guessed with the masked values in it."""
    job_id = make_job(kwargs=SECRET)
    assert not Job.objects.filter(conditions(lookups(*path, value=value))).exists()
    quoted = value.replace('"', '\\"')
    assert job_id not in ids_in(listed(admin_client, q=f'args.{".".join(path)}:"{quoted}"'))


def test_a_text_that_begins_like_an_object_is_found() -> None:
    make_job(kwargs=SECRET)
    assert Job.objects.filter(conditions(lookups("note", value="{x"))).count() == 1


def test_which_lookups_tell_of_masked_values(settings: Any) -> None:
    assert names_masked(lookups("a", "API_Token", value="x"))
    assert names_masked({"all_of": [{"any_of": [lookups("pwd", value="x")]}]})
    assert not names_masked({"all_of": [lookups("a", value="token"), {"queue_name": "token"}]})
    settings.PGJOBS = {"REDACT": ["iban"]}
    assert names_masked(lookups("a", "iban", value="x"))
    assert not names_masked(lookups("pwd", value="x"))


def test_superusers_search_everything(admin_user: User, admin_client: Client) -> None:
    job_id = make_job(kwargs=SECRET)
    assert admin_user.is_superuser
    assert ids_in(listed(admin_client, q="args.customer.password:hunter2")) == [job_id]
