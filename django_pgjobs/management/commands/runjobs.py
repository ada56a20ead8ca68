"""`manage.py runjobs`: run a worker."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Any

import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import translation

from django_pgjobs.backend import our_aliases
from django_pgjobs.compat import task_backends
from django_pgjobs.conf import OWN_QUEUE, Conf, automatic_concurrency, get_conf
from django_pgjobs.declaring.attempts import foreign_max_attempts
from django_pgjobs.management.banner import banner, log_first, warnings_of
from django_pgjobs.management.starting import (
    excluded_queues,
    find_what_is_missing,
    load_tasks,
    look_at_connections_of_jobs,
    look_at_server,
    unreachable,
)
from django_pgjobs.management.worker_flags import add_worker_flags
from django_pgjobs.queries.database import job_database
from django_pgjobs.worker.process.code_changes import watch_files
from django_pgjobs.worker.process.exit_status import EXIT_USAGE
from django_pgjobs.worker.process.health import HealthUnusable
from django_pgjobs.worker.process.overseer import Systemd
from django_pgjobs.worker.process.parent import Parent
from django_pgjobs.worker.process.signal_pipe import SignalPipe, held_signals, leave_within
from django_pgjobs.worker.process.supervisor import Supervisor
from django_pgjobs.worker.process.worker_process import LAST_SECONDS, WorkerProcess
from django_pgjobs.worker.running.job_log import set_up_logging
from django_pgjobs.worker.state import Options

VALUE_FLAGS = (
    "concurrency",
    "max_jobs",
    "max_time",
    "max_memory",
    "shutdown_timeout",
    "poll_interval",
    "lease_seconds",
)

EPILOG = """
examples:
  manage.py runjobs
  manage.py runjobs -q mail,billing:4 -c 8
  manage.py runjobs --processes 4 --max-memory 500
  manage.py runjobs --drain
  manage.py runjobs --check

Signals: TERM or INT stops taking jobs, finishes the running ones within the shutdown timeout
and gives the rest back; a second one gives everything back at once. USR1 stops taking jobs and
stays; USR2 prints the stacks of all threads; HUP replaces the child processes.

