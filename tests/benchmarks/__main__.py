"""The command line: `python -m tests.benchmarks`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

EXPLANATION = """\
Measures django_pgjobs ("ours") beside its peers and beside bare SQL, on one server in one
run, and prints a table of medians with their spread and ratios.

Systems take turns: every repeat measures each of them once. Each lives in a virtual
environment of its own in the cache folder, made at the first run (that needs a package
index); one that cannot be installed is skipped and the table says why.

The server is the embedded PostgreSQL 18 with initdb's own settings in a temporary folder,
or the one DATABASE_URL points to (a role that may create databases; named
pgjobs_bench_<system>, dropped at the end).
"""
EXAMPLES = """\
examples:
  python -m tests.benchmarks                                 all of it, about two hours
  python -m tests.benchmarks --jobs 500 --repeat 1           a quick look at everything
  python -m tests.benchmarks --only drain1,latency --systems bare,ours
  python -m tests.benchmarks --markdown table.md --json figures.json
"""


def positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def make_parser(rows: Sequence[str], systems: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=EXPLANATION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", type=split_names, metavar="ROW,...", help=f"rows of {', '.join(rows)}")
    add("--systems", type=split_names, metavar="NAME,...", help=f"of {', '.join(systems)}")
    add("--repeat", type=positive_int, default=5, help="measurements of each (default 5)")
    add("--jobs", type=positive_int, default=20_000, help="jobs per drain (default 20000)")
    add(
        "--held-jobs",
        type=positive_int,
        help="jobs behind a held snapshot before the last rate (default 10 x --jobs)",
    )
    add(
        "--latency-samples",
        type=positive_int,
        default=100,
        help="jobs per latency measurement, 0.4 s each (default 100)",
    )
    add(
        "--limit",
        type=positive_int,
        default=120,
        metavar="SECONDS",
        help="stop a measurement after this long, take the rate so far and do not repeat "
        "it (default 120)",
    )
    add("--markdown", type=Path, metavar="FILE", help="write the report there too")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--cache", type=Path, help="folder of the environments (default .benchmarks)")
    add("--python", help="interpreter of the environments (default: 3.12 or newer)")
    return parser


def check_names(
    parser: argparse.ArgumentParser, option: str, given: list[str], known: list[str]
) -> None:
    for name in given:
        if name not in known:
            parser.error(f"{option} expected names of {', '.join(known)}; got {name!r}.")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def end_cleanly(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    try:
        from tests.benchmarks import run
    except ImportError as error:
        sys.exit(
            f"The benchmarks need psycopg ({error}). Install what they need with\n"
            '  pip install -e ".[bench]"'
        )
    parser = make_parser(run.ROW_KEYS, run.SYSTEM_NAMES)
    options = parser.parse_args()
    check_names(parser, "--only", options.only or [], run.ROW_KEYS)
    check_names(parser, "--systems", options.systems or [], run.SYSTEM_NAMES)
    signal.signal(signal.SIGTERM, end_cleanly)
    folder = Path(tempfile.mkdtemp(prefix="pgjobs-benchmarks-"))
    try:
        return run.run(options, folder, say)
    except KeyboardInterrupt:
        return 130
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
