"""The page Limits: tokens left, who waits, keys at their limit, and the forms."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_pgjobs import pause
from django_pgjobs.models import ConcurrencyLimit, RateLimit, RateState
from django_pgjobs.queries import limit_pages
from tests.factories import make_job, make_jobs, make_running_job, use_rate
from tests.test_admin import HOSTILE

pytestmark = pytest.mark.django_db

LIST = "admin:pgjobs_ratelimit_changelist"


def read(client: Client) -> str:
    """Return the text of the page."""
    response = client.get(reverse(LIST))
    assert response.status_code == 200
    return response.content.decode()


def rate_keys() -> dict[str, limit_pages.RateKeyRow]:
    """Return the keys of rate limits as the page reads them."""
    with connection.cursor() as cursor:
        found = limit_pages.list_rate_keys(cursor, limits=RateLimit.objects.count())
    return {row.key: row for rows in found.values() for row in rows}


def keys() -> dict[str, limit_pages.ConcurrencyKeyRow]:
    """Return the concurrency keys as the page reads them."""
    with connection.cursor() as cursor:
        return {row.key: row for row in limit_pages.list_concurrency_keys(cursor)}


def test_tokens_left_follow_the_formula_of_rate_limits() -> None:
    """docs/rate-limits.md: five at once, then one in ten seconds."""
    RateLimit.objects.create(name="api", count=10, period=100, burst=5)
    use_rate("api:half", 3)
    use_rate("api:empty", 5)
    use_rate("api:window", 10, ago=60)
    use_rate("api:ahead", 4, ago=-60)
    use_rate("api:full", 3, ago=4_000)
    found = rate_keys()
    assert (found["api:half"].tokens, found["api:half"].next_in) == (2, 0)
    assert found["api:empty"].tokens == 0
    assert found["api:empty"].next_in == pytest.approx(10, abs=1)
    assert found["api:window"].tokens == 0
    assert found["api:window"].next_in == pytest.approx(40, abs=1)
    assert found["api:ahead"].tokens == -4
    assert found["api:ahead"].next_in == pytest.approx(60, abs=1)
    # A key that is full and that no job waits with is like one that was never used.
    assert "api:full" not in found


def test_jobs_wait_with_the_keys_of_their_rate_limits() -> None:
    RateLimit.objects.create(name="api", count=10, period=1)
    RateLimit.objects.create(name="day", count=10, period=1)
    RateLimit.objects.create(name="api:special", count=1, period=1)
    make_jobs(3, rate_limit_keys="api:1\nday", concurrency_key="shop:1")
    make_jobs(2, rate_limit_keys="api:2")
    make_job(rate_limit_keys="api:special")
    make_job(rate_limit_keys="nowhere:1")
    use_rate("api:special", ago=-5)
    found = rate_keys()
    assert {key: row.jobs for key, row in found.items()} == {
        "api:1": 3,
        "api:2": 2,
        "day": 3,
        "api:special": 1,
        "nowhere:1": 1,
    }
    assert found["api:1"].jobs_of_limit == 5
    # A key that was never used has all its tokens.
    assert (found["api:1"].tokens, found["api:1"].full_in) == (10, 0)
    assert (found["api:special"].name, found["nowhere:1"].name) == ("api:special", None)


def test_jobs_of_a_limit_that_does_not_exist_are_warned_about(admin_client: Client) -> None:
    make_jobs(2, rate_limit_keys="shopify:17")
    assert "2 jobs wait for the rate limit of “shopify:17”, which does not exist" in read(
        admin_client
    )


def test_many_keys_of_a_limit_that_does_not_exist_are_one_warning(admin_client: Client) -> None:
    for number in range(5):
        make_jobs(2, rate_limit_keys=f"shopify:{number}")
    text = read(admin_client)
    assert text.count("which does not exist") == 1
    assert "10 jobs wait for the rate limit of “shopify:0, shopify:1, shopify:2, …”" in text
    url = f"{reverse('admin:pgjobs_ratelimit_add')}?name=shopify"
    assert f'<a href="{url}">Make it' in text
    assert 'value="shopify"' in admin_client.get(url).content.decode()


def test_of_many_keys_those_with_most_jobs_are_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_pages, "MAX_KEYS", 3)
    RateLimit.objects.create(name="api", count=10, period=1)
    for number in range(6):
        make_jobs(number + 1, rate_limit_keys=f"api:{number}")
    assert set(rate_keys()) == {"api:3", "api:4", "api:5"}
    assert "and 3 more keys" in read(admin_client)


def test_of_more_jobs_than_are_counted_the_page_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its numbers of waiting jobs are lower bounds then."""
    monkeypatch.setattr(limit_pages, "MAX_JOBS", 5)
    RateLimit.objects.create(name="mail", count=1, period=1.0)
    make_jobs(9, concurrency_key="shop:1", rate_limit_keys="mail:1")
    text = admin_client.get(reverse(LIST)).content.decode()
    assert text.count("counted among the first 5 ready jobs with keys") == 2


