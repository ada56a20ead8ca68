"""`manage.py jobs limits`: how many jobs of a key, a rate limit or a queue start, and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from django import forms
from django.core.management.base import CommandError
from django.db import IntegrityError, models, transaction
from django.forms.models import model_to_dict

from django_pgjobs.conf import get_conf
from django_pgjobs.limits import (
    ConcurrencyLimitForm,
    QueueSettingsForm,
    RateLimitForm,
    reset_rate,
    tell_workers,
)
from django_pgjobs.management.arguments import JSON, LIST, add_action, add_verbs, examples
from django_pgjobs.management.limit_tables import show_limits, shown_number
from django_pgjobs.management.printing import Write, in_english
from django_pgjobs.management.spelling import tell_doubts
from django_pgjobs.models import RateLimit
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.queries.limit_pages import MAX_JOBS
from django_pgjobs.values.payload import is_storable
from django_pgjobs.values.words import CONTROL

DESCRIPTION = f"""
Prints the limits that hold for all workers together, and what waits for them: what the pages Limits
and Queues of the admin show. With a verb it changes one, which holds from the next claim on.

  ready      jobs that may run now and wait with it, among the first {MAX_JOBS:,} with keys
  run        jobs that run
  declared   settings: PGJOBS['RATE_LIMITS'] has made the row; changed: it has other numbers than
             that by now, and keeps them; -: it was made in the admin, here or by the model
  tokens     of a key of a rate limit, that are left; when there is one more, and when all
  by         whose number counts for a concurrency key: the row of that pattern; code: what the
             task declares, or one at a time if it declares nothing
"""
EPILOG = """
examples:
  manage.py jobs limits
  manage.py jobs limits rate shopify --count 20 --period 1.6
  manage.py jobs limits key 'shop:*' --max-running 5
  manage.py jobs limits queue mail --max-running 4
  manage.py jobs limits remove key 'shop:*'
  manage.py jobs limits reset shopify:17
  manage.py jobs limits --json | jq '.concurrency_keys[] | select(.pattern == null)'
