"""Tables and lists of the docs name what the code has, and nothing else."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import re
import tomllib
from collections.abc import Iterator

from django.core.management import load_command_class

import django_pgjobs
from django_pgjobs import JobResult, Task, compat, exceptions, testing
from django_pgjobs.declaring.option_names import OF_DECLARATIONS
from django_pgjobs.models import RateLimit
from django_pgjobs.models.batch_async import AsyncBatch
from django_pgjobs.warnings.notices import KINDS
from django_pgjobs.worker.process import exit_status
from django_pgjobs.worker.running.outcome import Kind
from django_pgjobs.worker.state import CONNECTED_ROLES
from tests.helpers import ROOT
from tests.test_docs import lists_of, names_explained, read

NAME = re.compile(r"`(\w+)`")
PACKAGE = ROOT / "django_pgjobs"


def items_of(page: str, heading: str) -> dict[str, str]:
    """Return the first list below a heading: what is explained -> its meaning."""
    return lists_of(page, heading)[0]


def names_in(text: str) -> set[str]:
    """Return the names in code style."""
    return set(NAME.findall(text))


def test_what_using_takes_is_documented() -> None:
    takes = set(inspect.signature(Task.using).parameters) - {"self", "unknown"}
    declared = {field.name for field in dataclasses.fields(Task)} - {"func", "is_ours"}
    [left_out, added] = re.findall(
        r"`using` does not take (.*?), which are read where the job runs; it also takes (.*?)\.\n",
        read("tasks.md"),
    )[0]
    assert declared - takes == names_in(left_out)
    assert set(OF_DECLARATIONS) == declared - takes | {"schedule"}
    options = {*names_explained("tasks.md", "Options")}
    of_keys = {*names_explained("coalescing.md", "Options")}
    # What @task(schedule=...) says is no option of jobs.
    assert takes == (options | of_keys | names_in(added)) - names_in(left_out) - {"schedule"}


def roles_of_connections() -> Iterator[str]:
    """Yield what the connections of the package's own are for."""
    yield from (*CONNECTED_ROLES, "pruner", "recorder")  # of a worker's process, see WorkerProcess
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if getattr(getattr(node, "func", None), "id", "") == "OwnConnection":
                role = node.args[1]  # type: ignore[attr-defined]
                if isinstance(role, ast.Constant):
                    yield str(role.value)


def test_every_connection_is_documented_and_no_other() -> None:
    documented = re.findall(r"`pgjobs (\w+)`", "".join(items_of("workers.md", "Connections")))
    assert sorted(documented) == sorted(set(roles_of_connections()))


def actions_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the actions, or verbs, that a command line can name."""
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return {name: action for each in found for name, action in each.choices.items()}


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the flags of an action and of its verbs, without those of all commands of Django."""
    flags = {
        flag
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        for flag in action.option_strings
    }
    verbs = map(flags_of, actions_of(parser).values())
    return flags.union(*verbs) - {"-h", "--help"}


def test_every_action_of_jobs_is_documented_and_what_is_told_of_it_exists() -> None:
    """What each flag does is only in --help."""
    told = items_of("workers.md", "The command `jobs`")
    parser = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    found = actions_of(parser)
    assert sorted(NAME.findall("".join(told))) == sorted(found)
    for names, meaning in told.items():
        actions = [found[name] for name in names_in(names)]
        known = set(found).union(*map(flags_of, actions), *map(actions_of, actions))
        assert set(re.findall(r"`([\w-]+)`", meaning)) <= known, names


def test_every_flag_of_jobs_is_explained_by_its_help() -> None:
    parser = load_command_class("django_pgjobs", "jobs").create_parser("manage.py", "jobs")
    actions = list(actions_of(parser).values())
    verbs = [verb for action in actions for verb in actions_of(action).values()]
    unexplained = {
        f"{each.prog} {action.option_strings[0]}"
        for each in (*actions, *verbs)
        for action in each._actions
        if action.option_strings and not action.help
    }
    assert unexplained == set()


def test_every_event_of_the_log_is_documented_and_no_other() -> None:
    events = {kind.value for kind in Kind} | {"start", "rescue"}
    assert names_in("".join(items_of("workers.md", "Log"))) == events


def test_every_exit_status_is_documented_and_no_other() -> None:
    # Two are between a child and its supervisor only.
    inside = {exit_status.EXIT_DISMISSED, exit_status.EXIT_DONE}
    statuses = {value for name, value in vars(exit_status).items() if name.startswith("EXIT_")}
    documented = re.findall(r"\d+", ",".join(items_of("workers.md", "Exit status")))
    assert {int(number) for number in documented} == statuses - inside