Exit status: 0 done or stopped, 1 crashed or wrong settings, 2 wrong use, 3 no database at the
start, or one that takes no writes or needs migrate, 75 a job or a part of the process could not be
ended (start me again), 76 restart asked for by HUP, 130 and 131 ended by a second signal or QUIT.
"""


class Command(BaseCommand):
    """Run background jobs until told to stop."""

    help = "Runs background jobs: of all queues, in this process, until TERM or Ctrl-C."

    # Does the process run this command only, so that it may be ended?
    _is_program = False

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_program = True
        super().run_from_argv(argv)

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(*args, **kwargs)
        parser.epilog = EPILOG
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_flags(parser)

    def handle(self, **flags: Any) -> None:
        with held_signals():
            code = self._run(flags)
        if code is None:
            return
        if self._is_program:
            leave_within(LAST_SECONDS, code)
        sys.exit(code)

    def _run(self, flags: dict[str, Any]) -> int | None:
        """Do what the flags say; return the exit status, None if there was nothing to run."""
        conf = get_conf()
        set_up_logging(flags["verbosity"], flags["log_format"])
        load_tasks(conf)
        options = make_options(conf, flags)
        processes = flags["processes"] or conf.PROCESSES
        reloads = flags["reload"] = _reloads(flags)
        found = find_what_is_missing(options.database) if flags["check"] else []
        server = look_at_server(options.database)
        look_at_connections_of_jobs(job_database())
        if flags["verbosity"] and not flags["child"]:
            warnings = [*warnings_of(options, server, processes), *found]
            lines = banner(options, server, processes)
            if flags["log_format"] == "json" and not flags["check"]:
                log_first(lines, warnings)
            else:
                self._say_first(lines, warnings, flags["check"])
        if flags["check"]:
            return None
        if not flags["child"] and (processes > 1 or reloads):
            given = child_flags(flags)
            return Supervisor(given, options, processes=processes, overseer=Systemd()).run()
        return run_worker(options, is_child=flags["child"], reloads=reloads)

    def _say_first(self, lines: list[str], warnings: list[str], checks: bool) -> None:
        lines += [f"WARNING {text}" for text in warnings]
        if not checks:
            lines.append("Ctrl-C to stop, twice to stop at once.")
        elif warnings:
            lines.append("OK      a worker can start, but see the warnings above.")
        else:
            lines.append("OK      a worker can start; its role has all rights that it needs.")
        self.stdout.write("\n".join(lines))
        # Into a pipe, as that of systemd, it would come at the end of the process.
        self.stdout.flush()


def _reloads(flags: dict[str, Any]) -> bool:
    """Return whether to restart when code changes, as the flags say, or by what there is to do."""
    if flags["reload"] is not None:
        return bool(flags["reload"])
    others = ("drain", "max_jobs", "max_time", "child")
    return bool(settings.DEBUG) and not any(flags[name] for name in others)


def run_worker(options: Options, *, is_child: bool, reloads: bool) -> int:
    """Run one worker process; return its exit status."""
    # Bulk changes say what they did. The catalogue is read now, as everything of the package is:
    # an upgrade may replace the files while the worker runs.
    translation.gettext("job")
    # What is loaded by now stays: the garbage collector need not look through it for 50 ms again
    # and again.
    gc.freeze()
    pipe = SignalPipe()
    with pipe.installed():
        overseer = Parent(sys.stdin.fileno()) if is_child else Systemd()
        try:
            runner = WorkerProcess(options, pipe, overseer)
        except HealthUnusable as error:
            raise CommandError(str(error), returncode=EXIT_USAGE) from error
        if isinstance(overseer, Parent):
            overseer.end_with(runner.ask_to_stop)
        if reloads:
            watch_files(runner.ask_to_reload)
        try:
            return runner.run()
        except psycopg.OperationalError as error:
            raise unreachable(options.database, error) from error


def make_options(conf: Conf, flags: dict[str, Any]) -> Options:
    """Return the options of a worker process: flags, else settings; raise CommandError."""

    def choose(flag: str, setting: Any) -> Any:
        return setting if flags[flag] is None else flags[flag]

    check_flags(flags)
    return Options(
        database=worker_database(conf),
        backends=backend_aliases(),
        queues=with_own_queue(flags["queues"].names),
        queue_slots=flags["queues"].slots,
        excluded_queues=excluded_queues(flags["queues"], flags["exclude_queues"]),
        concurrency=choose("concurrency", conf.CONCURRENCY or automatic_concurrency()),
        async_concurrency=conf.ASYNC_CONCURRENCY,
        lease=choose("lease_seconds", conf.LEASE_SECONDS),
        poll_interval=choose("poll_interval", conf.POLL_INTERVAL_SECONDS),
        shutdown_timeout=choose("shutdown_timeout", conf.SHUTDOWN_TIMEOUT_SECONDS),
        timeout_grace=conf.TIMEOUT_GRACE_SECONDS,
        retention=conf.RETENTION_SECONDS,
        failed_retention=conf.FAILED_RETENTION_SECONDS,
        max_attempts=conf.MAX_ATTEMPTS,
        max_losses=conf.MAX_LOSSES,
        max_payload_bytes=conf.MAX_PAYLOAD_BYTES,
        listen=choose("listen", conf.LISTEN),
        unknown_fails=conf.UNKNOWN_TASK == "fail",
        ageing=conf.AGEING_SECONDS,
        drain=flags["drain"],
        schedules=not flags["no_schedules"],
        claim_limit=conf.CLAIM_LIMIT,
        max_jobs=flags["max_jobs"],
        max_time=flags["max_time"],
        max_memory_mib=flags["max_memory"],
        name=flags["name"],
        health_port=flags["health_port"],
        health_host=flags["health_host"],
        health_file=flags["health_file"],
    )


def with_own_queue(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the queues to serve, None for all: a bulk change is to wait for no other worker."""
    return names if names is None or OWN_QUEUE in names else (*names, OWN_QUEUE)


def check_flags(flags: dict[str, Any]) -> None:
    """Raise CommandError for flags that are wrong together."""
    if flags["queues"].names and flags["exclude_queues"]:
        raise CommandError(
            "--queues and --exclude-queues contradict each other; give one of them.",
            returncode=EXIT_USAGE,
        )


def worker_database(conf: Conf) -> str:
    """Return the alias whose parameters the worker's own connections use."""
    try:
        of_jobs = job_database()
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error
    database = conf.WORKER_DATABASE or of_jobs
    if connections[database].vendor != "postgresql":
        raise CommandError(
            f"expected the database {database!r} to be PostgreSQL, got "
            f"{connections[database].vendor}. Set DATABASES or a router accordingly."
        )
    return database


def backend_aliases() -> tuple[str, ...]:
    """Return the aliases in TASKS that are ours; raise CommandError if there is none."""
    aliases = tuple(our_aliases())
    if not aliases:
        raise CommandError(
            "no alias in TASKS uses django_pgjobs.backend.PgJobsBackend. Set "
            'TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}.'
        )
    for alias in aliases:
        # Where the check is silenced, a wrong option is found here and not by the first job.
        foreign_max_attempts("", alias, task_backends[alias].options)
    return aliases


def child_flags(flags: dict[str, Any]) -> list[str]:
    """Return the command line that gives a child process the same options."""
    line = [f"--verbosity={flags['verbosity']}", f"--log-format={flags['log_format']}"]
    if flags["queues"].text:
        line.append(f"--queues={flags['queues'].text}")
    if flags["exclude_queues"]:
        line.append(f"--exclude-queues={','.join(flags['exclude_queues'])}")
    for name in VALUE_FLAGS:
        if flags[name] is not None:
            line.append(f"--{name.replace('_', '-')}={flags[name]}")
    line += [f"--{name.replace('_', '-')}" for name in ("drain", "no_schedules") if flags[name]]
    for name in ("listen", "reload"):
        if flags[name] is not None:
            line.append(f"--{name}" if flags[name] else f"--no-{name}")
    return line
