"""Where the `record` task of every system writes when its first line ran."""

from __future__ import annotations

import os


def write_first_line(number: int, moment: float) -> None:
    """Append *moment* (seconds since the epoch) of job *number* to the latency file."""
    line = f"{number} {moment!r}\n".encode()
    descriptor = os.open(os.environ["BENCH_LATENCY_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