"""


class LimitKind(NamedTuple):
    """A kind of limits: its form, and the help and example of its verb.

    *flags* are the fields of the form that are flags, and what each says.
    """

    form: type[forms.ModelForm[Any]]
    help: str
    example: str
    flags: dict[str, str]

    @property
    def model(self) -> type[models.Model]:
        """Whose rows these limits are."""
        model: type[models.Model] = self.form._meta.model
        return model

    @property
    def key(self) -> str:
        """The column that names one."""
        return self.model._meta.pk.name


OF_NOTE = "For others to read."
KINDS = {
    "rate": LimitKind(
        RateLimitForm,
        "Make or change a rate limit: of a key, or of all keys that begin with NAME and a colon.",
        "limits rate shopify --count 20 --period 1.6 --burst 5",
        {
            "count": "Most tokens in any period, 1 or more.",
            "period": "Seconds, 0.001 to 31622400; a new limit needs it, as the count.",
            "burst": "At most so many at once; none: all of the count.",
            "note": OF_NOTE,
        },
    ),
    "key": LimitKind(
        ConcurrencyLimitForm,
        "Make or change the limit of a concurrency key, or of each key of a pattern.",
        "limits key 'shop:*' --max-running 5 --note 'slow API'",
        {
            "max_running": "Most jobs of a key at a time, 1 or more; a new limit needs it.",
            "weight": "Its share when keys take turns: 1 to 1000 (default: 1).",
            "note": OF_NOTE,
        },
    ),
    "queue": LimitKind(
        QueueSettingsForm,
        "Make or change the limit and the boost of a queue.",
        "limits queue mail --max-running none --boost 10",
        {
            "max_running": "At most so many jobs at a time, 1 or more; none: no limit.",
            "boost": "Added to the priority of its jobs: -200 to 200.",
            "note": OF_NOTE,
        },
    ),
}


def add_limits(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "limits",
        help="Show rate limits and limits of keys and queues; change and remove them.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    verbs = add_verbs(parser, JSON, help="Show all limits, as without a verb.")
    for name, kind in KINDS.items():
        verb = add_action(verbs, name, help=kind.help, epilog=examples(kind.example))
        verb.add_argument("name", help="As `jobs limits` prints it; one that is new is made.")
        for field, said in kind.flags.items():
            verb.add_argument(_flag(field), metavar="TEXT" if field == "note" else "N", help=said)
    remove = add_action(
        verbs,
        "remove",
        help="Remove a limit.",
        epilog=examples("limits remove key 'shop:*'"),
        fails="it is not there",
    )
    remove.add_argument("kind", choices=list(KINDS), help="Of what.")
    remove.add_argument("name", help="As `jobs limits` prints it.")
    reset = add_action(
        verbs,
        "reset",
        help="Give a key of a rate limit all its tokens again.",
        epilog=examples("limits reset shopify:17"),
        fails="no rate limit holds for the key",
    )
    reset.add_argument("name", metavar="key", help="Such as shopify:17.")


@in_english()
def handle(write: Write, tell: Write, screen: Any, *, verb: str, json: bool, **flags: Any) -> None:
    """Show the limits, or change one.

    Raise ValueError for what a limit cannot be, CommandError for one that is not there.
    """
    if verb == LIST:
        show_limits(write, screen, as_json=json)
    elif verb == "remove":
        _remove(write, flags["kind"], flags["name"])
    elif verb == "reset":
        _reset(write, flags["name"])
    else:
        _change(write, tell, verb, flags)


# Changing


def _change(write: Write, tell: Write, verb: str, flags: Mapping[str, Any]) -> None:
    kind, name = KINDS[verb], flags["name"]
    given = {field: flags[field] for field in kind.flags if flags[field] is not None}
    if not given:
        raise ValueError(
            f"limits {verb} expected what to change, such as {_flag(next(iter(kind.flags)))}."
        )
    try:
        before, after = _save(kind, name, given)
    except IntegrityError:
        # Somebody has made it at the same moment.
        before, after = _save(kind, name, given)
    if verb == "queue" and not before:
        tell_doubts(tell, queues=[name])
    write(f"{verb} {name}: {after}{' (as before)' if after == before else ''}".translate(CONTROL))
    if before and after != before:
        write(f"  before: {before}".translate(CONTROL))


def _save(kind: LimitKind, name: str, given: Mapping[str, str]) -> tuple[str, str]:
    """Change a limit, or make it; return what it said before, "" if it was not there, and now."""
    values = {
        field: "" if value == "none" and kind.model._meta.get_field(field).null else value
        for field, value in given.items()
    }
    with transaction.atomic(using=job_database()):
        # Another command may change other columns of it.
        rows = rows_of(kind.model).select_for_update()
        row = rows.filter(pk=name).first() if is_storable(name) else None
        before = _told(kind, row)
        data = model_to_dict(row or kind.model()) | values | {kind.key: name}
        form = kind.form(data, instance=row)
        if not form.is_valid():
            if form.has_error(kind.key, "unique"):
                raise IntegrityError
            raise ValueError(" ".join(_refusals(kind, form)))
        # Where there was none it must not overwrite one that somebody makes at this moment.
        changed = form.save(commit=False)
        changed.save(force_insert=row is None, using=job_database())
        tell_workers()
    return before, _told(kind, changed)


def _refusals(kind: LimitKind, form: forms.ModelForm[Any]) -> Iterator[str]:
    for field, texts in form.errors.items():
        where = f"{_flag(field)}: " if field in kind.flags else ""
        yield from (f"{where}{text}" for text in texts)


def _told(kind: LimitKind, row: models.Model | None) -> str:
    """Return what a row says, "" for none."""
    if row is None:
        return ""
    values = {field: getattr(row, field) for field in kind.flags}
    return ", ".join(
        f"{_flag(field)[2:]} {shown_number(value)}"
        for field, value in values.items()
        if value != ""
    )


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _remove(write: Write, verb: str, name: str) -> None:
    kind = KINDS[verb]
    with transaction.atomic(using=job_database()):
        rows = rows_of(kind.model).filter(pk=name)
        deleted = is_storable(name) and rows.delete()[0]
        if deleted:
            tell_workers()
    if not deleted:
        raise CommandError(f"the limit {verb} {name} is not there.")
    again = ""
    if verb == "rate" and name in get_conf().RATE_LIMITS:
        again = "; PGJOBS['RATE_LIMITS'] declares it, so `migrate` makes it again"
    write(f"{verb} {name}: removed{again}")


def _reset(write: Write, key: str) -> None:
    is_known = is_storable(key)
    is_news = is_known and reset_rate(key)
    if not is_news:
        names = [key, key.partition(":")[0]]
        if not is_known or not rows_of(RateLimit).filter(pk__in=names).exists():
            raise CommandError(f"no rate limit holds for the key {key}.")
    write(f"key {key}: {'has all its tokens again' if is_news else 'had all its tokens'}")
