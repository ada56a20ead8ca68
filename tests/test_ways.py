"""The ten questions of docs/design.md lead through files that hold what they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

from tests.helpers import ROOT

PACKAGE = ROOT / "django_pgjobs"

SECTION = re.compile(r"^## Ten questions$(.*?)^## ", re.MULTILINE | re.DOTALL)
QUESTION = re.compile(r"^\d+\. ([^?\n]+\?) (.+)$", re.MULTILINE)
STEP = re.compile(r"`([\w/]+\.(?:py|sql))(?:: ([\w, ]+))?`")
# What a file of SQL names: a part of its statement, or a function of the database.
SQL_NAME = r"(\b{0} (\([\w, ]+\) )?AS (MATERIALIZED )?\(|\) AS {0}\b|FUNCTION (home\.)?{0}\()"


class Step(NamedTuple):
    """A file to open, and what to look for in it."""

    path: str
    names: list[str]

    @property
    def file(self) -> Path:
        return PACKAGE / self.path


def read_ways() -> dict[str, list[Step]]:
    """Return the steps that lead to the answer of each question."""
    section = SECTION.search((ROOT / "docs" / "design.md").read_text())
    assert section, "docs/design.md: a section 'Ten questions' is expected"
    return {
        question: [
            Step(path, names.split(", ") if names else []) for path, names in STEP.findall(way)
        ]
        for question, way in QUESTION.findall(section[1])
    }


def holds(file: Path, name: str) -> bool:
    """Does the file define what has this name?"""
    text = file.read_text()
    if file.suffix == ".sql":
        return re.search(SQL_NAME.format(re.escape(name)), text) is not None
    return name in defined_names(text)


def defined_names(text: str) -> set[str]:
    """Return the functions, classes and constants of a module, methods included."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def leads_on(way: list[Step], step: Step) -> bool:
    """Does a file before this step name its file, or something that it defines as a class?"""
    before = "".join(one.file.read_text() for one in way[: way.index(step)])
    words = [step.file.stem, *re.findall(r"^class (\w+)", step.file.read_text(), re.MULTILINE)]
    return any(re.search(rf"\b{word}\b", before) for word in words)


def test_ten_questions_are_answered_in_at_most_three_files() -> None:
    ways = read_ways()
    assert len(ways) == 10
    assert {question: len(way) for question, way in ways.items() if not 1 <= len(way) <= 3} == {}


def test_every_file_of_a_way_holds_what_it_is_named_for() -> None:
    steps = [step for way in read_ways().values() for step in way]
    assert [step.path for step in steps if not step.file.exists()] == []
    named = [(step, name) for step in steps for name in step.names]
    assert [(step.path, name) for step, name in named if not holds(step.file, name)] == []


def test_every_file_of_a_way_is_named_by_one_before_it() -> None:
    lost = {
        (question, step.path)
        for question, way in read_ways().items()
        for step in way[1:]
        if not leads_on(way, step)
    }
    assert lost == set()


def test_every_step_into_python_says_what_to_read_there() -> None:
    steps = [step for way in read_ways().values() for step in way]
    assert [step.path for step in steps if step.path.endswith(".py") and not step.names] == []
