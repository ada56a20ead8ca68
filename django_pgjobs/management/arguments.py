"""What the flags of the commands accept: each function reads one kind of value."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

from django.core.management.base import CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_pgjobs.conf import automatic_concurrency, expected, fits
from django_pgjobs.values.bounds import MAX_INTEGER, MAX_QUEUE_NAME_BYTES
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.moments import given_in_words, now_aware
from django_pgjobs.values.payload import EARLIEST, LATEST, fits_column

# More digits than any bound has are not read at all.
DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
# A date without a time of the day.
DATE = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}", re.ASCII)
# Slots of one queue: as many as async jobs may run.
MAX_SLOTS = 100_000
MAX_PORT = 65_535
# Thirty years, in seconds.
MAX_TIME = 1e9
MAX_WORKER_NAME_BYTES = 200
# That a flag may ask for.
MAX_ROWS = 1_000_000
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

# Options of all commands, which Django reads before the name of an action only.
COMMON: dict[tuple[str, ...], dict[str, Any]] = {
    ("-v", "--verbosity"): {"type": int, "choices": range(4)},
    ("--settings",): {},
    ("--pythonpath",): {},
    ("--traceback",): {"action": "store_true"},
    ("--no-color",): {"action": "store_true"},
    ("--force-color",): {"action": "store_true"},
}

# Of what lists something, beside its own.
JSON: dict[str, dict[str, Any]] = {
    "--json": {"action": "store_true", "help": "Print JSON for programs."}
}
# What an action with verbs does without one.
LIST = "list"


class ActionParser(CommandParser):
    """Reads what follows the name of an action, the options of all commands included.

    *absent* is what flags are that were given nowhere, and whose own default is suppressed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.absent: dict[str, Any] = {}
        for flags, kind in COMMON.items():
            self.add_argument(*flags, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **kind)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = super().parse_known_args(args, namespace)
        for name, value in self.absent.items():
            if not hasattr(found, name):
                setattr(found, name, value)
        return found, rest


class Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The verbs of an action. *of_list* are its own flags: a verb takes those that it has, too.

    Their defaults are suppressed: what is there was given, be it the default.
    """

    of_list: Sequence[argparse.Action] = ()

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        verb = values[0]
        default_of = self.choices[verb].get_default
        stray = [
            flag.option_strings[0]
            for flag in self.of_list
            if hasattr(namespace, flag.dest) and default_of(flag.dest) != argparse.SUPPRESS
        ]
        if stray:
            said = f"{', '.join(stray)} before {verb}: that belongs to {LIST}, not to {verb}."
            raise argparse.ArgumentError(None, said)
        super().__call__(parser, namespace, values, option_string)


def add_action(
    actions: Any, name: str, *, help: str, description: str = "", epilog: str, fails: str = ""
) -> Any:
    """Return a new parser below *actions*, whose own help begins with the line of the list.

    A *description* stands there instead. The *epilog* has examples; behind them stands when the
    command *fails*. Lines are printed as they are.
    """
    status = f"\nExit status 1: {fails}.\n" if fails else "\n"
    return actions.add_parser(
        name,
        help=help,
        description=description or help,
        epilog=f"{epilog}{status}All statuses: manage.py jobs --help\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def examples(*lines: str) -> str:
    """Return an epilog with command lines, what follows `manage.py jobs` in each."""
    head = "examples" if len(lines) > 1 else "example"
    return f"\n{head}:\n" + "".join(f"  manage.py jobs {line}\n" for line in lines)


def add_verbs(parser: Any, flags: Mapping[str, Mapping[str, Any]], *, help: str) -> Any:
    """Return what adds verbs to an action which lists without one, and with the verb `list`.

    *flags* are those of the list; they may stand on either side of that verb.
    """
    verbs = parser.add_subparsers(dest="verb", action=Verbs)
    parser.set_defaults(verb=LIST)
    example = examples(f"{parser.prog.rpartition(' ')[2]} {LIST} --json")
    listing = add_action(verbs, LIST, help=help, description=parser.description, epilog=example)
    verbs.of_list = [parser.add_argument(flag, **kind) for flag, kind in flags.items()]
    for own in verbs.of_list:
        parser.absent[own.dest], own.default = own.default, argparse.SUPPRESS
    for flag, kind in flags.items():
        # Left out it leaves what was given before the verb.
        listing.add_argument(flag, **{**kind, "default": argparse.SUPPRESS})
    return verbs


def job_id(text: str) -> int:
    """Return the id of a job or of a batch."""
    found = parse_job_id(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected an id, a number, got {text!r}.")
    return found


def whole_number(text: str, most: int = MAX_INTEGER) -> int:
    """Return a whole number from 1 to *most*."""
    number = int(text) if DIGITS.fullmatch(text) else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 1 to {most}, got {shown(text)}."
        )
    return number


def whole(key: str) -> Callable[[str], int]:
    """Return what reads a whole number within the bounds of a setting."""

    def read(text: str) -> int:
        number = int(text) if DIGITS.fullmatch(text) else 0
        if not fits(key, number):
            raise argparse.ArgumentTypeError(f"expected {expected(key)}, got {shown(text)}.")
        return number

    return read


def port(text: str) -> int:
    """Return the number of a TCP port."""
    return whole_number(text, MAX_PORT)


def concurrency(text: str) -> int:
    """Return a number of threads, or the automatic one."""
    return automatic_concurrency() if text == "auto" else whole("CONCURRENCY")(text)


def seconds(key: str) -> Callable[[str], float]:
    """Return what reads seconds within the bounds of a setting."""

    def read(text: str) -> float:
        number = _number(text)
        if not fits(key, number):
            raise argparse.ArgumentTypeError(f"expected {expected(key)}, got {shown(text)}.")
        return number

    return read


def duration(text: str) -> float:
    """Return a number of seconds, from 0 to thirty years."""
    number = _number(text)
    if not 0 <= number <= MAX_TIME:
        raise argparse.ArgumentTypeError(
            f"expected seconds from 0 to {MAX_TIME:.0f}, got {shown(text)}."
        )
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def worker_name(text: str) -> str:
    """Return a name that can be stored, and printed in one line."""
    if not text.isprintable() or not fits_column(text, MAX_WORKER_NAME_BYTES, min_bytes=0):
        raise argparse.ArgumentTypeError(
            f"expected a name of one line, at most {MAX_WORKER_NAME_BYTES} bytes, got "
            f"{shown(text)}."
        )
    return text


def shown(text: str) -> str:
    """Return what was given as a message shows it."""
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}..."


class QueueSlots(NamedTuple):
    """The queues to serve, None for all, and the most slots that some of them may take."""

    text: str
    names: tuple[str, ...] | None
    slots: dict[str, int]


def queue_slots(text: str) -> QueueSlots:
    """Return the queues of a list such as "mail,billing:4" or "billing:4,*"."""
    names, slots = [], {}
    for entry in queue_names(text):
        name, colon, number = entry.rpartition(":")
        if colon:
            slots[name] = whole_number(number, MAX_SLOTS)
        names.append(name if colon else entry)
    if not all(names) or "*" in slots:
        raise argparse.ArgumentTypeError(
            f"expected queues such as mail,billing:4 or billing:4,*, got {shown(text)}."
        )
    return QueueSlots(text, None if "*" in names else tuple(names), slots)


def queue_names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(
            f"expected queue names with commas between, got {shown(text)}."
        )
    for name in names:
        if not fits_column(name, MAX_QUEUE_NAME_BYTES):
            raise argparse.ArgumentTypeError(
                f"expected names of queues of at most {MAX_QUEUE_NAME_BYTES} bytes, got "
                f"{shown(name)}."
            )
    return names


def some_text(text: str) -> str:
    """Return a text; none at all is in every other one, as of a variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a text, got ''.")
    return text


def span(text: str) -> timedelta:
    """Return a length of time such as 90s, 10m, 2h or 1d."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(
            f"expected a time with its unit, 1s or more, such as 90s, 10m, 2h, 1d, got {text!r}."
        )
    return timedelta(seconds=int(found[1]) * UNITS[found[2]])


def instant(text: str) -> datetime:
    """Return an instant; one without a time zone is in the current one."""
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is not None and timezone.is_naive(found):
        found = timezone.make_aware(found)
    if found is None or not EARLIEST <= found <= LATEST:
        raise argparse.ArgumentTypeError(
            f"expected an instant such as 2026-12-24T18:00 or 2026-12-24T18:00Z, got {text!r}."
        )
    return found


def refuse_past(flag: str, given: object, remedy: str) -> None:
    """Raise ValueError, which ends with the *remedy*, for an instant that is over."""
    if isinstance(given, datetime) and given <= now_aware():
        raise ValueError(f"{flag} expected an instant in the future, got {given}. {remedy}")


def end_in_words(end: datetime | timedelta | None) -> str:
    """Return when what begins now ends, as the end of a sentence; "" if it does not."""
    if isinstance(end, datetime):
        return f" until {timezone.localtime(end):%Y-%m-%d %H:%M:%S %Z}"
    return "" if end is None else f" for {given_in_words(end)}"


def end_instant(text: str) -> datetime:
    """Return an instant; of a date alone the end of that day, but no later than now.

    Both are in the current time zone if they name none. A day that is not over yet ends now.
    """
    begin = instant(text)
    if DATE.fullmatch(text) is None:
        return begin
    end = timezone.make_aware(datetime.combine(begin, time.max))
    now = now_aware()
    return min(end, now) if begin <= now else end


def count(text: str) -> int:
    """Return a number of rows."""
    return whole_number(text, MAX_ROWS)
