"""The page Failures: what belongs together, how many there are, and what can be done with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs.admin.overview import failures
from django_pgjobs.admin.overview.failures import history, list_query, lookups_of
from django_pgjobs.bulk.lookups import conditions
from django_pgjobs.control.failures import class_name
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from django_pgjobs.models.failure_groups import error_class_expression, error_message_expression
from django_pgjobs.queries.failures import FailureRow, list_failures
from tests.admin.lists import ids_in
from tests.admin.overview_support import LOCAL_CACHE
from tests.factories import ago, make_job, make_jobs
from tests.odd_rows import admit_odd_values
from tests.test_admin import HOSTILE, ROWS

pytestmark = pytest.mark.django_db

YEARS = 1e9
UUID = "0b54c1b2-6a1f-4c55-9f0e-2d8f3d1c7a10"


def make_failed(
    message: Any, *, name: Any = "shop.errors.Refused", count: int = 1, **columns: Any
) -> list[int]:
    """Insert failed jobs with one error and return their ids."""
    error = {"exception_class": name, "message": message, "traceback": "t"}
    given = {"status": "failed", "finished_at": ago(60), "errors": [error]}
    return make_jobs(count, **{"task_path": "shop.tasks.pay", **given, **columns})


def groups(**options: Any) -> list[FailureRow]:
    """Return the groups of all failed jobs."""
    given = {"seconds": YEARS, "max_jobs": 100_000, "max_groups": 50}
    with connection.cursor() as cursor:
        return list_failures(cursor, **(given | options))


def read(client: Client, **query: str) -> str:
    """Return the text of the page."""
    response = client.get(reverse("admin:pgjobs_job_failures"), query)
    assert response.status_code == 200
    return response.content.decode()


def test_first_seen_is_when_an_attempt_failed_so_for_the_first_time() -> None:
    """Also if that attempt was retried; with another error then it was not seen yet."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    last = {"exception_class": "shop.errors.Refused", "message": "order 17"}
    for task, changes in {
        "same": {"message": "order 4"},
        "other": {"message": "else"},
        "class": {"exception_class": "a.B"},
        "no time": {"failed_at": "2026-02-31T00:00:00+00:00"},
        "no text": {"failed_at": 17},
    }.items():
        first = last | {"failed_at": moment.isoformat()} | changes
        make_failed("", task_path=task, errors=[first, {"message": "x"}, last])
    found = {row.task_path: row.first_at for row in groups()}
    assert found.pop("same") == moment
    assert len(found) == 4
    assert all(first > moment + timedelta(days=1) for first in found.values())


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("order 17 is gone", "order 4711 is gone", "order * is gone"),
        ("took 1.5 s", "took 12,345.25 s", "took * s"),
        ("no such host 'a.example'", "no such host 'bb.example'", "no such host *"),
        ('no column "a b"', 'no column "c"', "no column *"),
        (f"job {UUID} ended", f"job {UUID.replace('0b54', 'ffff')} ended", "job * ended"),
        ("at 0x7f3c", "at 0xDEADBEEF01", "at *"),
        ("commit deadbeefcafe", "commit 0123456789ab", "commit *"),
        ("can't open 'x'", "can't open 'y'", "can't open *"),
        ("said 'a" + "b" * 300, "said 'c" + "d" * 300, "said *"),
        ("'customer_17'", "'product_4'", "*"),
    ],
)
def test_messages_that_differ_in_values_are_one_group(
    first: str, second: str, message: str
) -> None:
    make_failed(first)
    make_failed(second)
    [group] = groups()
    assert (group.error_message, group.jobs) == (message, 2)


def test_the_length_of_a_number_does_not_tell_where_a_long_message_ends() -> None:
    """By a newcomer: amounts of 1.00 to 1000.00 were four groups."""
    for amount in (1, 10, 100, 1_000):
        make_failed(f"the card was refused for {amount}.00 EUR: " + "ask the bank. " * 30)
    [group] = groups()
    assert group.jobs == 4
    assert len(group.error_message) == 200
    assert group.error_message.startswith("the card was refused for * EUR: ask")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"message": "timed out"}, {"message": "refused"}),
        ({"message": "x", "name": "a.Error"}, {"message": "x", "name": "b.Error"}),
        ({"message": "x"}, {"message": "x", "task_path": "shop.tasks.other"}),
        ({"message": "facade"}, {"message": "decade"}),
        ({"message": "the dogs' bone is lost"}, {"message": "the dogs' home is lost"}),
    ],
)
def test_what_differs_in_words_class_or_task_is_not(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    make_failed(**first)
    make_failed(**second)
    assert [group.jobs for group in groups()] == [1, 1]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("shop.models.Order.DoesNotExist", "Order.DoesNotExist"),
        ("shop.api.Api.Deep.closed", "Api.Deep.closed"),
        ("shop.errors.Refused", "Refused"),
        ("builtins.KeyError", "KeyError"),
        ("zlib.error", "error"),
        ("Refused", "Refused"),
        ("", ""),
        ("shop.Api.", "shop.Api."),
        ("." * 200, "." * 200),
    ],
)
def test_a_group_is_called_as_its_class_is_without_the_module(path: str, name: str) -> None:
    assert class_name(path) == name