def test_a_key_is_limited_by_its_row_its_pattern_or_its_task() -> None:
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=3)
    ConcurrencyLimit.objects.create(pattern="shop:7", max_running=5)
    make_jobs(2, concurrency_key="shop:7")
    make_jobs(4, concurrency_key="shop:8")
    make_running_job(concurrency_key="shop:8")
    make_job(concurrency_key="loose", concurrency_limit=9)
    make_running_job(concurrency_key="alone")
    pause(key="sh*:8")
    found = keys()
    assert {k: (r.waiting, r.running, r.max_running, r.pattern) for k, r in found.items()} == {
        "shop:8": (4, 1, 3, "shop:*"),
        "shop:7": (2, 0, 5, "shop:7"),
        "loose": (1, 0, 9, None),
        "alone": (0, 1, 1, None),
    }
    assert next(iter(found)) == "shop:8"
    assert [key for key, row in found.items() if row.is_paused] == ["shop:8"]


def test_a_key_at_its_limit_without_a_row_leads_to_making_one(admin_client: Client) -> None:
    make_running_job(concurrency_key="shop:7")
    make_job(concurrency_key="shop:7")
    text = read(admin_client)
    assert "1 / 1" in text
    assert "full" in text
    assert f"{reverse('admin:pgjobs_concurrencylimit_add')}?pattern=shop%3A7" in text


def test_a_reset_gives_a_key_all_its_tokens(admin_client: Client) -> None:
    RateLimit.objects.create(name="api", count=10, period=100)
    use_rate("api:1", ago=-500)
    use_rate("api:2", ago=-500)
    assert "used up" in read(admin_client)
    answer = admin_client.post(reverse("admin:pgjobs_rate_reset"), {"key": "api:1"})
    assert answer.status_code == 302
    assert RateState.objects.values_list("key", flat=True).get() == "api:2"
    assert LogEntry.objects.get().object_repr == "api:1"
    admin_client.post(reverse("admin:pgjobs_rate_reset"), {"key": "a\0b"})
    admin_client.post(reverse("admin:pgjobs_rate_reset"))
    assert (RateState.objects.count(), LogEntry.objects.count()) == (1, 1)


def test_saving_and_deleting_a_limit_wakes_idle_workers_and_is_recorded(
    admin_client: Client,
) -> None:
    with CaptureQueriesContext(connection) as queries:
        rate = {"name": "api", "count": 10, "period": 1, "note": ""}
        admin_client.post(reverse("admin:pgjobs_ratelimit_add"), rate)
        address = reverse("admin:pgjobs_ratelimit_change", args=["api"])
        admin_client.post(address, rate | {"count": 20})
        limit = {"pattern": "shop:*", "max_running": 5, "weight": 1}
        admin_client.post(reverse("admin:pgjobs_concurrencylimit_add"), limit)
        address = reverse("admin:pgjobs_concurrencylimit_delete", args=["shop:*"])
        admin_client.post(address, {"post": "yes"})
    assert RateLimit.objects.get().count == 20
    assert not ConcurrencyLimit.objects.exists()
    assert len([query for query in queries if "pgjobs_control" in query["sql"]]) == 4
    entries = list(LogEntry.objects.order_by("pk"))
    assert len(entries) == 4
    assert "Changed Count" in entries[1].change_message


