"""The flags of `runjobs`; their help has the bounds and the defaults."""

from __future__ import annotations

import argparse

from django.core.management.base import CommandParser

from django_pgjobs.conf import expected
from django_pgjobs.management.arguments import (
    MAX_PORT,
    MAX_SLOTS,
    MAX_TIME,
    MAX_WORKER_NAME_BYTES,
    QueueSlots,
    concurrency,
    duration,
    port,
    queue_names,
    queue_slots,
    seconds,
    whole,
    whole_number,
    worker_name,
)
from django_pgjobs.values.bounds import MAX_INTEGER, MAX_QUEUE_NAME_BYTES


def add_worker_flags(parser: CommandParser) -> None:
    """Add all flags of `runjobs`."""
    _add_queues(parser)
    _add_size(parser)
    _add_limits(parser)
    _add_behaviour(parser)
    _add_health(parser)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)


def _add_queues(parser: CommandParser) -> None:
    what = parser.add_argument_group("what to run")
    what.add_argument(
        "-q",
        "--queues",
        type=queue_slots,
        default=QueueSlots("", None, {}),
        metavar="A,B:4,*",
        help="Only these queues (default: all); B:4 runs at most 4 jobs of B at a time (1 to "
        f"{MAX_SLOTS}); * adds all others. A name has at most {MAX_QUEUE_NAME_BYTES} bytes. "
        "The queue of bulk changes, pgjobs, is added.",
    )
    what.add_argument(
        "--exclude-queues",
        type=queue_names,
        default=(),
        metavar="A,B",
        help="All queues but these.",
    )
    what.add_argument(
        "--no-schedules", action="store_true", help="Leave due schedules to other workers."
    )


def _add_size(parser: CommandParser) -> None:
    size = parser.add_argument_group("concurrency")
    size.add_argument(
        "-c",
        "--concurrency",
        type=concurrency,
        metavar="N|auto",
        help=f"Jobs at a time per process, in threads: {expected('CONCURRENCY')} (default: auto, "
        "processors + 4, at most 32, whatever the CPU quota of a container). Async jobs are not "
        "counted, see PGJOBS['ASYNC_CONCURRENCY'].",
    )
    size.add_argument(
        "--processes",
        type=whole("PROCESSES"),
        metavar="N",
        help=f"Processes, {expected('PROCESSES')}; with more than 1 this one only supervises "
        "(default: 1).",
    )


def _add_limits(parser: CommandParser) -> None:
    limits = parser.add_argument_group("when to stop")
    limits.add_argument(
        "--drain",
        action="store_true",
        help="Stop when nothing is left that may run, now or once there are tokens of rate limits; "
        "what is for later, paused or behind a full key stays.",
    )
    limits.add_argument(
        "--max-jobs",
        type=whole_number,
        metavar="N",
        help=f"Stop after N finished jobs, 1 to {MAX_INTEGER} (default: no limit).",
    )
    limits.add_argument(
        "--max-time",
        type=duration,
        metavar="S",
        help=f"Stop after S seconds, 0 to {MAX_TIME:.0f} (default: no limit).",
    )
    limits.add_argument(
        "--max-memory",
        type=whole_number,
        metavar="MIB",
        help="Stop when a process has used more memory, its peak resident size: MiB, 1 to "
        f"{MAX_INTEGER} (default: no limit). With --processes, the limits on jobs and memory "
        "replace the child process instead, unless it is to --drain or has a --max-time.",
    )
    limits.add_argument(
        "--shutdown-timeout",
        type=seconds("SHUTDOWN_TIMEOUT_SECONDS"),
        metavar="S",
        help="How long running jobs may take to finish at a stop: "
        f"{expected('SHUTDOWN_TIMEOUT_SECONDS')} (default: 30).",
    )


def _add_behaviour(parser: CommandParser) -> None:
    how = parser.add_argument_group("behaviour")
    how.add_argument(
        "--poll-interval",
        type=seconds("POLL_INTERVAL_SECONDS"),
        metavar="S",
        help="The longest time between two polls of an idle worker: "
        f"{expected('POLL_INTERVAL_SECONDS')} (default: 5).",
    )
    how.add_argument(
        "--listen",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Be notified of new jobs, or find them by polling only (default: --listen).",
    )
    how.add_argument(
        "--lease-seconds",
        type=seconds("LEASE_SECONDS"),
        metavar="S",
        help="How long after its last renewal others take a worker's jobs: "
        f"{expected('LEASE_SECONDS')} (default: 60).",
    )
    how.add_argument(
        "--reload",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Restart when code changes; running jobs have 3 s (default: if DEBUG, not with "
        "--drain, --max-jobs or --max-time).",
    )
    _add_what_is_said(how)


def _add_what_is_said(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--name",
        type=worker_name,
        default="",
        help=f"The worker's name, at most {MAX_WORKER_NAME_BYTES} bytes (default: host:pid); "
        "several processes append a number.",
    )
    how.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="One line per event (default: text).",
    )
    how.add_argument(
        "--check",
        action="store_true",
        help="Check settings, database, rights and queues, say what would run, and exit.",
    )


def _add_health(parser: CommandParser) -> None:
    health = parser.add_argument_group("health checks")
    health.add_argument(
        "--health-port",
        type=port,
        metavar="PORT",
        help=f"Answer /live, /ready and /metrics over HTTP, 1 to {MAX_PORT} (default: not). With "
        "--processes, the first child takes this port, the others the ports that follow.",
    )
    health.add_argument(
        "--health-host",
        default="127.0.0.1",
        metavar="HOST",
        help="The address to listen at; there is no password (default: 127.0.0.1).",
    )
    health.add_argument(
        "--health-file",
        default="",
        metavar="PATH",
        help="Touch this file each second while live. With --processes, PATH.1, PATH.2 ...",
    )
