"""What the demo prints at its end."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.models import Max

from django_pgjobs.models import Job
from example_project.database import embedded_binaries
from example_project.shop.demo.checks import Check
from example_project.shop.demo.drain import Drained
from example_project.shop.demo.feed import Sent
from example_project.shop.demo.plan import Plan
from example_project.shop.signup import send_welcome_mail


def summary(plan: Plan, sent: Sent, drained: Drained) -> Iterator[str]:
    """Yield the lines of the table of counts and rates."""
    rolled_back = sum(transaction.rolls_back for transaction in plan.sign_ups)
    yield row(
        "sign-ups", len(plan.committed), f"in {len(plan.sign_ups) - rolled_back:,} transactions"
    )
    yield row(
        "  rolled back", len(plan.rolled_back), f"in {rolled_back:,} transactions, on purpose"
    )
    yield row("webhooks", plan.webhooks, "each answered with 202 at once")
    yield row("  delivered twice", plan.duplicates, "the provider's second deliveries")
    yield row("  too early", len(plan.early_bodies), "before the shop had the order")
    yield row("  malformed", plan.malformed, "")
    yield row("jobs enqueued", len(sent.jobs), _rate(len(sent.jobs), sent.seconds))
    yield row("jobs finished", len(sent.jobs), _rate(len(sent.jobs), drained.seconds))
    if drained.killed_pid:
        note = f"running again {_recovery(drained):.1f} s after kill -9"
        yield row("jobs rescued", len(drained.orphans), note)


def verdicts(checks: list[Check]) -> Iterator[str]:
    """Yield one line per check."""
    for check in checks:
        mark = "✓" if check.passed else "✕"
        is_bound = bool(check.rule)
        expected = f"   expected {check.rule}{check.expected:,}"
        said = "" if check.passed and not is_bound else expected
        yield f"  {mark} {check.text:<49} {check.found:>7,}{said}"


def next_steps(sent: Sent, logs: Path) -> Iterator[str]:
    """Yield what to try next."""
    manage = _manage()
    yield "Try next, in three terminals:"
    yield f"  {manage} runserver"
    yield f"  {manage} runjobs"
    yield f"  {manage} outside_api"
    yield "and then"
    yield "  http://127.0.0.1:8000/               sign up, order, play the payment provider"
    yield "  http://127.0.0.1:8000/integrations/  what was sent where; send a catalogue again"
    yield "  http://127.0.0.1:8000/admin/         jobs, workers, orders (admin, admin)"
    yield f"  {_psql_path()}{manage} dbshell"
    yield "    SELECT status, queue_name, count(*) FROM pgjobs_job GROUP BY 1, 2;"
    yield "    INSERT INTO pgjobs_job (task_path, args)   -- enqueues a job"
    yield f"      VALUES ('{send_welcome_mail.module_path}', '[{sent.customers[0]}]');"
    yield f"The workers' logs are in {logs}"


def database() -> str:
    """Name the server and the database, without the password."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        [version] = cursor.fetchone()
    configured = connection.settings_dict
    host = configured["HOST"] or "the local socket"
    return f"PostgreSQL {version.split()[0]}, database {configured['NAME']} at {host}"


def _recovery(drained: Drained) -> float:
    """Return the seconds from the kill until the last of the orphans was running again."""
    newest = Job.objects.filter(id__in=drained.orphans).aggregate(at=Max("last_attempted_at"))
    return float((newest["at"] - drained.killed_at).total_seconds()) if newest["at"] else 0.0


def row(name: str, count: int, note: str) -> str:
    """Return a line of the table of counts."""
    return f"  {name:<18} {count:>7,}   {note}".rstrip()


def _rate(count: int, seconds: float) -> str:
    return f"in {seconds:.1f} s, {count / max(seconds, 0.001):,.0f} per second"


def _psql_path() -> str:
    """Return what makes psql known to the shell: nothing if it is, else where ours is."""
    if shutil.which("psql") or os.environ.get("DATABASE_URL"):
        return ""
    return f'PATH="{embedded_binaries()}:$PATH" '


def _manage() -> str:
    """Return how to run manage.py from where the reader is."""
    path = Path(settings.BASE_DIR) / "manage.py"
    try:
        path = path.relative_to(Path.cwd())
    except ValueError:
        pass
    python = sys.executable if sys.prefix != sys.base_prefix else "python3"
    try:
        python = str(Path(python).relative_to(Path.cwd()))
    except ValueError:
        pass
    return shlex.join([python, str(path)])