def test_every_column_of_a_rate_limit_is_documented_and_no_other() -> None:
    columns = {field.column for field in RateLimit._meta.local_fields} - {"id"}
    assert {*names_explained("rate-limits.md", "Limits")} == columns


def test_every_exception_is_documented_with_its_bases() -> None:
    documented = {
        name: names_in(bases)
        for names, bases in items_of("api.md", "Exceptions").items()
        for name in names_in(names)
    }
    public = {name: getattr(exceptions, name, None) for name in django_pgjobs.__all__}
    found = {
        name: {base.__name__ for base in each.__bases__}
        for name, each in public.items()
        if isinstance(each, type) and not issubclass(each, exceptions.JobSteering)
    }
    assert documented == found


def test_every_async_twin_is_documented_and_no_other() -> None:
    [listed] = re.findall(r"Async twins, with the same arguments: (.*)\.\n", read("api.md"))
    places = (*django_pgjobs.__all__, *testing.__all__, *vars(Task))
    twins = {name for name in places if name.startswith("a") and name[1:] in places}
    # "await" is a word of Python.
    twins |= {name for name in vars(JobResult) if name.startswith("async_")}
    # Of django.tasks itself.
    assert names_in(listed) == twins | {"aenqueue"}
    [of_batch] = re.findall(r"Async twins of a `Batch`: (.*)\.\n", read("api.md"))
    twins = {name for name in vars(AsyncBatch) if name.startswith("a")}
    # Of Django itself.
    assert names_in(of_batch) == twins | {"adelete"}


def test_every_name_of_compat_is_documented_and_no_other() -> None:
    [listed] = re.findall(r"`django_pgjobs\.compat`: .*?: (.*)\.\n", read("api.md"))
    for_us = {"AnyResult", "AnyTask"}
    assert names_in(listed) == set(compat.__all__) - for_us


def test_what_the_readme_says_for_the_choice_holds() -> None:
    """S1.6: its criteria are there, and true: what is to be set up, needed, and known."""
    text = (ROOT / "README.md").read_text()
    choice = text.partition("\n## When to choose it\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- \*(.*?)\*", choice, re.MULTILINE) == [
        "Short to adopt",
        "For the scale that most projects have",
        "Fits the stack",
        "Observed with what you know",
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = [each for each in project["dependencies"] if "python_version" not in each]
    names = [re.split(r"[>=<;]", each)[0] for each in always]
    assert names == ["django", "psycopg", "django-admin-rangefilter"]
    assert "Little to run**: one app, one setting, one migration, one process" in text
    assert [path.stem for path in (PACKAGE / "migrations").glob("0*.py")] == ["0001_initial"]
    # That one app and one setting are enough is shown by tests/process/test_projects.py.


# Where the diagram of a job's life says what each outcome leads to; LOST and LEFT write nothing.
ARROWS = {
    Kind.DONE: ["running --> successful: returned"],
    Kind.FAIL: ["running --> failed: last attempt failed"],
    Kind.RETRY: ["running --> ready: retry"],
    Kind.CANCEL: ["running --> cancelled: cancelled while running"],
    Kind.EXPIRE: ["running --> cancelled: expired", "ready --> cancelled: expired"],
    Kind.SNOOZE: ["running --> ready: snooze"],
    Kind.RELEASE: ["running --> ready: release"],
    Kind.UNKNOWN: ["running --> ready: unknown task"],
    Kind.FILL: ["running --> ready: raw row", "running --> cancelled: raw row"],
    Kind.LOST: [],
    Kind.LEFT: [],
}


def test_the_diagram_of_a_jobs_life_has_every_outcome() -> None:
    lines = re.findall(r"^    (\w+ --> \w+): (.*)$", read("job-lifecycle.md"), re.MULTILINE)
    shown = [f"{arrow}: {cause}" for arrow, causes in lines for cause in causes.split(", ")]
    assert set(ARROWS) == set(Kind)
    for arrow in (arrow for arrows in ARROWS.values() for arrow in arrows):
        assert any(line.startswith(arrow) for line in shown), arrow


def test_the_kinds_of_warnings_are_documented_in_their_order() -> None:
    assert names_explained("admin-overview.md", "What it warns of") == list(KINDS)
