"""The list of mutations names lines and tests that are there; running them takes minutes."""

from __future__ import annotations

from tests.helpers import ROOT
from tests.mutations import MUTATIONS


def test_every_mutation_changes_a_line_that_exists() -> None:
    lost = [
        f"{mutation.name}: {mutation.file}"
        for mutation in MUTATIONS
        if mutation.old not in (ROOT / mutation.file).read_text()
    ]
    assert not lost, "\n".join(lost)


def test_every_mutation_has_tests_that_exist() -> None:
    lost = [
        f"{mutation.name}: {test}"
        for mutation in MUTATIONS
        for test in mutation.tests
        if not (ROOT / test.split("::")[0]).exists()
    ]
    assert not lost, "\n".join(lost)
