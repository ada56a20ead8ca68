"""Who sees the jobs of one tenant learns nothing of another's, on any page, and changes nothing.

Everything of the other tenant is called zebra, or has a number that begins like `NUMBER`. What a
person asks for comes back in the answer, so what names something of the other tenant is answered
as the same question about something that is not there (a quagga).
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_pgjobs.bulk import ACTIONS, Selection
from django_pgjobs.models import (
    BulkChange,
    Job,
)
from django_pgjobs.permissions import Verb, is_narrowed, may, narrow
from tests.admin.bulk_support import address as bulk_address
from tests.admin.bulk_support import token_of
from tests.admin.tenants import MATRIX, NUMBER, Rows, ask, forms, nothing_in, plain, shown, state
from tests.admin.test_view_only import NAMES
from tests.factories import get_job, make_job, make_running_job

pytestmark = pytest.mark.django_db


def only_own(user: Any, permission: str, jobs: Any) -> Any:
    """Let people see and do what is of the queue "own"; a function of a project."""
    return True if jobs is None else jobs.filter(queue_name="own")


def own_to_operate(user: Any, permission: str, jobs: Any) -> Any:
    """Let people see everything, and act on the queue "own"."""
    return True if jobs is None or "view" in permission else jobs.filter(queue_name="own")


@pytest.fixture(autouse=True)
def _hook(settings: Any) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.only_own"}


@pytest.fixture
def person() -> User:
    """Somebody with every permission of this package, narrowed by the project."""
    user = User.objects.create_user("antelope", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="pgjobs"))
    return user


@pytest.fixture
def client(person: User) -> Client:
    """The browser of that person."""
    browser = Client()
    browser.force_login(person)
    return browser


def test_every_address_is_in_the_matrix() -> None:
    """A new page has to say here what it shows to whom."""
    assert set(MATRIX) == set(NAMES)


@pytest.mark.parametrize("name", sorted(MATRIX))
def test_no_page_says_anything_of_another_tenant(client: Client, person: User, name: str) -> None:
    rows = Rows(person)
    pages = MATRIX[name](rows, True)
    for address in [*pages, reverse("admin:index"), reverse("admin:app_list", args=["pgjobs"])]:
        text = ask(client, address)
        assert "zebra" not in text, address
        assert str(NUMBER)[:6] not in text, address


@pytest.mark.parametrize("name", sorted(MATRIX))
def test_what_another_tenant_has_looks_like_what_is_not_there(
    client: Client, person: User, name: str
) -> None:
    """Also its absence would tell: 403 for a job of others, 404 for none."""
    rows = Rows(person)
    for address in MATRIX[name](rows, False):
        if "selection=" in address:
            assert "zebra" not in ask(client, address)
            continue
        told = ask(client, address)
        assert nothing_in(told) == ask(client, nothing_in(address)), address


# A change of one's own may be ended and continued, and a bulk change lets a worker do it.
@pytest.mark.parametrize("name", sorted(set(MATRIX) - {"pgjobs_job_bulk"}))
def test_no_form_changes_anything_of_another_tenant(
    client: Client, person: User, name: str
) -> None:
    rows = Rows(person)
    before = state()
    pages = MATRIX[name](rows, False) + plain(name)(rows, True) if name in (
        "pgjobs_queue_resume", "pgjobs_rate_reset", "pgjobs_worker_control", "pgjobs_queue_pause",
        *(f"pgjobs_{model}_add" for model in ("pause", "queuesettings", "concurrencylimit")),
    ) else MATRIX[name](rows, False)  # fmt: skip
    for address in pages:
        for form in forms(rows):
            response = client.post(address, form)
            assert response.status_code < 500, address
            assert state() == before, (address, form)
    assert not LogEntry.objects.filter(user=person).exists()


@pytest.mark.parametrize("verb", sorted(set(ACTIONS) - {"export", "move"}))
def test_a_bulk_change_of_everything_leaves_the_other_tenant_alone(
    client: Client, person: User, verb: str
) -> None:
    Rows(person)
    before = state()
    where = bulk_address(verb, Selection({}))
    form = {"preview": token_of(client, where), "when": "now", "amount": "1", "unit": "60"}
    response = client.post(where, form | ({"when": "in"} if verb == "postpone" else {}))
    assert response.status_code == 302
    assert BulkChange.objects.filter(user_id=str(person.pk), verb=verb).exists()
    after = state()
    # One's own end lets go what waits for it, whoever's that is: it is what was asked for.
    for table in after:
        if table != "pgjobs_dependency":
            assert after[table] == before[table], table


def test_an_export_of_everything_holds_what_one_sees(client: Client, person: User) -> None:
    rows = Rows(person)
    where = bulk_address("export", Selection({}))
    form = {"preview": token_of(client, where), "file_format": "jsonl"}
    text = shown(client.post(where, form))
    assert text.count('"status"') == len(rows.own)
    assert "zebra" not in text


def test_jobs_are_not_moved_to_where_one_may_not_act(client: Client, person: User) -> None:
    job_id = make_job(queue_name="own")
    where = bulk_address("move", Selection.ids([job_id]))
    form = {"preview": token_of(client, where), "queue_name": "zebra-queue"}
    client.post(where, form)
    assert get_job(job_id).queue_name == "own"
    change = BulkChange.objects.get()
    assert change.finished_at is not None
    assert "antelope may not act on the jobs where they would be" in change.error
    client.post(where, {"preview": token_of(client, where), "priority": "7"})
    assert get_job(job_id).priority == 7


def test_a_copy_is_not_enqueued_where_one_may_not_act(client: Client) -> None:
    job_id = make_job(queue_name="own")
    where = reverse("admin:pgjobs_job_copy", args=[job_id])
    form = {"args": "[1, 2]", "kwargs": "{}", "priority": "0"}
    response = client.post(where, form | {"queue_name": "zebra-queue"})
    assert "You may not enqueue this job there." in response.content.decode()
    assert Job.objects.count() == 1
    client.post(where, form | {"queue_name": "own"})
    assert Job.objects.count() == 2


def test_a_unique_key_that_another_tenant_holds_is_all_that_one_is_told(
    client: Client, person: User
) -> None:
    rows = Rows(person)
    response = client.post(
        reverse("admin:pgjobs_job_do", args=[rows.own["twin"], "retry"]), follow=True
    )
    text = response.content.decode()
    assert "another unfinished job has its unique key" in text
    assert str(NUMBER)[:6] not in text


def test_a_page_of_the_whole_installation_says_why_it_is_closed(client: Client) -> None:
    for name in ("worker_changelist", "queuesettings_changelist", "job_system", "pause_add"):
        response = client.get(reverse(f"admin:pgjobs_{name}"))
        assert response.status_code == 403
        assert "You see some of the jobs" in response.content.decode()


def test_links_lead_only_where_one_may_go(client: Client) -> None:
    job_id = make_running_job(queue_name="own", rate_limit_keys="api").id
    for address in (
        reverse("admin:pgjobs_job_change", args=[job_id]),
        reverse("admin:pgjobs_job_changelist"),
        reverse("admin:index"),
    ):
        text = client.get(address).content.decode()
        for model in ("worker", "queuesettings", "ratelimit", "pause"):
            assert f"/pgjobs/{model}/" not in text, address


def test_who_acts_on_some_jobs_ends_no_change_of_others(
    client: Client, person: User, settings: Any
) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.own_to_operate"}
    rows = Rows(person)
    other = reverse("admin:pgjobs_job_bulk_progress", args=[rows.change])
    text = client.get(other).content.decode()
    assert "zebra-why" in text
    assert 'name="cancel"' not in text
    for what in ("cancel", "continue"):
        assert client.post(other, {what: "1"}).status_code == 403
    assert BulkChange.objects.get(pk=rows.change).finished_at is None
    own = reverse("admin:pgjobs_job_bulk_progress", args=[rows.own_change])
    assert client.post(own, {"cancel": "1"}).status_code == 302
    assert BulkChange.objects.get(pk=rows.own_change).finished_at is not None


def test_nobody_acts_on_what_they_do_not_see(person: User, settings: Any) -> None:
    """A function that narrows what is seen need not say it again for each thing to do."""
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.own_to_see"}
    own, other = make_job(queue_name="own"), make_job(queue_name="zebra")
    for verb in (Verb.OPERATE, Verb.DELETE, Verb.ENQUEUE, Verb.REVEAL):
        assert [job.pk for job in narrow(person, verb, Job.objects.all())] == [own]
        assert not may(person, verb, Job.objects.get(pk=other))
    for verb in (Verb.CONTROL_QUEUES, Verb.CONTROL_WORKERS):
        assert not may(person, verb)


def own_to_see(user: Any, permission: str, jobs: Any) -> Any:
    """Narrow what is seen, and nothing else."""
    is_view = permission == Verb.VIEW.value
    return jobs.filter(queue_name="own") if is_view and jobs is not None else True


ANSWERS: dict[str, tuple[Any, bool]] = {
    "all": (lambda jobs: True, False),
    "as given": (lambda jobs: jobs, False),
    "copy": (lambda jobs: jobs.all(), False),
    "none": (lambda jobs: False, True),
    "filter": (lambda jobs: jobs.filter(queue_name="a"), True),
    "exclude": (lambda jobs: jobs.exclude(queue_name="a"), True),
    "empty": (lambda jobs: jobs.none(), True),
    "slice": (lambda jobs: jobs[:10], True),
    "union": (lambda jobs: jobs.filter(queue_name="a").union(jobs.filter(queue_name="b")), True),
    "distinct": (lambda jobs: jobs.distinct("queue_name"), True),
}
CHOSEN: list[Any] = []


def chosen(user: Any, permission: str, jobs: Any) -> Any:
    """Answer as the test says."""
    return True if jobs is None else CHOSEN[0](jobs)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_fewer_jobs_is_known(person: User, settings: Any, name: str) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.chosen"}
    CHOSEN[:], expected = [ANSWERS[name][0]], ANSWERS[name][1]
    assert is_narrowed(person) is expected
    assert may(person, Verb.CONTROL_QUEUES) is not expected