@pytest.mark.parametrize(
    ("model", "values", "words"),
    [
        ("ratelimit", {"name": "api*", "count": 5, "period": 1}, "no patterns"),
        ("ratelimit", {"name": "a\nb", "count": 5, "period": 1}, "one line"),
        ("ratelimit", {"name": "é" * 257, "count": 5, "period": 1}, "at most 512 bytes"),
        ("ratelimit", {"name": "a", "count": 5, "period": 1, "burst": 6}, "at most the count"),
        ("ratelimit", {"name": "a", "count": 5, "period": "nan"}, "Enter a number"),
        ("concurrencylimit", {"pattern": "a**", "max_running": 1, "weight": 1}, "single stars"),
        ("concurrencylimit", {"pattern": "", "max_running": 1, "weight": 1}, "required"),
    ],
)
def test_a_wrong_limit_is_refused_in_words(
    admin_client: Client, model: str, values: dict[str, Any], words: str
) -> None:
    answer = admin_client.post(reverse(f"admin:pgjobs_{model}_add"), values)
    assert answer.status_code == 200
    assert words in answer.content.decode()
    assert not (RateLimit.objects.exists() or ConcurrencyLimit.objects.exists())


def test_who_may_only_look_sees_no_button_and_changes_nothing(client: Client) -> None:
    user = User.objects.create_user("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(user)
    RateLimit.objects.create(name="api", count=10, period=1)
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=1)
    use_rate("api:1", ago=-5)
    make_running_job(concurrency_key="shop:1")
    text = read(client)
    assert 'value="api:1"' not in text
    assert reverse("admin:pgjobs_ratelimit_add") not in text
    assert client.post(reverse("admin:pgjobs_rate_reset"), {"key": "api:1"}).status_code == 403
    for model, key in (("ratelimit", "api"), ("concurrencylimit", "shop:*")):
        assert client.get(reverse(f"admin:pgjobs_{model}_change", args=[key])).status_code == 200
        for name, args in (("add", []), ("change", [key]), ("delete", [key]), ("changelist", [])):
            address = reverse(f"admin:pgjobs_{model}_{name}", args=args)
            assert client.post(address, {"post": "yes"}).status_code == 403
    assert RateState.objects.count() == RateLimit.objects.count() == 1


def test_hostile_names_are_inert(admin_client: Client) -> None:
    key = HOSTILE[:100]
    RateLimit.objects.create(name=key, count=1, period=1, note=HOSTILE)
    ConcurrencyLimit.objects.create(pattern=key, max_running=1, note=HOSTILE)
    use_rate(key, ago=-100)
    make_job(concurrency_key=key, rate_limit_keys=f"{key}\nother{key}")
    text = read(admin_client)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    for model in ("ratelimit", "concurrencylimit"):
        address = reverse(f"admin:pgjobs_{model}_change", args=[quote(key)])
        answer = admin_client.get(address)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.content.decode()


def test_the_page_is_bounded(admin_client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_rate_limit (name, count, period)"
            " SELECT 'limit-' || n, 10, 1 FROM generate_series(1, 150) AS n;"
            "INSERT INTO pgjobs_rate_state"
            " SELECT 'limit-' || n % 150 || ':' || n, now() + interval '1 h'"
            " FROM generate_series(1, 3000) AS n;"
            "INSERT INTO pgjobs_concurrency_limit (pattern, max_running)"
            " SELECT 'shop:' || n || ':*', 10 FROM generate_series(1, 150) AS n;"
            "INSERT INTO pgjobs_job (task_path, concurrency_key, rate_limit_keys)"
            " SELECT 'a.b', 'shop:' || n % 150 || ':' || n, 'limit-' || n % 150 || ':' || n"
            " FROM generate_series(1, 2000) AS n"
        )
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client)
    assert len(queries) <= 12
    assert len(text.encode()) < 150_000
    assert "There are more" in text
