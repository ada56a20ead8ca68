"""`manage.py jobs tokens`: who may use the HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from django_pgjobs.http.access import VERBS
from django_pgjobs.http.tokens import (
    MAX_PER_SECOND,
    TokenScope,
    create_token,
    revoke_token,
    rotate_token,
    state_of,
)
from django_pgjobs.management.arguments import (
    JSON,
    LIST,
    add_action,
    add_verbs,
    examples,
    span,
    whole_number,
)
from django_pgjobs.management.printing import Write, json_text, write_table
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import Token
from django_pgjobs.queries.database import rows_of
from django_pgjobs.values.moments import aware

HEADS = ("id", "name", "state", "begins with", "may", "queues", "tasks", "expires", "last used")
COLUMNS = ("id", "name", "prefix", "verbs", "queues", "tasks", "per_second", "created_by")
TIMES = ("created_at", "expires_at", "revoked_at", "last_used_at")

DESCRIPTION = """
Lists the tokens with which programs in any language use the HTTP API: Authorization: Bearer pgj_...
With a verb it makes, rotates and revokes them.
"""
EPILOG = """
A token may
  work      register workers, claim jobs of remote tasks, report how they ended
  enqueue   add jobs and workflows
  read      look at jobs and workflows, and read results
  manage    cancel jobs, cancel and delete workflows
limited to the queues and tasks that it names, if it names some.

examples:
  manage.py jobs tokens create node-1 --may work --queue node --expires 90d > node-1.token
  manage.py jobs tokens create shop --may enqueue,read --per-second 50
  manage.py jobs tokens list
  manage.py jobs tokens rotate 3 --keep 2h > node-1.token
  manage.py jobs tokens revoke 3