@pytest.mark.slow
def test_a_class_within_another_is_a_group_of_its_own_that_the_search_finds(
    admin_client: Client,
) -> None:
    """Issue 13, point 5: all models' DoesNotExist were one group."""
    names = ("shop.models.Order.DoesNotExist", "shop.models.Customer.DoesNotExist")
    jobs = {name: make_failed("matching query does not exist.", name=name)[0] for name in names}
    text = read(admin_client)
    for row in groups():
        wanted = jobs.pop(row.error_class)
        assert class_name(row.error_class) in text
        found = admin_client.get(f"{reverse('admin:pgjobs_job_changelist')}?{list_query(row)}")
        assert [job.pk for job in found.context["cl"].result_list] == [wanted]
        query = {"tab": "failed", "q": f"error:{row.error_class}"}
        found = admin_client.get(reverse("admin:pgjobs_job_changelist"), query)
        assert [job.pk for job in found.context["cl"].result_list] == [wanted]
    assert jobs == {}


MESSAGES = [
    "", " ", "0", "'", '"', "'a'b'c'", "a'b'c", "1.2.3,4:5", "x1y2z3", "é'à'ü 7", "\n'a\nb'\n9",
    UUID, UUID.upper(), f"<{UUID}>", "0x", "0x1F", "abcdef0", "abcdef01", "_abcdef01_", "12:30:01",
    "2026-11-21T12:00:00+05:45", "%s %(x)s 5%", "\\d \\1 \\", HOSTILE, "'" * 50, "9" * 400,
    "🙂'🙂'1", "ab 1234 " * 99, None, 5, ["list", 1], {"a": "b"},
]  # fmt: skip


def test_the_page_and_bulk_changes_mean_the_same_groups() -> None:
    """The statement and the expressions of the ORM are two texts."""
    admit_odd_values()
    for message in MESSAGES:
        make_failed(message, name=message if isinstance(message, str) else "a.B")
    for row in ROWS.values():
        make_job(**row | {"status": "failed", "finished_at": ago(5)})
    by_orm = {
        (job.task_path, job.error_class, job.error_message)  # type: ignore[attr-defined]
        for job in Job.objects.alias(x=error_class_expression())
        .annotate(error_class=error_class_expression(), error_message=error_message_expression())
        .only("task_path")
    }
    found = groups(max_groups=1_000)
    assert {(row.task_path, row.error_class, row.error_message) for row in found} == by_orm
    assert sum(row.jobs for row in found) == len(MESSAGES) + len(ROWS)


@pytest.mark.parametrize("message", MESSAGES, ids=repr)
def test_a_bulk_change_of_a_group_takes_its_jobs_and_no_others(message: Any) -> None:
    make_failed("something else altogether: a b c")
    ids = make_failed(message, count=2)
    make_failed(message, status="cancelled")
    [wanted] = [row for row in groups() if row.jobs == 2]
    assert (
        sorted(Job.objects.filter(conditions(lookups_of(wanted))).values_list("pk", flat=True))
        == ids
    )


def test_a_group_counts_the_last_hour_day_and_week() -> None:
    for seconds in (60, 7_000, 50_000, 90_000, 500_000, 1_000_000):
        make_failed("x", finished_at=ago(seconds))
    [group] = groups()
    counts = (group.jobs, group.jobs_hour, group.jobs_day, group.jobs_week)
    assert counts == (6, 1, 3, 5)
    assert (group.last_at - group.first_at).total_seconds() == pytest.approx(999_940)
    assert history(group) == [0] * 4 + [1] + [0] * 18 + [1, 0, 1, 0, 2]


def test_the_largest_groups_come_first_or_the_newest() -> None:
    make_failed("many", count=3, finished_at=ago(900))
    make_failed("new", finished_at=ago(1))
    assert [row.message for row in groups()] == ["many", "new"]
    assert [row.message for row in groups(newest_first=True)] == ["new", "many"]


def test_only_the_newest_jobs_are_looked_at() -> None:
    make_failed("old", count=5, finished_at=ago(900))
    make_failed("new", count=5, finished_at=ago(1))
    [group] = groups(max_jobs=5)
    assert (group.message, group.all_jobs, group.all_groups) == ("new", 5, 1)
    [group] = groups(seconds=100)
    assert group.message == "new"


def test_a_limit_on_groups_says_how_many_there_are() -> None:
    for word in ("one", "two", "three"):
        make_failed(word)
    found = groups(max_groups=2)
    assert (len(found), found[0].all_groups, found[0].all_jobs) == (2, 3, 3)


def test_the_page_says_what_went_wrong_and_where(admin_client: Client) -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/srv/shop/pay.py", line 7, in pay\n    x()\n'
        '  File "/usr/lib/python3/site-packages/x.py", line 1, in x\nshop.errors.Refused: no\n'
    )
    error = {"exception_class": "shop.errors.Refused", "message": "no 5", "traceback": traceback}
    [job_id] = make_failed("", errors=[{"message": "first"}, error])
    text = read(admin_client)
    for part in ("Refused", "no 5", "/srv/shop/pay.py", "pay", "1 failed job by what went wrong"):
        assert part in text
    assert "site-packages" not in text
    assert reverse("admin:pgjobs_job_change", args=[job_id]) in text


