"""`manage.py jobs`: look at jobs, change them, pause and resume what workers take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from psycopg.errors import (
    InsufficientPrivilege,
    ReadOnlySqlTransaction,
    UndefinedColumn,
    UndefinedFunction,
    UndefinedTable,
)

from django_pgjobs.checks import check_vendor
from django_pgjobs.management import (
    changes,
    doctor,
    enqueueing,
    failures,
    limits,
    looks,
    muting,
    one_job,
    pausing,
    prune,
    schedules,
    stats,
    tail,
    tokens,
    workers,
    workflows,
)
from django_pgjobs.management.arguments import ActionParser, add_action, examples
from django_pgjobs.management.grants import WEB, WORKER, make_grants
from django_pgjobs.management.printing import while_somebody_reads
from django_pgjobs.management.starting import look_at_server, takes_no_writes
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.values.words import IN_LINES
from django_pgjobs.worker.process.exit_status import EXIT_UNREACHABLE, EXIT_USAGE

# What may mean that no command can use the database.
UNUSABLE = (psycopg.OperationalError, UndefinedTable, UndefinedColumn, UndefinedFunction)

EPILOG = """
examples:
  manage.py jobs doctor
  manage.py jobs stats --watch
  manage.py jobs failures
  manage.py jobs workers
  manage.py jobs show 4711
  manage.py jobs explain 4711
  manage.py jobs pause --queue mail --reason "PDF bug" --for 2h
  manage.py jobs pause --key 'shop:*' --until 2026-12-24T18:00
  manage.py jobs resume --queue mail
  manage.py jobs mute unserved reports --for 2h --reason 'new queue'
  manage.py jobs limits
  manage.py jobs limits rate shopify --count 20 --period 1.6
  manage.py jobs list --status failed --queue mail
  manage.py jobs tail --status failed
  manage.py jobs stuck
  manage.py jobs stack 4711
  manage.py jobs requeue 4711 4712
  manage.py jobs requeue --task shop.tasks.push --error ConnectionError --since 2h
  manage.py jobs cancel --queue mail --dry-run
  manage.py jobs reschedule 4711 --now
  manage.py jobs delete --task shop.tasks.push --status failed --dry-run
  manage.py jobs workflows --unfinished
  manage.py jobs workflows retry 17
  manage.py jobs prune --dry-run
  manage.py jobs enqueue shop.tasks.push_product --args '[4711]'
  manage.py jobs schedules list
  manage.py jobs schedules next nightly --count 10
  manage.py jobs tokens create node-1 --may work --queue node
  manage.py jobs grants --worker shop_worker --web shop_web | psql shop

Each action has a --help of its own.

Exit status:
  0    done; pause and resume also if it was so before
  1    what is named does not exist, or some of it was not changed; the settings are wrong; the
       output cannot be written; the database does not answer in time; with --fail: a job looks
       stuck, or something is wrong
  2    wrong use
  3    the database cannot be reached, takes no writes or is not migrated
  130  Ctrl-C, also of stats --watch and tail