The secret is printed once, alone on the standard output; the table has its digest only. A revoked
token may work for five more seconds, while a web process remembers it. A worker reports its jobs
with the token that claimed them: after a rotation let it finish what it runs, and start it with the
new one.
"""
# Those of the list, beside --json.
FLAGS = {"--all": {"action": "store_true", "help": "Also those that have ended."}}


def add_tokens(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "tokens",
        help="Make, list, rotate and revoke tokens of the HTTP API.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    verbs = add_verbs(parser, FLAGS | JSON, help="List the valid tokens, as without a verb.")
    create = add_action(
        verbs,
        "create",
        help="Make a token, and print its secret.",
        epilog=EPILOG,
    )
    _add_scope(create)
    rotate = _add_rotate(verbs)
    for each in (create, rotate):
        each.add_argument("--by", default="", metavar="NAME", help="Your name, for others.")
    revoke = add_action(
        verbs,
        "revoke",
        help="End tokens.",
        epilog=examples("tokens revoke 3", "tokens revoke 3 4"),
        fails="one of them has ended or does not exist",
    )
    revoke.add_argument("ids", type=whole_number, nargs="+", metavar="id", help="As list prints.")


def _add_rotate(verbs: Any) -> Any:
    rotate = add_action(
        verbs,
        "rotate",
        help="Replace a token: print the secret of a new one, and let the old one expire.",
        epilog=examples("tokens rotate 3 --keep 2h > node-1.token"),
        fails="it has ended or does not exist",
    )
    rotate.add_argument("id", type=whole_number, help="As list prints it.")
    rotate.add_argument(
        "--keep",
        type=span,
        default=timedelta(days=1),
        metavar="2h",
        help="How long the old one stays valid: s m h d (default: 1d).",
    )
    return rotate


def _add_scope(create: Any) -> None:
    create.add_argument("name", help="Who is to use it, for others to read.")
    create.add_argument(
        "--may",
        action="append",
        required=True,
        metavar="VERB",
        help=f"What it is for: {', '.join(VERBS)}. Several with commas, or several times.",
    )
    create.add_argument(
        "--queue", action="append", metavar="NAME", help="Only jobs of this queue, or these."
    )
    create.add_argument(
        "--task", action="append", metavar="PATH", help="Only jobs of this task, or these."
    )
    create.add_argument(
        "--expires",
        type=span,
        metavar="90d",
        help="When it expires, from now: s m h d (default: never).",
    )
    create.add_argument(
        "--per-second",
        type=float,
        metavar="N",
        help="The most requests per second to each web process: 0.001 to "
        f"{MAX_PER_SECOND} (default: no limit).",
    )


def handle(write: Write, tell: Write, *, verb: str, **flags: Any) -> None:
    """Do what the flags say; *write* gets what programs read, *tell* the rest.

    Raise CommandError or ValueError if that is not possible.
    """
    if verb == LIST:
        _list(write, only_valid=not flags["all"], as_json=flags["json"])
    elif verb == "create":
        _create(write, tell, flags["name"], _scope_of(flags), by=flags["by"])
    elif verb == "rotate":
        _rotate(write, tell, flags["id"], keep=flags["keep"], by=flags["by"])
    else:
        _revoke(write, flags["ids"])


def _scope_of(flags: Mapping[str, Any]) -> TokenScope:
    return TokenScope(
        verbs=[verb.strip() for given in flags["may"] for verb in given.split(",")],
        queues=flags["queue"],
        tasks=flags["task"],
        per_second=flags["per_second"],
        expires_at=timezone.now() + flags["expires"] if flags["expires"] else None,
    )


def _create(write: Write, tell: Write, name: str, scope: TokenScope, *, by: str) -> None:
    tell_doubts(tell, tasks=scope.tasks or ())
    token, secret = create_token(name, scope, by=by)
    _show(write, tell, token, secret)


def _show(write: Write, tell: Write, token: Token, secret: str) -> None:
    tell(f"token {token.pk} {token.name}: may {', '.join(token.verbs)}. Its secret, shown once:")
    write(secret)


def _rotate(write: Write, tell: Write, token_id: int, *, keep: timedelta, by: str) -> None:
    try:
        token, secret = rotate_token(token_id, keep=keep, by=by)
    except (LookupError, ValueError) as error:
        raise CommandError(str(error.args[0])) from None
    old = rows_of(Token).get(pk=token_id)
    until = timezone.localtime(aware(old.expires_at))
    tell(f"token {old.pk} is good until {until:%Y-%m-%d %H:%M:%S%z}.")
    _show(write, tell, token, secret)


def _revoke(write: Write, ids: list[int]) -> None:
    left = 0
    for token_id in ids:
        is_revoked = revoke_token(token_id)
        left += not is_revoked
        write(f"token {token_id}: {'revoked' if is_revoked else 'has ended or does not exist'}")
    if left:
        raise CommandError(f"{left} of {len(ids)} were not revoked.")


def _list(write: Write, *, only_valid: bool, as_json: bool) -> None:
    tokens = rows_of(Token).order_by("id")
    if only_valid:
        tokens = tokens.filter(Token.that_is_valid())
    now = timezone.now()
    if as_json:
        write(json_text([_as_json(token, state_of(token, now)) for token in tokens]))
        return
    cells = [_cells(token, state_of(token, now)) for token in tokens]
    nothing = "no token is valid." if only_valid else "there are no tokens."
    write_table(write, HEADS, cells, nothing=nothing)


def _as_json(token: Token, state: str) -> dict[str, Any]:
    shown = {name: getattr(token, name) for name in COLUMNS} | {"state": state}
    for name in TIMES:
        instant = getattr(token, name)
        shown[name] = instant and aware(instant).isoformat()
    return shown


def _cells(token: Token, state: str) -> tuple[object, ...]:
    return (
        token.pk,
        token.name,
        state,
        token.prefix,
        ",".join(token.verbs),
        "all" if token.queues is None else ",".join(token.queues),
        "all" if token.tasks is None else ",".join(token.tasks),
        token.expires_at or "never",
        token.last_used_at or "never",
    )
