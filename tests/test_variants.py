"""Parts of the tests and of their variants: together they are all, and none is cut in two."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from tests.variants import choose, choose_tests, part_of

TWENTY = [f"tests/test_sum.py::test_sum[{number}]" for number in range(20)]
PAIR = ["tests/test_sum.py::test_odd[True]", "tests/test_sum.py::test_odd[False]"]
ALONE = "tests/test_sum.py::test_alone"


def test_the_parts_together_are_all_variants_and_each_has_its_share() -> None:
    parts = [list(choose(TWENTY, part_of(f"{number}/3"))) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(TWENTY)
    assert [len(part) for part in parts] == [7, 7, 6]


def test_each_part_has_a_variant_of_each_test() -> None:
    parts = [set(choose([*PAIR, ALONE], part_of(f"{number}/3"))) for number in (1, 2, 3)]
    assert all(ALONE in part and len(part) == 2 for part in parts)
    assert parts[0] | parts[1] == {*PAIR, ALONE}


def test_a_part_does_not_depend_on_the_order_of_the_tests() -> None:
    assert set(choose(TWENTY, part_of("2/3"))) == set(choose(TWENTY[::-1], part_of("2/3")))


def test_the_halves_of_the_tests_are_all_tests_and_each_has_all_its_variants() -> None:
    names = [f"tests/test_sum.py::test_{n}[{kind}]" for n in range(100) for kind in "ab"]
    first, second = (list(choose_tests(names, part_of(part))) for part in ("1/2", "2/2"))
    assert sorted(first + second) == sorted(names)
    assert len({name.partition("[")[0] for name in first}) == len(first) / 2
    assert 60 < len(first) < 140


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "-1/3", "1/0", "a/b", "1/3/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a part such as 2/4"):
        part_of(text)
