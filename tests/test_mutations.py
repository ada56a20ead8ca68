"""The list of mutations names lines and tests that are there; running them takes minutes."""

from __future__ import annotations

import re

import pytest

from tests.helpers import ROOT
from tests.mutations import MUTATIONS, main


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
        if not is_there(test)
    ]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("words", [["lesae"], ["token of a success", "--part", "2/2"]])
def test_words_that_no_mutation_has_are_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["mutations", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "no mutation is chosen" in capsys.readouterr().err


def is_there(test: str) -> bool:
    """Return whether a file or folder exists, and the function in it that is named."""
    path, _, function = test.partition("::")
    if not function:
        return (ROOT / path).exists()
    name = function.partition("[")[0]
    return re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE) is not None
