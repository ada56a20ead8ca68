"""How `.ci/run` runs its stages, and what it says of those that failed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT, some_always

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs the tools of GNU")

PYTEST = (sys.executable, "-m", "pytest", "-q")
STAGES = """
set -euo pipefail
. .ci/stages.sh
good() { echo "good is done: 3 passed"; }
bad() { echo "bad begins"; false; echo "bad goes on"; }
patient() { until [ -e "$folder/gate" ]; do sleep 0.01; done; echo "patient is done"; }
"""
FAILING = """
import logging

def test_sum():
    logging.getLogger("shop").warning("what was logged")
    wanted = 3
    assert 1 + 1 == wanted

def test_other():
    raise ValueError("another trouble")
"""

UNSTEADY = """
from pathlib import Path

def test_steady():
    pass

def test_unsteady():
    runs = Path("runs")
    with runs.open("a") as file:
        file.write("x")
    assert len(runs.read_text()) not in FAILING_RUNS
"""

BROKEN_OFF = """
import pytest

def test_unsteady():
    assert False

def test_break_off():
    pytest.exit("the runner has no more room", returncode=3)

def test_never_run():
    assert False
"""


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what a run of one test takes, most is the import of plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with stages; what it says is in stdout."""
    return subprocess.run(
        ["bash", "-c", STAGES + script],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def run_with_functions(folder: Path, script: str, **environment: str) -> tuple[int, str]:
    """Run a script with the functions of `.ci/run`, in *folder*; return its status and output."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    functions, found, _ = (ROOT / ".ci" / "run").read_text().partition("\n# What reads source")
    assert found
    (folder / ".ci" / "run").write_text(f"{functions}\n{script}\nconclude\n")
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def summary_of(output: str) -> list[str]:
    """Return the lines below the last heading."""
    return output.rpartition("=== summary\n")[2].splitlines()


def test_stages_that_pass_are_summed_up() -> None:
    done = run('stage "first one\'s, good" good\nconclude')
    assert done.returncode == 0, done.stdout
    [line, verdict] = summary_of(done.stdout)
    assert line.split(maxsplit=3)[:3] == ["first", "one's,", "good"]
    assert line.endswith("good is done: 3 passed")
    assert verdict.startswith("everything passed in ")


def test_a_stage_that_fails_stops_at_once_and_stops_no_other() -> None:
    done = run("stage first bad\nstage second good\nconclude")
    assert done.returncode == 1
    assert "bad goes on" not in done.stdout
    first, second, verdict = summary_of(done.stdout)
    assert first.startswith("first ") and first.endswith("FAILED")
    assert second.startswith("second ") and second.endswith("3 passed")
    assert verdict.startswith("FAILED (first) in ")


def test_the_output_of_stages_side_by_side_is_kept_apart() -> None:
    done = run(
        'begin first patient\nstage second good\ntouch "$folder/gate"\nfollow first\nconclude'
    )
    assert done.returncode == 0, done.stdout
    words = ("=== second", "good is done", "=== first", "patient is done", "=== summary")
    places = [done.stdout.index(word) for word in words]
    assert places == sorted(places)


def test_nothing_goes_on_when_the_script_ends_early() -> None:
    # Were it still there, it would hold the pipe until `run` gives up.
    done = run("exec 9>&1\nhold() { timeout 1000 sleep 1000; }\nbegin first hold\nfalse")
    assert done.returncode == 1
    assert "not all stages were run" in done.stdout


def test_a_command_that_readme_does_not_have_fails_its_stage(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("<!-- command: another -->\n```sh\ntrue\n```\n")
    code, output = run_with_functions(tmp_path, "stage tests run_readme_tests")
    assert code == 1, output
    assert "README.md has no code block below <!-- command: tests -->" in output


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_name_of_a_commit_decides_whoever_owns_the_files(tmp_path: Path) -> None:
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    name = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
    # As in the container of a runner, where others own the clone.
    code, output = run_with_functions(
        tmp_path,
        "part_of_commit 1000000 0; part_of_commit 16",
        GIT_TEST_ASSUME_DIFFERENT_OWNER="1",
    )
    assert code == 0, output
    first, last = int(name[:6], 16) % 1_000_000 + 1, int(name.strip()[-6:], 16) % 16 + 1
    assert output.splitlines()[:2] == [f"{first}/1000000", f"{last}/16"]


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
@pytest.mark.parametrize("has_repository", [True, False])
def test_without_a_commit_the_summary_says_that_the_part_is_always_the_same(
    tmp_path: Path, has_repository: bool
) -> None:
    if has_repository:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    code, output = run_with_functions(
        tmp_path, "part_of_commit 2 0", GIT_CEILING_DIRECTORIES=str(tmp_path.parent)
    )
    assert code == 0, output
    assert "1/2" in output.splitlines()
    [line, _] = summary_of(output)
    assert line.startswith("no commit here: always the same parts")


def failures(*logs: Path) -> list[str]:
    """Return what is told of logs."""
    return subprocess.run(
        [sys.executable, ROOT / ".ci" / "failures.py", *logs],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()


def test_the_first_failure_and_the_names_of_all_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(FAILING)
    log = tmp_path / "log"
    with log.open("w") as out:
        subprocess.run(
            [*PYTEST, "."],
            cwd=tmp_path,
            stdout=out,
            timeout=60,
            check=False,
        )
    told = failures(log)
    assert "E       assert (1 + 1) == 3" in told
    assert any("what was logged" in line for line in told)
    assert not any(line.startswith("E       ValueError") for line in told)
    names = [line.split(" - ")[0] for line in told if line.startswith("FAILED")]
    assert names == ["FAILED test_shop.py::test_sum", "FAILED test_shop.py::test_other"]


def test_what_is_told_fits_into_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    trace = "\n".join(f"    line {number}" for number in range(500))
    names = "\n".join(f"FAILED tests/test_it.py::test_{number}" for number in range(500))
    log.write_text(
        f"===== FAILURES =====\n____ test_0 ____\n{trace}\nE   wrong\n"
        f"---- Captured log ----\n{trace}\n____ test_1 ____\n===== short =====\n{names}\n"
    )
    told = failures(log)
    assert len(told) <= 90
    assert told[2:4] == ["____ test_0 ____", "    line 462"]
    assert "E   wrong" in told and "and 480 more" in told


def test_the_last_lines_are_told_of_what_is_no_test(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("\n".join(f"error {number}" for number in range(500)))
    assert failures(log)[-1] == "error 499"


def test_captured_log_lines_are_not_taken_for_failed_tests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    logged = "\n".join(f"ERROR    django_pgjobs.worker:it.py:{n} said" for n in range(50))
    log.write_text(
        f"===== FAILURES =====\n____ test_it ____\n---- Captured log ----\n{logged}\n"
        "===== short =====\nFAILED tests/test_it.py::test_it\n"
    )
    told = failures(log)
    assert told[told.index("=== failures") + 1 :] == ["FAILED tests/test_it.py::test_it"]


@pytest.mark.parametrize(
    ("failing_runs", "code"), some_always([((1, 4), 1), ((1,), 0), ((1, 2), 1), ((1, 5), 0)])
)
def test_a_test_that_failed_once_has_to_pass_three_times_alone(
    tmp_path: Path, failing_runs: tuple[int, ...], code: int
) -> None:
    (tmp_path / "test_it.py").write_text(UNSTEADY.replace("FAILING_RUNS", repr(failing_runs)))
    first = subprocess.run(PYTEST, cwd=tmp_path, capture_output=True, check=False)
    assert first.returncode == 1
    again = subprocess.run(
        [sys.executable, ROOT / ".ci" / "unsteady.py", "1", *PYTEST],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert again.returncode == code, again.stdout
    assert ("UNSTEADY" in again.stdout) == (code == 0)
    assert ("test_it.py::test_unsteady" in again.stdout) and "2 passed" not in again.stdout


def test_many_failed_tests_are_not_run_again(tmp_path: Path) -> None:
    cache = tmp_path / ".pytest_cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{"a": true, "b": true, "c": true, "d": true}')
    command = [sys.executable, ROOT / ".ci" / "unsteady.py", "1", "true"]
    assert subprocess.run(command, cwd=tmp_path, timeout=60, check=False).returncode == 1


def test_a_run_that_did_not_come_to_its_end_is_not_taken_for_unsteady(tmp_path: Path) -> None:
    """It knows of one failed test; those that it has not run may fail as well."""
    (tmp_path / "test_it.py").write_text(BROKEN_OFF)
    first = subprocess.run(PYTEST, cwd=tmp_path, capture_output=True, check=False)
    command = [sys.executable, ROOT / ".ci" / "unsteady.py", str(first.returncode)]
    again = subprocess.run([*command, "true"], cwd=tmp_path, timeout=60, check=False)
    assert first.returncode == again.returncode == 3
    kept = tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    assert "test_unsteady" in kept.read_text()
