"""The file that a worker touches while it lives (`--health-file`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from django_pgjobs.worker.process.health import SignFile
from django_pgjobs.worker.process.health_server import HealthUnusable


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(HealthUnusable, match="the file of --health-file cannot be written: "):
        SignFile(str(tmp_path / "nowhere" / "alive"))


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    os.utime(secret, (0, 0))
    (tmp_path / "alive").symlink_to(secret)
    sign = SignFile(str(tmp_path / "alive"))
    sign.touch()
    assert (secret.read_text(), secret.stat().st_mtime) == ("mine", 0)
    assert not (tmp_path / "alive").is_symlink()


def test_a_file_that_can_no_more_be_touched_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    sign = SignFile(str(folder / "alive"))
    (folder / "alive").unlink()
    folder.rmdir()
    for _ in range(3):
        sign.touch()
    assert caplog.text.count("the file of --health-file cannot be touched") == 1
    folder.mkdir()
    sign.touch()
    assert (folder / "alive").exists()
