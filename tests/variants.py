"""Run a part of the variants of each test: `pytest --variants 2/3` runs the second third.

A rule that is tested with fifty inputs needs no fifty tests at each change: README's command takes
a third of them, and `.ci/run` a part in turn, with other versions.
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
    """Let pytest know `--variants`."""
    parser.addoption(
        "--variants",
        type=part_of,
        metavar="K/N",
        help="of the variants of each test, run the Kth of N parts, and at least one",
    )


def keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out of the collected tests what is in other parts."""
    part: slice | None = config.getoption("variants")
    if part is None:
        return
    kept = set(choose((item.nodeid for item in items), part))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


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
