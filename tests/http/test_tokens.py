"""Tokens: made, listed, rotated and revoked, by the command and by the functions behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from django_pgjobs.http.access import digest_of
from django_pgjobs.http.tokens import TokenScope, create_token, revoke_token, rotate_token
from django_pgjobs.models import Token
from tests.http.support import Api, problem_of

pytestmark = pytest.mark.django_db(transaction=True)

WORK = TokenScope(verbs=["work"])


class Said(NamedTuple):
    """What a command printed."""

    out: list[str]
    err: list[str]


Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `jobs tokens` with words of a command line."""

    def run_one(*words: str) -> Said:
        call_command("jobs", "tokens", *words)
        said = capsys.readouterr()
        return Said(said.out.splitlines(), said.err.splitlines())

    return run_one


def test_the_secret_is_printed_alone_and_only_its_digest_is_kept(run: Run, api: Api) -> None:
    said = run("create", "node-1", "--may", "work,read", "--may", "enqueue", "--queue", "node")
    [secret] = said.out
    assert "token" in said.err[0] and secret not in said.err[0]
    token = Token.objects.get(name="node-1")
    assert (token.verbs, token.queues, token.tasks) == (["work", "enqueue", "read"], ["node"], None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT token::text FROM pgjobs_token AS token WHERE id = %s", [token.pk])
        [(row,)] = cursor.fetchall()
    assert secret not in row and secret[4:] not in row
    assert token.digest == digest_of(secret) and secret.startswith(token.prefix)
    assert json.loads(Api(secret).get("token").content)["queues"] == ["node"]


def test_every_secret_is_another_one() -> None:
    secrets = {create_token("n", WORK)[1] for _ in range(20)}
    assert len(secrets) == 20
    assert all(len(secret) == 47 for secret in secrets)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--may", "dance"], "expected one or more of work"),
        (["--may", "work", "--queue", ""], "names of queues"),
        (["--may", "work", "--task", "no path"], "paths of tasks"),
        (["--may", "work", "--per-second", "0"], "requests per second"),
        (["--may", "work", "--per-second", "nan"], "requests per second"),
    ],
)
def test_a_wrong_scope_makes_no_token(run: Run, words: list[str], expected: str) -> None:
    with pytest.raises(CommandError, match=expected) as caught:
        run("create", "node-1", *words)
    assert caught.value.returncode == 2
    assert not Token.objects.exists()


def test_a_name_is_one_line() -> None:
    for name in ("", "x" * 201, "a\nb", "\x1b[2J"):
        with pytest.raises(ValueError, match="expected a name"):
            create_token(name, WORK)


def test_a_token_for_a_task_that_nobody_declares_is_made_with_a_warning(run: Run) -> None:
    said = run("create", "n", "--may", "work", "--task", "shop.tasks.psuh")
    assert said.err[0].startswith("WARNING no task shop.tasks.psuh")
    assert len(said.out) == 1


def test_a_revoked_token_is_refused(run: Run, api: Api) -> None:
    token, secret = create_token("n", WORK)
    client = Api(secret)
    assert client.get("token").status_code == 200
    assert run("revoke", str(token.pk)).out == [f"token {token.pk}: revoked"]
    assert problem_of(client.get("token")) == "unauthorized"
    with pytest.raises(CommandError, match="1 of 1"):
        run("revoke", str(token.pk))


def test_an_expired_token_is_refused(api: Api) -> None:
    token, secret = create_token(
        "n", TokenScope(verbs=["read"], expires_at=timezone.now() + timedelta(days=1))
    )
    client = Api(secret)
    shown = json.loads(client.get("token").content)["expires_at"]
    assert shown == token.expires_at.isoformat().replace("+00:00", "Z")
    Token.objects.filter(pk=token.pk).update(expires_at=timezone.now())
    revoke_token(0)  # forgets what is known of tokens
    assert problem_of(client.get("token")) == "unauthorized"
    assert not revoke_token(token.pk)


def test_a_rotated_token_has_a_successor_and_an_end(run: Run, api: Api) -> None:
    scope = TokenScope(verbs=["work"], queues=["node"], tasks=["tests.tasks.add"], per_second=7)
    old, first = create_token("n", scope)
    said = run("rotate", str(old.pk), "--keep", "2h", "--by", "ops")
    [second] = said.out
    new = Token.objects.exclude(pk=old.pk).get(name="n")
    kept = ("name", "verbs", "queues", "tasks", "per_second", "expires_at")
    assert [getattr(new, name) for name in kept] == [getattr(old, name) for name in kept]
    assert new.created_by == "ops"
    old.refresh_from_db()
    left = old.expires_at - timezone.now()
    assert timedelta(minutes=119) < left <= timedelta(hours=2)
    assert [Api(each).get("token").status_code for each in (first, second)] == [200, 200]


def test_a_successor_lasts_as_long_as_the_one_before_and_that_no_longer_than_it_would() -> None:
    end = timezone.now() + timedelta(hours=1)
    old, _ = create_token("n", TokenScope(verbs=["work"], expires_at=end))
    new, _ = rotate_token(old.pk, keep=timedelta(days=1))
    old.refresh_from_db()
    assert old.expires_at == end
    assert end < new.expires_at < end + timedelta(minutes=5)


def test_what_has_ended_is_not_rotated(run: Run) -> None:
    token, _ = create_token("n", WORK)
    revoke_token(token.pk)
    with pytest.raises(CommandError, match="not good any more"):
        run("rotate", str(token.pk))
    with pytest.raises(CommandError, match="there is no token"):
        run("rotate", str(token.pk + 1))


def test_the_list_is_of_good_ones_unless_all_are_asked_for(run: Run) -> None:
    good, _ = create_token("good", WORK)
    bad, _ = create_token("bad", WORK)
    revoke_token(bad.pk)
    lines = run("list").out
    assert len(lines) == 2 and "good" in lines[1] and "never" in lines[1]
    shown: list[dict[str, Any]] = json.loads("\n".join(run("list", "--all", "--json").out))
    assert [(each["id"], each["state"]) for each in shown] == [
        (good.pk, "valid"),
        (bad.pk, "revoked"),
    ]
    assert all("digest" not in each for each in shown)


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_command("jobs", "tokens", "create", "--help")
    text = capsys.readouterr().out
    for verb in ("work", "enqueue", "read", "manage"):
        assert f"\n  {verb}" in text
    assert "manage.py jobs tokens create node-1 --may work" in text