"""

OF_GRANTS = """
Prints GRANT statements for the tables, sequences and functions that are there now, and changes
nothing. Run them as the owner of the tables, and again after a migration. What jobs and pages use
of your own tables is not in them.
"""


def database_role(text: str) -> str:
    """Return the name of a role; the word for everybody is none."""
    if not text.strip() or text.lower() == "public":
        raise argparse.ArgumentTypeError(f"expected the name of a database role, got {text!r}.")
    return text


class Command(BaseCommand):
    """Look at jobs and change them."""

    help = "Looks at background jobs, changes them, pauses and resumes what workers take."
    # It is needed most when the project is broken; what it uses reports its own problems.
    requires_system_checks = ()

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(*args, **kwargs)
        parser.epilog = EPILOG
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, parser_class=ActionParser)
        doctor.add_doctor(actions)
        stats.add_stats(actions)
        failures.add_failures(actions)
        workers.add_workers(actions)
        looks.add_looks(actions)
        tail.add_tail(actions)
        changes.add_changes(actions)
        workflows.add_workflows(actions)
        pausing.add_pausing(actions)
        limits.add_limits(actions)
        muting.add_muting(actions)
        prune.add_prune(actions)
        self._add_grants(actions)
        schedules.add_schedules(actions)
        enqueueing.add_enqueue(actions)
        tokens.add_tokens(actions)

    def _add_grants(self, actions: Any) -> None:
        grants = add_action(
            actions,
            "grants",
            help="Print the SQL that gives database roles the rights they need.",
            description=OF_GRANTS,
            epilog=examples(
                "grants --worker shop_worker --web shop_web | psql shop",
                "grants --web shop_web --web shop_reports > web.sql",
            ),
            fails="the tables are not there",
        )
        grants.add_argument(
            "--worker",
            type=database_role,
            action="append",
            default=[],
            metavar="ROLE",
            help="A role that runs runjobs. May be given several times.",
        )
        grants.add_argument(
            "--web",
            type=database_role,
            action="append",
            default=[],
            metavar="ROLE",
            help="A role that enqueues and changes jobs, pauses, and serves the admin. May be "
            "given several times.",
        )

    def run_from_argv(self, argv: list[str]) -> None:
        with while_somebody_reads():
            super().run_from_argv(argv)

    def handle(self, *, action: str, **flags: Any) -> None:
        _refuse_other_database()
        try:
            self._actions()[action](**flags)
        except CommandError as error:
            raise _refusal(error, error.returncode) from error
        except (TypeError, ValueError) as error:
            raise _refusal(error, EXIT_USAGE) from error
        except ImproperlyConfigured as error:
            raise _refusal(error) from error
        except DatabaseError as error:
            _refuse_if_not_usable(error)
            raise

    def _actions(self) -> dict[str, Callable[..., None]]:
        return {
            **{
                verb.name: partial(changes.change_jobs, verb.name, self._write, self._tell)
                for verb in changes.VERBS
            },
            "explain": partial(self._of_one, one_job.explain_job),
            "show": partial(self._of_one, one_job.show_job),
            "list": partial(looks.list_jobs, self._write, self._tell, self.stdout),
            "tail": partial(tail.tail_jobs, self._write, self._tell, self.stdout),
            "stuck": partial(looks.list_stuck, self._write),
            "stack": partial(looks.show_stack, self._write),
            "pause": partial(pausing.pause, self._write, self._tell),
            "resume": partial(pausing.resume, self._write),
            "limits": partial(limits.handle, self._write, self._tell, self.stdout),
            "mute": partial(muting.mute_warning, self._write, self._tell),
            "unmute": partial(muting.unmute_warning, self._write),
            "mutes": partial(muting.list_mutes, self._write, self.stdout),
            "prune": partial(prune.prune, self._write),
            "grants": self._grants,
            "doctor": partial(doctor.diagnose, self._write),
            "stats": partial(stats.show_stats, self._write, self._tell, self.stdout),
            "failures": partial(failures.show_failures, self._write, self.stdout),
            "workers": partial(workers.handle, self._write, self.stdout),
            "workflows": partial(workflows.handle, self._write, self._tell),
            "schedules": partial(schedules.handle, self._write),
            "enqueue": partial(enqueueing.enqueue, self._write),
            "tokens": partial(tokens.handle, self._write, self._tell),
        }

    def _write(self, text: str) -> None:
        """Print lines, whatever a row says."""
        self.stdout.write(text.translate(IN_LINES))

    def _tell(self, text: str) -> None:
        """Print lines that no program reads; only warnings have the colour of errors."""
        style = None if text.startswith("WARNING ") else str
        self.stderr.write(text.translate(IN_LINES), style)

    def _of_one(self, look: Callable[..., None], **flags: Any) -> None:
        look(self._write, flags["id"], as_json=flags["json"])

    def _grants(self, **flags: Any) -> None:
        wanted = [
            *((role, WORKER) for role in flags["worker"]),
            *((role, WEB) for role in flags["web"]),
        ]
        if not wanted:
            raise ValueError("grants expected --worker ROLE, --web ROLE or both.")
        try:
            self._write("\n".join(make_grants(wanted)))
        except LookupError as error:
            raise CommandError(str(error)) from error


def _refusal(error: Exception, returncode: int = 1) -> CommandError:
    """Return what the command ends with; it may quote a row, and steers no terminal."""
    return CommandError(str(error).translate(IN_LINES), returncode=returncode)


def _refuse_other_database() -> None:
    """Raise CommandError if the jobs are not in PostgreSQL, as a check says that is not run."""
    for problem in check_vendor():
        raise CommandError(f"{problem.msg} {problem.hint}")


def _refuse_if_not_usable(error: DatabaseError) -> None:
    """Raise CommandError, as `runjobs` does, if there is no server, table, column or right.

    Also if it takes no writes, gave up waiting, or others came in between.
    """
    if isinstance(error.__cause__, InsufficientPrivilege):
        said = f"{str(error).strip()}. `manage.py jobs grants` prints what a role needs."
        raise _refusal(CommandError(said), EXIT_UNREACHABLE) from error
    if isinstance(error.__cause__, ReadOnlySqlTransaction):
        said = f"{' '.join(str(error).split())}."
        raise takes_no_writes(job_database(), said) from error
    if not isinstance(error.__cause__, UNUSABLE):
        return
    trouble, said = trouble_of(error.__cause__), " ".join(str(error).split())
    if trouble in (Trouble.LOCKED, Trouble.CROSSED):
        raise _refusal(CommandError(f"the database gave up: {said}. Try again.")) from error
    try:
        look_at_server(job_database())
    except CommandError as refusal:
        raise _refusal(refusal, refusal.returncode) from error
    if trouble is Trouble.LOST:
        lost = CommandError(f"the connection to the database was lost: {said}. Try again.")
        raise _refusal(lost, EXIT_UNREACHABLE) from error