def test_the_list_of_jobs_opens_with_the_group(admin_client: Client) -> None:
    wanted = make_failed("card 'visa 1' of customer 7 was refused \\ by \"bank\"")
    make_failed("card 'visa 1' of customer 7 was stolen")
    [row] = [row for row in groups() if "refused" in row.message]
    address = reverse("admin:pgjobs_job_changelist")
    text = admin_client.get(f"{address}?{list_query(row)}").content.decode()
    assert ids_in(text) == wanted


def test_a_group_can_be_retried_and_discarded_by_who_may(
    admin_client: Client, client: Client
) -> None:
    make_failed("x", count=3)
    text = read(admin_client)
    assert "Requeue all" in text
    assert "Discard all" in text
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(viewer)
    text = read(client)
    assert "Refused" in text
    assert "Requeue all" not in text
    assert reverse("admin:pgjobs_job_bulk") not in text


def test_a_link_to_retry_leads_to_a_page_that_asks(admin_client: Client) -> None:
    make_failed("x 1", count=3)
    make_failed("y")
    response = admin_client.get(reverse("admin:pgjobs_job_failures"))
    [first, _] = response.context_data["groups"]
    for _label, address in first["actions"]:
        answer = admin_client.get(address)
        assert answer.status_code == 200
        assert "3" in answer.content.decode()


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "?sort=newest&jobs=all"])
@override_settings(CACHES=LOCAL_CACHE)
def test_a_bulk_change_of_a_group_leads_back_to_the_page(admin_client: Client, query: str) -> None:
    """What was kept of the page before is not shown."""
    cache.clear()
    make_failed("x 1", count=3)
    came_from = reverse("admin:pgjobs_job_failures") + query
    [group] = admin_client.get(came_from).context_data["groups"]
    for label, address in group["actions"]:
        asked = admin_client.get(address)
        assert asked.context_data["back"] == came_from, label
    form = {"preview": asked.context_data["token"]}
    done = admin_client.post(address, form, follow=True)
    assert done.redirect_chain == [(came_from, 302)]
    text = done.content.decode()
    assert "3 jobs discarded" in text
    assert "No failed jobs." in text


def test_an_empty_page_says_how_long_failed_jobs_are_kept(admin_client: Client) -> None:
    assert "No failed jobs. They are kept for 30 d." in " ".join(read(admin_client).split())
    with override_settings(PGJOBS={"FAILED_RETENTION_SECONDS": None}):
        assert "They are kept for ever." in read(admin_client)


def test_the_page_says_what_it_looked_at(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_JOBS", 5)
    make_failed("old", count=5, finished_at=ago(900))
    make_failed("new", count=5, finished_at=ago(1))
    text = read(admin_client)
    assert "The newest 5 failed jobs" in text
    assert "Look through the newest 100,000" in text
    assert "old" not in text.partition("<table")[2]
    text = read(admin_client, jobs="all")
    assert "10 failed jobs by what went wrong" in text
    assert "old" in text.partition("<table")[2]


def test_a_page_that_reads_too_much_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise TooSlow("too slow")

    monkeypatch.setattr(failures, "list_groups", refuse)
    response = admin_client.get(reverse("admin:pgjobs_job_failures"))
    assert response.status_code == 503
    assert "more than it has the time for" in response.content.decode()


def see_nothing(user: Any, permission: str, jobs: Any) -> Any:
    """Let everybody see the jobs of one queue."""
    return True if jobs is None else jobs.filter(queue_name="mine")


@override_settings(PGJOBS={"ADMIN_PERMISSION": f"{__name__}.see_nothing"})
def test_who_sees_some_jobs_is_told_nothing_of_the_others(admin_client: Client) -> None:
    make_failed("secret of others")
    text = read(admin_client)
    assert "secret" not in text
    assert "You see some of the jobs" in text


@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_grouped(admin_client: Client, name: str) -> None:
    admit_odd_values()
    make_job(**ROWS[name] | {"status": "failed", "finished_at": ago(5)})
    text = read(admin_client)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "1 failed job by what went wrong" in text


@pytest.mark.parametrize(
    "moment", ["'infinity'", "'-infinity'", "now() + interval '1 day'", "NULL"]
)
def test_a_strange_time_breaks_no_page(admin_client: Client, moment: str) -> None:
    admit_odd_values()
    make_failed("strange", finished_at=sql.SQL(moment))
    make_failed("usual")
    assert "usual" in read(admin_client)


@pytest.mark.slow
def test_the_page_costs_few_statements_and_few_bytes(admin_client: Client) -> None:
    for number in range(60):
        make_failed(f"word{chr(97 + number % 26)}{'x' * (number // 26)} " + "y " * 150)
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 12
    assert len(text.encode()) < 150_000
    assert "10 more groups are not shown." in text
    assert " style=" not in text
