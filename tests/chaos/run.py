"""One run from its options to its verdict."""

from __future__ import annotations

import argparse
import os
import pwd
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection as django_connection

from django_pgjobs import JobError
from example_project.database import UNPRIVILEGED_USERS
from tests.chaos import __doc__ as about
from tests.chaos import journal as notes
from tests.chaos.actions import OUTAGE, Client
from tests.chaos.faults import FAULTS, THREADS, Fault, Faults
from tests.chaos.ledger import CREATE
from tests.chaos.operator import Operator, set_up_limits
from tests.chaos.report import check, check_logs, unfinished
from tests.chaos.times import set_up_schedules
from tests.chaos.world import World, now

FAMILIES = ("rows", "tasks", *FAULTS)
# No client enqueues while more than this waits: what is stuck shall be seen, not buried.
BACKLOG = 150
PROGRESS_SECONDS = 10.0
# Without any change of a job for this long nothing will come any more: the sweep looks once a
# minute, a lease runs 5 s, and a lost job comes back after 128 s at most.
QUIET_SECONDS = 210.0
DRAIN_SECONDS = 900.0

COUNTS = "SELECT status, count(*) FROM pgjobs_job GROUP BY status"
WAITING = """
SELECT count(*) FROM pgjobs_job
WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL
"""


def families(text: str) -> list[str]:
    """Return the families in a list with commas."""
    names = [name for name in text.split(",") if name]
    unknown = sorted(set(names) - set(FAMILIES))
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown}; expected some of {', '.join(FAMILIES)}")
    return names


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 nothing found, 1 something found, 2 wrong use.",
    )
    names = ", ".join(FAMILIES)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", help="chooses the faults (default: a new one)")
    parser.add_argument("--workers", type=int, default=4, help="workers at a time (default: 4)")
    parser.add_argument("--clients", type=int, default=2, help="who enqueue (default: 2)")
    parser.add_argument(
        "--without", type=families, default=[], metavar="A,B", help=f"leave out some of {names}"
    )
    parser.add_argument("--only", type=families, metavar="A,B", help="only these of them")
    parser.add_argument("--pace", type=float, default=1.0, help="2: twice as many faults")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep journal, ledger and logs here"
    )
    return parser


