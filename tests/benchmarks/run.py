"""Carry out a run: prepare the systems, measure in turns, report."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.benchmarks import machine, report
from tests.benchmarks.environments import find_python
from tests.benchmarks.errors import MeasurementFailed, Unavailable
from tests.benchmarks.measures import Measured
from tests.benchmarks.results import Results
from tests.benchmarks.rows import ROWS, Row
from tests.benchmarks.server import Server
from tests.benchmarks.system import ROOT, Bench, System
from tests.benchmarks.systems import SYSTEMS

ROW_KEYS = [row.key for row in ROWS]
SYSTEM_NAMES = [system.name for system in SYSTEMS]
DEFAULT_CACHE = ROOT / ".benchmarks"
BUSY_SHARE = 0.25  # of the processors, before a warning


def warn_if_busy(say: Callable[[str], None]) -> None:
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY_SHARE * processors:
        say(f"WARNING: the load average is {load:.1f} on {processors} CPUs: what else runs here")
        say("         lowers every figure and spreads them; measure on a quiet machine")


def make_bench(
    options: argparse.Namespace, server: Server, folder: Path, say: Callable[[str], None]
) -> Bench:
    return Bench(
        server=server,
        cache=(options.cache or DEFAULT_CACHE).absolute(),
        folder=folder,
        python=find_python(options.python),
        jobs=options.jobs,
        held_jobs=options.held_jobs or 10 * options.jobs,
        latency_samples=options.latency_samples,
        limit=float(options.limit),
        say=say,
    )


def prepare_systems(bench: Bench, wanted: list[str], results: Results) -> list[System]:
    """Install and set up the systems; note in *results* which are left out and why."""
    ready = []
    for kind in SYSTEMS:
        if kind.name not in wanted:
            continue
        system = kind(bench)
        bench.say(f"preparing {system.title}")
        try:
            system.prepare()
        except Unavailable as reason:
            bench.say(f"skipping {system.title}: {reason}")
            results.skipped[kind.name] = str(reason)
            continue
        results.systems.append(kind.name)
        results.settings[kind.name] = system.describe()
        ready.append(system)
    return ready


def describe_figures(row: Row, measured: Measured) -> str:
    figures = [
        f"{report.format_value(measured.figures[figure.key])} {figure.unit or figure.title}"
        for figure in row.figures
        if figure.key in measured.figures
    ]
    return ", ".join(figures) + (f" ({measured.note})" if measured.note else "")


def measure_once(row: Row, system: System, results: Results, label: str) -> None:
    cell = results.cell(row, system.name)
    if cell.is_closed:
        return
    start = time.monotonic()
    try:
        measured = row.measure(system)
    except (MeasurementFailed, Unavailable, psycopg.Error) as failure:
        cell.failure = str(failure)
        system.bench.say(f"{label} {system.title}: FAILED {failure}")
        return
    cell.measured.append(measured)
    took = time.monotonic() - start
    figures = describe_figures(row, measured)
    system.bench.say(f"{label} {system.title}: {figures} [{took:.1f} s]")


@dataclass(frozen=True)
class Turn:
    """One measurement of one system in the order of a run."""

    row: Row
    repeat: int
    system: System


def plan_turns(rows: list[Row], systems: list[System], repeats: int) -> list[Turn]:
    """Order the measurements: row by row, systems in turns that start one further each."""
    turns = []
    for row in rows:
        covered = [system for system in systems if row.covers(system.name)]
        for repeat in range(min(repeats, row.repeats or repeats)):
            shift = repeat % len(covered) if covered else 0
            order = covered[shift:] + covered[:shift]
            turns += [Turn(row, repeat, system) for system in order]
    return turns


def measure_all(rows: list[Row], systems: list[System], repeats: int, results: Results) -> None:
    turns = plan_turns(rows, systems, repeats)
    for number, turn in enumerate(turns, 1):
        label = f"{number}/{len(turns)} {turn.row.key} #{turn.repeat + 1}"
        measure_once(turn.row, turn.system, results, label)


def write_reports(options: argparse.Namespace, rows: list[Row], results: Results) -> None:
    text = report.make_markdown(results, rows)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)
    if options.json is not None:
        options.json.write_text(report.make_json(results, rows))


def run(options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> int:
    """Run what *options* ask for. Interrupted, report what has been measured."""
    rows = [row for row in ROWS if not options.only or row.key in options.only]
    results = Results([], {kind.name: kind.title for kind in SYSTEMS})
    warn_if_busy(say)
    say("starting the server")
    server = Server(folder, os.environ.get("DATABASE_URL"))
    try:
        bench = make_bench(options, server, folder, say)
        results.facts = {
            **machine.describe_machine(bench.python),
            **server.describe(),
            "command": "python -m tests.benchmarks " + shlex.join(sys.argv[1:]),
            "repeats": str(options.repeat),
        }
        systems = prepare_systems(bench, options.systems or SYSTEM_NAMES, results)
        if not systems:
            say("nothing to measure: no system could be prepared")
            return 1
        measure_all(rows, systems, options.repeat, results)
    finally:
        if any(cell.measured for cell in results.cells.values()):
            write_reports(options, rows, results)
        server.stop()
    failed = any(cell.failure for cell in results.cells.values())
    return 1 if failed else 0
