"""The page API tokens: made, shown once, rotated and revoked, by who may."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgjobs.http.access import SECRET, digest_of
from django_pgjobs.http.tokens import rotate_token
from django_pgjobs.models import Token
from tests.factories import make_token
from tests.test_admin import HOSTILE

pytestmark = pytest.mark.django_db

LIST = "admin:pgjobs_token_changelist"
ADD = "admin:pgjobs_token_add"
FORM = {"name": "node-1", "verbs": ["work", "read"], "lasts": "7776000"}


def read(client: Client, name: str = LIST, *args: Any) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(reverse(name, args=args))
    assert response.status_code == 200
    return response.content.decode()


def secret_on(response: Any) -> str:
    """Return the secret that a page shows, which no cache may keep."""
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    [secret] = SECRET.findall(response.content.decode())
    return str(secret)


def row_of(secret: str) -> Token:
    """Return the token of a secret."""
    return Token.objects.get(digest=digest_of(secret))


def test_a_token_is_made_and_its_secret_is_shown_once(admin_client: Client) -> None:
    """S2.6."""
    assert "New token" in read(admin_client)
    given = FORM | {"queues": "node, mail\nnode", "tasks": " shop.tasks.push ", "per_second": "2.5"}
    secret = secret_on(admin_client.post(reverse(ADD), given))
    token = row_of(secret)
    assert (token.name, token.verbs) == ("node-1", ["work", "read"])
    assert (token.queues, token.tasks) == (["mail", "node"], ["shop.tasks.push"])
    assert (token.per_second, token.created_by) == (2.5, "admin")
    assert timedelta(days=89) < token.expires_at - timezone.now() <= timedelta(days=90)
    for page in (read(admin_client), read(admin_client, "admin:pgjobs_token_change", token.pk)):
        assert token.prefix in page
        assert secret not in page and token.digest not in page


def test_a_form_that_is_sent_again_makes_no_other_token(admin_client: Client) -> None:
    """As by reloading the page that shows the secret."""
    [sheet] = re.findall(r'name="sheet" value="([^"]+)"', read(admin_client, ADD))
    secret_on(admin_client.post(reverse(ADD), FORM | {"sheet": sheet}))
    again = admin_client.post(reverse(ADD), FORM | {"sheet": sheet}, follow=True)
    assert "was sent before" in again.content.decode()
    assert Token.objects.count() == 1
    [other] = re.findall(r'name="sheet" value="([^"]+)"', read(admin_client, ADD))
    assert other != sheet


def test_a_token_is_rotated_once(admin_client: Client) -> None:
    old = row_of(make_token("node-1", expires_at=timezone.now() + timedelta(days=30)))
    address = reverse("admin:pgjobs_token_rotate", args=[old.pk])
    new = row_of(secret_on(admin_client.post(address, {"keep": "3600"})))
    again = admin_client.post(address, {"keep": "3600"}, follow=True)
    assert "rotate its successor" in again.content.decode()
    assert Token.objects.count() == 2
    page = read(admin_client, "admin:pgjobs_token_change", old.pk)
    assert reverse("admin:pgjobs_token_change", args=[new.pk]) in page
    assert address not in page
    with pytest.raises(ValueError, match=f"rotate its successor, token {new.pk}"):
        rotate_token(old.pk, keep=timedelta(hours=1))


def test_an_empty_form_is_of_everything_for_ever(admin_client: Client) -> None:
    secret = secret_on(admin_client.post(reverse(ADD), FORM | {"lasts": ""}))
    token = row_of(secret)
    assert (token.queues, token.tasks, token.per_second, token.expires_at) == (None,) * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "\x1b[2J"},
        {"name": "x" * 201},
        {"verbs": []},
        {"verbs": ["dance"]},
        {"queues": "x" * 129},
        {"queues": "a\x00b"},
        {"tasks": "no path"},
        {"tasks": ",".join(f"a.b{number}" for number in range(201))},
        {"per_second": "0"},
        {"per_second": "nan"},
        {"lasts": "7"},
    ],
)
def test_a_wrong_form_makes_nothing(admin_client: Client, wrong: dict[str, Any]) -> None:
    response = admin_client.post(reverse(ADD), FORM | wrong)
    assert "errorlist" in response.content.decode()
    assert not Token.objects.exists() and not LogEntry.objects.exists()


def test_a_name_may_have_as_many_characters_as_the_column(admin_client: Client) -> None:
    secret = secret_on(admin_client.post(reverse(ADD), FORM | {"name": "ü" * 200}))
    assert row_of(secret).name == "ü" * 200


def test_all_that_is_done_is_written_down_without_the_secret(
    admin_client: Client, caplog: Any
) -> None:
    with caplog.at_level("INFO", "django_pgjobs"):
        first = secret_on(admin_client.post(reverse(ADD), FORM))
        address = reverse("admin:pgjobs_token_rotate", args=[row_of(first).pk])
        second = secret_on(admin_client.post(address, {"keep": "3600"}))
        admin_client.post(reverse("admin:pgjobs_token_revoke", args=[row_of(second).pk]))
    said = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    new = row_of(second)
    assert said == ["create token", f"rotate token: #{new.pk}", "revoke token"]
    for secret in (first, second):
        assert secret not in caplog.text and secret not in "".join(said)
    assert "rotate token" in read(admin_client, "admin:pgjobs_token_history", row_of(first).pk)


def test_a_rotated_token_is_good_for_as_long_as_was_asked(admin_client: Client) -> None:
    old = row_of(make_token("node-1", queues=["node"]))
    address = reverse("admin:pgjobs_token_rotate", args=[old.pk])
    new = row_of(secret_on(admin_client.post(address, {"keep": "3600"})))
    old.refresh_from_db()
    assert (new.name, new.queues, new.created_by) == ("node-1", ["node"], "admin")
    assert timedelta(0) < old.expires_at - timezone.now() <= timedelta(hours=1)


def test_a_revoked_token_has_no_buttons_any_more(admin_client: Client) -> None:
    token = row_of(make_token("node-1"))
    assert "Yes, revoke" in read(admin_client, "admin:pgjobs_token_change", token.pk)
    address = reverse("admin:pgjobs_token_revoke", args=[token.pk])
    said = admin_client.post(address, follow=True).content.decode()
    assert "Revoked: node-1" in said
    assert "<form" not in read(admin_client, "admin:pgjobs_token_change", token.pk).split("<h1>")[1]
    for again in (address, reverse("admin:pgjobs_token_rotate", args=[token.pk])):
        said = admin_client.post(again, {"keep": "3600"}, follow=True).content.decode()
        assert "cannot be used any more" in said
    assert Token.objects.count() == 1 and LogEntry.objects.count() == 1


def test_a_token_that_is_not_there_is_said_to_be_so(admin_client: Client) -> None:
    for name in ("pgjobs_token_revoke", "pgjobs_token_rotate"):
        for number in (7, 10**25):
            said = admin_client.post(reverse(f"admin:{name}", args=[number]), {"keep": "1"})
            assert said.status_code == 302
    address = reverse("admin:pgjobs_token_change", args=[7])
    assert "no such token" in admin_client.get(address, follow=True).content.decode()


def test_those_that_can_be_used_are_first(admin_client: Client) -> None:
    make_token("good")
    make_token("over", expires_at=timezone.now() - timedelta(days=1))
    make_token("gone", revoked_at=timezone.now())
    page = read(admin_client)
    places = [page.index(name) for name in (">good<", ">gone<", ">over<")]
    assert places == sorted(places)
    assert [word in page for word in ("Valid", "Expired", "Revoked")] == [True] * 3


def test_hostile_names_are_text(admin_client: Client) -> None:
    token = row_of(make_token(HOSTILE, queues=[HOSTILE], tasks=[HOSTILE], created_by=HOSTILE))
    for page in (read(admin_client), read(admin_client, "admin:pgjobs_token_change", token.pk)):
        assert "<script>alert" not in page


def person(*codenames: str) -> Client:
    """Return the browser of somebody with these permissions."""
    user = User.objects.create_user("someone", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    browser = Client()
    browser.force_login(user)
    return browser


def test_who_may_only_look_sees_tokens_and_no_form() -> None:
    token = row_of(make_token("node-1"))
    browser = person("view_job")
    assert "New token" not in read(browser)
    assert "Rotate" not in read(browser, "admin:pgjobs_token_change", token.pk)
    assert browser.get(reverse(ADD)).status_code == 403
    assert browser.post(reverse(ADD), FORM).status_code == 403
    for name in ("revoke", "rotate"):
        address = reverse(f"admin:pgjobs_token_{name}", args=[token.pk])
        assert browser.post(address, {"keep": "3600"}).status_code == 403
    assert Token.objects.get() == token


def test_who_may_control_tokens_needs_no_more() -> None:
    browser = person("view_job", "control_token")
    token = row_of(secret_on(browser.post(reverse(ADD), FORM)))
    address = reverse("admin:pgjobs_token_revoke", args=[token.pk])
    assert browser.get(address).status_code == 405
    assert browser.post(address).status_code == 302


def test_a_page_shows_no_more_than_five_hundred(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        make_token(f"t{number}")
    with django_assert_max_num_queries(12):
        page = read(admin_client)
    assert len(re.findall(r"pgj_.{4}…", page)) == 30
