"""`manage.py jobs` that is called wrongly, or in a project that is not set up: what to do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command, load_command_class
from django.test import override_settings

from django_pgjobs.queries import database
from tests import tasks


@pytest.mark.parametrize("words", [["list"], ["show", "1"], ["enqueue", "tests.tasks.add"]])
def test_a_database_that_is_not_postgresql_is_named(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command runs no checks, so it asks this one; else the statement would be blamed."""
    monkeypatch.setattr(database, "connections", {"default": SimpleNamespace(vendor="sqlite")})
    with pytest.raises(CommandError) as caught:
        call_command("jobs", *words)
    assert caught.value.returncode == 1
    assert str(caught.value).startswith(
        "the jobs are in the database 'default', which is sqlite and not PostgreSQL. Set ENGINE"
    )


def test_an_enqueue_without_the_app_says_what_is_missing() -> None:
    """On Django 5.2 the check that says so runs only with the backport's app."""
    with (
        override_settings(INSTALLED_APPS=["django.contrib.contenttypes"]),
        pytest.raises(ImproperlyConfigured, match=r"Add 'django_pgjobs' to INSTALLED_APPS and run"),
    ):
        tasks.add.enqueue(1, 2)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["explain", "requeue", "tokens"]),
        (["schedules", "shop"], ["backfill"]),
        (["tokens", "node-1"], ["rotate"]),
    ],
)
def test_without_an_action_the_command_names_them(
    words: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = load_command_class("django_pgjobs", "jobs")
    command._called_from_command_line = True
    parser = command.create_parser("manage.py", "jobs")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(words)
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert [name for name in names if name not in said] == []


@pytest.mark.django_db
def test_a_misspelt_task_is_told_from_the_like() -> None:
    with pytest.raises(CommandError, match=r"Did you mean tests\.tasks\.fail_once\?"):
        call_command("jobs", "enqueue", "tests.tasks.fail_onec")
    with pytest.raises(CommandError, match=r"Did you mean tests\.tasks\.fail_once\?"):
        call_command("jobs", "enqueue", "fail_once")
    with pytest.raises(CommandError) as caught:
        call_command("jobs", "enqueue", "quite.another.thing")
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("words", [["list"], ["schedules", "list"], ["tokens", "list", "--all"]])
def test_options_of_all_commands_may_come_last(words: list[str]) -> None:
    """As with other commands of manage.py, whose line people repeat with one word more."""
    parser = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    last = ["--settings", "shop.settings", "--pythonpath", "src", "--traceback", "--no-color"]
    flags = vars(parser.parse_args([*words, *last, "-v", "2"]))
    common = {"settings": "shop.settings", "pythonpath": "src", "traceback": True}
    common |= {"no_color": True, "force_color": False, "verbosity": 2}
    assert {name: flags[name] for name in common} == common
    flags = vars(parser.parse_args(["--settings", "shop.settings", "--no-color", *words]))
    assert (flags["settings"], flags["no_color"]) == ("shop.settings", True)
    assert (flags["verbosity"], flags["pythonpath"], flags["traceback"]) == (1, None, False)


WITH_VERBS = {
    "limits": ["--json"],
    "schedules": ["--json"],
    "tokens": ["--all", "--json"],
    "workers": ["--json"],
    "workflows": ["--unfinished", "--limit", "3", "--json"],
}


def test_an_action_with_verbs_lists_without_one_and_with_list() -> None:
    """Its flags stand on either side of the word."""
    parser = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    assert {each.prog.split()[-1] for each in parsers_of(parser) if verbs_of(each)} == {*WITH_VERBS}
    for action, flags in WITH_VERBS.items():
        bare = parser.parse_args([action])
        assert parser.parse_args([action, "list"]) == bare
        full = parser.parse_args([action, *flags])
        assert full != bare
        assert parser.parse_args([action, "list", *flags]) == full
        assert parser.parse_args([action, *flags, "list"]) == full


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["tokens", "--json", "revoke", "3"], "--json"),
        (["tokens", "--json", "--all", "rotate", "3"], "--all, --json"),
        (["schedules", "--json", "pause", "nightly"], "--json"),
        (["workflows", "--limit", "3", "retry", "17"], "--limit"),
        (["workflows", "--limit", "20", "retry", "17"], "--limit"),  # the default
        (["workflows", "--json", "--limit", "3", "show", "17"], "--limit"),
        (["workers", "--json", "stop", "all"], "--json"),
        (["limits", "--json", "reset", "shopify"], "--json"),
    ],
    ids=" ".join,
)
def test_flags_of_the_list_before_another_verb_are_refused(words: list[str], flag: str) -> None:
    """They would be of no effect; `workflows show` takes one of them."""
    with pytest.raises(CommandError) as caught:
        call_command("jobs", *words)
    verb = next(word for word in words[1:] if word.isalpha())
    said = f"Error: {flag} before {verb}: that belongs to list, not to {verb}."
    assert str(caught.value) == said


def verbs_of(parser: Any) -> list[Any]:
    """Return what an action takes as its verb."""
    return [action for action in parser._actions if action.dest == "verb"]


def parsers_of(parser: Any) -> Iterator[Any]:
    """Yield the parser of each action, and of each verb."""
    for action in parser._actions:
        if isinstance(action.choices, dict):
            yield from action.choices.values()
            for each in action.choices.values():
                yield from parsers_of(each)


def test_the_help_of_each_action_says_what_it_does() -> None:
    command = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    silent = [
        f"{parser.prog} {action.dest}: {action.help}"
        for parser in parsers_of(command)
        for action in parser._actions
        if not parser.description or not (action.help or action.choices)
    ]
    assert silent == []


def test_the_help_of_each_action_says_when_it_fails_or_where_that_is_said() -> None:
    command = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    silent = [
        parser.prog
        for parser in parsers_of(command)
        if not parser.epilog.endswith("All statuses: manage.py jobs --help\n")
    ]
    assert silent == []
    assert "Exit status:\n" in command.epilog


def test_the_help_says_bounds_and_defaults_of_numbers() -> None:
    command = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    counts = [
        (parser.prog, action.option_strings[0], action.help)
        for parser in parsers_of(command)
        for action in parser._actions
        if {"--limit", "--count", "--watch"} & {*action.option_strings} and action.type
    ]
    assert len(counts) == 9
    assert [each for each in counts if not re.search(r"1 to \d+.*\(default: ", each[2])] == []


def test_the_examples_of_the_help_are_what_the_command_takes() -> None:
    command = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    taught = {
        parser.prog: re.findall(r"^ *manage\.py (jobs[^|>\n]*)", parser.epilog or "", re.MULTILINE)
        for parser in [command, *parsers_of(command)]
    }
    for prog, examples in taught.items():
        own = prog.removeprefix("manage.py ")
        assert [each for each in examples if f"{each} ".startswith(f"{own} ")], prog
    for example in {each for examples in taught.values() for each in examples}:
        command.parse_args(shlex.split(example)[1:])  # ends the process if it is wrong


@pytest.mark.django_db
@pytest.mark.parametrize("queue", ["ma\0il", "ma\udc80il"])
@pytest.mark.parametrize("words", [("list",), ("cancel", "--yes"), ("pause",)], ids="".join)
def test_a_queue_that_cannot_be_is_refused_in_words(
    run: Callable[..., str], words: tuple[str, ...], queue: str
) -> None:
    """Not by the look whether somebody uses it."""
    with pytest.raises(CommandError, match="expected "):
        run(*words, f"--queue={queue}")
