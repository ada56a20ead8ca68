"""docs/seeds.md and the tests name each other: an item its tests, and each of them the item."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests import helpers

SECTION = re.compile(r"^## (S\d)\. .*\n(?:(?!## ).*\n)*", re.MULTILINE)
ITEM = re.compile(r"^(\d+)\. .*", re.MULTILINE)
# A link says the test; one that says the name of the file means the whole file.
SHOWN_BY = re.compile(r"\[`(?:\w+/)*(\w+)`\]\(\.\./(tests/[^)]*\.py)\)")
ITEMS = re.compile(r"\bS(\d)\.(\d+)(?:-S\d\.(\d+))?")

# A test by file and name. None stands for the whole file: its docstring or one of its tests.
Place = tuple[str, str | None]


def items_in(text: str | None) -> set[str]:
    """Return the items that *text* names, those of a range (S4.25-S4.27) one by one."""
    return {
        f"S{seed}.{number}"
        for seed, first, last in ITEMS.findall(text or "")
        for number in range(int(first), int(last or first) + 1)
    }


def items_on_the_page() -> dict[str, set[Place]]:
    """Return what shows each item of docs/seeds.md."""
    page = (helpers.ROOT / "docs" / "seeds.md").read_text()
    return {
        f"{section[1]}.{item[1]}": {
            (file, name if name != Path(file).stem else None)
            for name, file in SHOWN_BY.findall(item[0])
        }
        for section in SECTION.finditer(page)
        for item in ITEM.finditer(section[0])
    }


@cache
def items_in_tests() -> dict[Place, set[str]]:
    """Return the items that the docstring of each test and of each file of tests names."""
    found: dict[Place, set[str]] = defaultdict(set)
    for path in (helpers.ROOT / "tests").rglob("test_*.py"):
        file, tree = str(path.relative_to(helpers.ROOT)), ast.parse(path.read_text())
        found[file, None] |= items_in(ast.get_docstring(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[file, node.name] = items_in(ast.get_docstring(node))
                found[file, None] |= found[file, node.name]
    return dict(found)


def test_every_test_on_the_page_carries_its_item() -> None:
    carried = items_in_tests()
    missing = [
        f"{item}: {Path(file).name}::{name or 'any test'}"
        for item, places in items_on_the_page().items()
        for file, name in places
        if item not in carried.get((file, name), ())
    ]
    assert not missing, "write the item into the docstring of each:\n" + "\n".join(missing)


def test_every_item_in_a_test_is_shown_by_tests_on_the_page() -> None:
    page = items_on_the_page()
    unknown = [
        f"{file}::{name}: {item}"
        for (file, name), items in items_in_tests().items()
        for item in items
        if not page.get(item)
    ]
    assert not unknown, "docs/seeds.md names no test for these:\n" + "\n".join(unknown)


def test_every_seed_was_read() -> None:
    assert {item.partition(".")[0] for item in items_on_the_page()} == {
        f"S{number}" for number in range(1, 6)
    }
