"""Run a part of the tests, or of the variants of each: `pytest --variants 2/3 --tests 1/2`.

A rule that is tested with fifty inputs needs no fifty tests at each change: README's command takes
a third of them, and `.ci/run` a part in turn, with other versions. What the latter repeats with
these, and what takes long, it does by half.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from zlib import crc32

import pytest


def part_of(text: str) -> slice:
    """Return what "2/4" stands for: of a list, each fourth from the second on."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected a part such as 2/4, got {text!r}")
    return slice(int(number) - 1, None, int(count))


def add_option(parser: pytest.Parser) -> None:
    """Let pytest know `--variants` and `--tests`."""
    parser.addoption(
        "--variants",
        type=part_of,
        metavar="K/N",
        help="of the variants of each test, run the Kth of N parts, and at least one",
    )
    parser.addoption(
        "--tests",
        type=part_of,
        metavar="K/N",
        help="run the Kth of N parts of the tests, each with its variants",
    )


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out of the collected tests what is in other parts."""
    names = [item.nodeid for item in items]
    if tests := config.getoption("tests"):
        names = list(choose_tests(names, tests))
    if variants := config.getoption("variants"):
        names = list(choose(names, variants))
    kept = set(names)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def choose_tests(names: Iterable[str], part: slice) -> Iterator[str]:
    """Return the names of the tests that are in this part, with all their variants."""
    for name in names:
        if crc32(name.partition("[")[0].encode()) % part.step == part.start:
            yield name


def choose(names: Iterable[str], part: slice) -> Iterator[str]:
    """Return the names of the tests that are in this part, at least one variant of each test."""
    variants: dict[str, list[str]] = defaultdict(list)
    for name in names:
        variants[name.partition("[")[0]].append(name)
    for same in variants.values():
        # The variants of one input are often neighbours: a part is to have some of each.
        same.sort(key=lambda name: crc32(name.encode()))
        step = min(part.step, len(same))
        yield from same[part.start % step :: step]