class Run:
    """A run: set up, go wrong for a while, calm down, look at what was left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seed = options.seed or str(random.randrange(10**6))
        wanted = FAMILIES if options.only is None else options.only
        self.families = [name for name in wanted if name not in options.without]
        self.is_over = threading.Event()
        self.waiting = 0
        self.ended_at = 0.0

    def go(self, folder: Path) -> list[str]:
        """Do it all; return what was found."""
        self.say(
            f"seed {self.seed}, {self.options.minutes:g} min, {self.options.workers} workers, "
            f"faults: {', '.join(self.families) or 'none'}"
        )
        world = World(
            folder,
            seed=self.seed,
            workers=self.options.workers,
            follows="failover" in self.families,
        )
        try:
            self.set_up(world)
            self.let_go_wrong(world)
            self.calm_down(world)
            found = self.judge(world)
            world.stop_workers()
            return [*found, *world.findings, *check_logs(world)]
        finally:
            self.is_over.set()
            world.close()

    def set_up(self, world: World) -> None:
        """Make the tables and start the workers."""
        call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)
        with world.pair.connect() as connection:
            connection.execute(CREATE)
        set_up_limits()
        set_up_schedules()
        world.start_workers()
        if "remote" in self.families:
            world.start_site()
        self.say("workers are ready")

    def let_go_wrong(self, world: World) -> None:
        """Let clients, people and faults do what they do until the time is over."""
        threads = [self.thread(world, target) for target in self.roles(world)]
        end = time.monotonic() + self.options.minutes * 60
        said = time.monotonic()
        while time.monotonic() < end:
            time.sleep(0.5)
            self.look(world)
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                self.say(self.situation(world))
        self.is_over.set()
        self.ended_at = time.time()
        self.say("the faults stop")
        for thread in threads:
            thread.join()

    def roles(self, world: World) -> list[Callable[[], None]]:
        """Return what the threads of the run do."""
        pace = self.options.pace
        found: list[Callable[[], None]] = [
            lambda: Operator(f"{self.seed} operator", world.journal).run(self.is_over)
        ]
        for number in range(self.options.clients):
            client = Client(world.journal, f"{self.seed} client {number}", self.families)
            found.append(lambda client=client: client.run(self.is_over, self.is_full))
        for name, group, (least, most) in THREADS:
            wanted = [family for family in group if family in self.families]
            fault = Fault(world, f"{self.seed} {name}", self.is_over)
            found.append(Faults(fault, wanted, (least / pace, most / pace)).run)
        return found

    def thread(self, world: World, target: Callable[[], None]) -> threading.Thread:
        """Start a thread; if it breaks, the run is void."""

        def run() -> None:
            try:
                target()
            except BaseException:
                world.found(f"the chaos test itself broke:\n{traceback.format_exc()}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def is_full(self) -> bool:
        """Return whether enough waits already."""
        return self.waiting > BACKLOG

    def look(self, world: World) -> None:
        """Look at the backlog, and after the workers."""
        world.look_after()
        try:
            with world.pair.connect() as connection:
                self.waiting = connection.execute(WAITING).fetchone()[0]  # type: ignore[index]
        except psycopg.Error:
            pass  # there is no server just now

    def situation(self, world: World) -> str:
        """Return how things stand, in a line."""
        try:
            with world.pair.connect() as connection:
                counts = dict(connection.execute(COUNTS).fetchall())
        except psycopg.Error:
            counts = {"no server": 1}
        faults = sum(entry.kind == notes.FAULT for entry in world.journal.read())
        said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        return f"{said}; {faults} faults, {len(world.findings)} findings"

    def calm_down(self, world: World) -> None:
        """Let everything come to its end, and stop waiting when nothing changes any more."""
        operator = Operator(f"{self.seed} end", world.journal)
        begun = changed = said = time.monotonic()
        before: list[Any] = []
        while time.monotonic() - begun < DRAIN_SECONDS:
            self.look(world)
            left = self.left(world, operator)
            if not left:
                break
            if left != before:
                before, changed = left, time.monotonic()
            if time.monotonic() - changed > QUIET_SECONDS:
                break
            if time.monotonic() - said > PROGRESS_SECONDS:
                said = time.monotonic()
                self.say(f"waiting for {len(left)} jobs: {self.situation(world)}")
            time.sleep(1.0)
        django_connection.close()
        self.say(f"came to rest in {time.monotonic() - begun:.0f} s")

    def left(self, world: World, operator: Operator) -> list[Any]:
        """Cancel what would run for ever, and return what has not ended."""
        try:
            operator.finish()
            return unfinished(world)
        except (*OUTAGE, JobError) as error:
            django_connection.close()
            return [error]

    def judge(self, world: World) -> list[str]:
        """Return everything that was found."""
        found, facts = check(world, self.ended_at)
        kinds = Counter(
            entry.what.split(",")[0] for entry in world.journal.read() if entry.kind == notes.FAULT
        )
        self.say(
            "faults: " + (", ".join(f"{n} {what}" for what, n in sorted(kinds.items())) or "none")
        )
        self.say(facts)
        return found

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"{now()} {text}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run with a command line; return the exit status."""
    run = Run(make_parser().parse_args(arguments))
    # So that nothing of it is left when somebody ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    # Under nohup the workers would inherit that HUP is ignored, until they have a handler for it.
    signal.signal(signal.SIGHUP, lambda *_: None)
    home = Path(tempfile.mkdtemp(prefix="pgjobs-chaos-"))
    os.chmod(home, 0o755)
    folder = home / "run"
    folder.mkdir()
    shutil.chown(folder, *owner())
    try:
        found = run.go(folder)
        if run.options.keep:
            shutil.copytree(folder, run.options.keep, dirs_exist_ok=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for what in found:
        print(f"FOUND {what}")
    print(f"{'FAILED' if found else 'PASSED'}: seed {run.seed}, {len(found)} findings")
    return 1 if found else 0


def owner() -> tuple[int, int]:
    """Return who runs the servers, and so owns the folder: not root."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in UNPRIVILEGED_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise SystemExit("PostgreSQL does not run as root, and there is no other user to run it.")
