"""Every flag of the commands refuses what is out of bounds, before anything starts.

The flags are those of the parsers: one that is added later is tried here, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, load_command_class

from django_pgjobs.conf import find_problems
from django_pgjobs.control.rate_limits import create_declared_limits
from django_pgjobs.declaring.redaction import is_secret
from django_pgjobs.models import RateLimit

NUMBERS = ("1e18", "99999999999999", "9" * 30, "9" * 5_000, "nan", "inf", "-1", "1_0e400", "", "x")
# What these take is text, and any number is one.
OF_TEXT = {
    "name",
    "queues",
    "exclude_queues",
    "queue",
    "task",
    "error",
    "key",
    "reason",
    "by",
    "worker",
    "workers",
    "web",
    "health_host",
    "health_file",
}
# Ids have many digits.
OF_IDS = {"id", "ids"}
# They are Django's.
FOREIGN = {"help", "version", "settings", "pythonpath", "verbosity", "traceback", "no_color",
           "force_color", "skip_checks"}  # fmt: skip


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command of ours."""
    return load_command_class("django_pgjobs", command).create_parser("manage.py", command)


def flags_of(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Any]:
    """Yield (the words before it, a flag) for all flags and places that take a value."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from flags_of(inner, (*path, name))
        elif action.dest not in FOREIGN and action.nargs != 0:
            yield path, action


FLAGS = [
    pytest.param(command, path, action, id=f"{command} {' '.join(path)} {action.dest}")
    for command in ("runjobs", "jobs")
    for path, action in flags_of(parser_of(command), ())
]


def line_of(path: tuple[str, ...], action: argparse.Action, value: str) -> list[str]:
    """Return the command line that gives *value* to the flag."""
    others = {"pause": ["--queue", "a"], "list": [], "resume": []}
    before = others.get(path[0], []) if path else []
    if action.dest in ("queue", "task", "key"):
        before = []
    given = f"{action.option_strings[-1]}={value}" if action.option_strings else value
    return [*path, *before, given]


def is_refused(command: str, line: list[str]) -> bool:
    """Does the parser of *command* refuse the line?"""
    try:
        parser_of(command).parse_args(line)
    except (SystemExit, CommandError):
        return True
    return False


def test_the_flags_are_found() -> None:
    found = {action.dest for _, _, action in (param.values for param in FLAGS)}
    assert {"concurrency", "lease_seconds", "queues", "id", "limit", "until", "ids"} <= found


@pytest.mark.slow
@pytest.mark.parametrize(("command", "path", "action"), FLAGS)
def test_no_flag_takes_what_is_out_of_bounds(
    command: str, path: tuple[str, ...], action: argparse.Action
) -> None:
    for value in NUMBERS:
        is_one = action.dest in OF_TEXT or (action.dest in OF_IDS and len(value) == 14)
        assert is_one or is_refused(command, line_of(path, action, value)), value


@pytest.mark.parametrize("queues", ["default:99999999999999", "a:0", "a:nan", "a:-1", "\ud800",
                                    "x" * 129, "a,,b", "*:5"])  # fmt: skip
def test_no_queue_takes_what_is_out_of_bounds(queues: str) -> None:
    assert is_refused("runjobs", [f"--queues={queues}"])


@pytest.mark.parametrize("flag", ["--name", "--queues", "--exclude-queues"])
def test_no_name_is_taken_that_cannot_be_stored(flag: str) -> None:
    for value in ("\ud800", "a\0b", "x" * 20_000):
        assert is_refused("runjobs", [f"{flag}={value}"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--lease-seconds=1e18"], "expected seconds from 1 to 86400, got '1e18'."),
        (["-c", "3000000000"], "a whole number from 1 to 1000, got '3000000000'."),
        (["--shutdown-timeout=inf"], "expected seconds from 0 to 604800, got 'inf'."),
    ],
)
def test_a_refusal_says_what_was_expected(line: list[str], words: str) -> None:
    with pytest.raises(CommandError) as caught:
        parser_of("runjobs").parse_args(line)
    assert words in str(caught.value)


LIMITS = (
    {"count": 100_000, "period": 2_592_000, "burst": 100_001},
    {"count": 2**31, "period": 1},
    {"count": 1, "period": float("nan")},
    {"count": 1, "period": 10**400},
    {"count": 1, "period": 1, "note": "\ud800"},
)


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_a_limit_that_the_table_refuses_is_refused_by_the_check(limit: dict[str, Any]) -> None:
    assert find_problems({"RATE_LIMITS": {"api": limit}})


def test_names_of_limits_are_text_that_can_be_stored() -> None:
    for name in ("\ud800", "a\nb", "", "x" * 513):
        assert find_problems({"RATE_LIMITS": {name: {"count": 1, "period": 1}}})


@pytest.mark.django_db
@pytest.mark.parametrize(
    "limit",
    [
        {"count": 2**31 - 1, "period": 0.001},
        {"count": 2**31 - 1, "period": 31_622_400, "burst": 1},
        {"count": 2**31 - 1, "period": 31_622_400, "burst": 2**31 - 1},
        {"count": 11, "period": 31_622_400, "burst": 10},
    ],
    ids=repr,
)
def test_what_the_check_takes_migrate_takes(limit: dict[str, Any], settings: Any) -> None:
    settings.PGJOBS = {"RATE_LIMITS": {"api": limit}}
    create_declared_limits(using="default")
    assert RateLimit.objects.get().count == limit["count"]


NOT_TOGETHER = (
    (["(?P<a>x)token", "(?P<a>y)pin"], ["xtoken", "ypin"]),
    (["(a)b", r"(c)\1"], ["ab", "cc"]),
    (["(?i)token", "(?i)pin"], ["TOKEN", "pin"]),
    (["(?x) to ken # why", "pin"], ["token", "pin"]),
    (["u|v", "(?s:c.)"], ["u", "c\n"]),
)


@pytest.mark.parametrize(("expressions", "names"), NOT_TOGETHER)
def test_expressions_of_secrets_are_read_one_by_one(
    expressions: list[str], names: list[str], settings: Any
) -> None:
    """Joined into one they would not compile, or mean something else."""
    settings.PGJOBS = {"REDACT": expressions}
    assert not find_problems(settings.PGJOBS)
    assert [is_secret(name) for name in names] == [True] * len(names)
    assert not is_secret("harmless")


WRONG_EXPRESSIONS = {
    "(": "missing ), unterminated subpattern at position 0",
    "a(?i)b": "global flags not at the start of the expression",
    "a{99999999999999999999}": "the repetition number is too large",
    "(?L)a": "bad inline flags: cannot use 'L' flag with a str pattern",
    "[" + "a" * 5_000: "unterminated character set",
    "(" * 5_000 + ")" * 5_000: "it is nested too deeply",
    "": "it is empty, and would mask everything",
    7: "it is no text",
}


@pytest.mark.parametrize("expression", WRONG_EXPRESSIONS, ids=lambda value: repr(value)[:30])
def test_an_expression_that_cannot_be_read_is_named_with_the_reason(expression: Any) -> None:
    [(_, fact, hint)] = find_problems({"REDACT": ["pin", expression, "token"]})
    assert fact.startswith("PGJOBS['REDACT'][1] is ")
    assert "which is no regular expression: " + WRONG_EXPRESSIONS[expression] in fact
    assert len(fact) < 300
    assert hint == "See docs/settings.md."


def test_all_expressions_that_cannot_be_read_are_told() -> None:
    found = [each.fact for each in find_problems({"REDACT": ("a(", "pin", "b[")})]
    assert [fact.partition(",")[0] for fact in found] == [
        "PGJOBS['REDACT'][0] is 'a('",
        "PGJOBS['REDACT'][2] is 'b['",
    ]
