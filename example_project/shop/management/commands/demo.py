"""`manage.py demo`: the shop at work, one worker killed on the way, every effect counted."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import BaseCommand, CommandError, CommandParser, call_command

from example_project.integrations.demo.checks import check_integrations
from example_project.integrations.demo.play import EDITS_EACH, Play, Played
from example_project.integrations.demo.report import summary
from example_project.integrations.demo.world import World, make_world
from example_project.integrations.limits import ALLOWED, allowances
from example_project.integrations.models import Integration
from example_project.integrations.outside import OutsideApi
from example_project.payroll.demo.checks import check_payroll
from example_project.payroll.demo.payday import Paid, Payday
from example_project.payroll.demo.report import summary as payroll_summary
from example_project.payroll.demo.web import WebServer, open_office
from example_project.shop.demo import report
from example_project.shop.demo.checks import check_everything
from example_project.shop.demo.drain import Drain, Drained
from example_project.shop.demo.feed import DemoError, Sent, create_products, feed, place_orders
from example_project.shop.demo.plan import Plan, make_plan
from example_project.shop.demo.progress import Progress
from example_project.shop.demo.times import Times, check_times
from example_project.shop.demo.times import summary as times_summary
from example_project.shop.demo.workers import Workers

SMALLEST = 20
LARGEST = 100_000
# Option, default, meaning.
AMOUNTS = (
    ("customers", 2000, "how many people sign up, those rolled back included"),
    ("webhooks", 2000, "how many webhooks are delivered, second deliveries included"),
    ("products", 2000, "how many products the biggest integration has"),
    ("edits", 600, "how many edits of products there are"),
    ("employees", 400, "how many people are paid at least"),
)
FAULT_SHARE = 0.005  # of the calls of the outside API


def amount(text: str) -> int:
    """Read a number of things to send."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not SMALLEST <= number <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {SMALLEST} to {LARGEST}, got {text!r}"
        )
    return number


@contextlib.contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM, and the end of the terminal, raise KeyboardInterrupt, as Ctrl-C does.

    The workers are stopped then; they would run on for minutes, and into the next demo. Under
    nohup, which ignores SIGHUP, the demo goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


class Command(BaseCommand):
    """Send sign-ups and webhooks, work them off with two workers, and check the outcome."""

    help = (
        "Migrate, create the user admin/admin, sign customers up and deliver payment webhooks "
        "(some transactions roll back, some deliveries come twice), work the jobs off with two "
        "workers, kill one of them on the way, and check in the database that each effect "
        "happened exactly once. Then forty integrations of very different size send their "
        "products to an outside API that limits them, while people edit, and companies have "
        "their trades settled in order. At last people are paid by a workflow, of which a program "
        "over HTTP does a stage (in Node.js, if that is installed), and another worker is killed "
        "in the middle of it. All the time a schedule fetches exchange rates every ten "
        "seconds; reports of the last nights are made up for. Exits with 1 if anything is off. Can "
        "be run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        for name, default, text in AMOUNTS:
            parser.add_argument(
                f"--{name}",
                type=amount,
                default=default,
                metavar="N",
                help=f"{text} (default: {default})",
            )
        parser.add_argument(
            "--no-kill",
            action="store_false",
            dest="kill",
            help="let all workers live",
        )

    def handle(self, **options: Any) -> None:
        """Run the demo; raise CommandError if anything is off."""
        self.stdout.ending = ""
        run = secrets.token_hex(3)
        logs = Path(tempfile.mkdtemp(prefix=f"shop-demo-{run}-"))
        try:
            with signals_interrupt():
                self._run(run, logs, **options)
        except DemoError as error:
            raise CommandError(f"The demo failed: {error}") from error
        except KeyboardInterrupt:
            raise CommandError("Interrupted; the workers are stopped.", returncode=130) from None

    def _run(self, run: str, logs: Path, **options: Any) -> None:
        started = time.monotonic()
        self._prepare()
        plan = make_plan(run, customers=options["customers"], webhooks=options["webhooks"])
        world = make_world(run, products=options["products"])
        with self._start_api() as api, WebServer() as web:
            environment = {"OUTSIDE_API_URL": api.url}
            sign_ups = len(plan.committed) + len(plan.rolled_back)
            sent = feed(plan, Progress(self.stdout, "enqueue", sign_ups + plan.webhooks))
            with Workers(logs, concurrency=4, environment=environment) as workers:
                times = Times(workers.check)
                drained = self._drain(plan, sent, workers, logs, kill=options["kill"])
                played = self._play(world, workers, edits=options["edits"])
                open_office(workers, web.url)
                paid = self._pay(run, workers, options["employees"], kill=options["kill"])
                scheduled = times.run()
                workers.stop()
        lines = [*summary(world, played, api), *payroll_summary(paid), *times_summary(scheduled)]
        self._say("", *report.summary(plan, sent, drained), *lines, "")
        checks = check_everything(run, plan, sent, drained, killed=options["kill"])
        checks += check_integrations(world, played, api)
        checks += check_payroll(paid, killed=options["kill"])
        checks += check_times(scheduled)
        self._say("Found in the database:", *report.verdicts(checks), "")
        seconds = time.monotonic() - started
        if not all(check.passed for check in checks):
            raise DemoError(f"something is off, see ✕ above and the workers' logs in {logs}")
        self._say(f"All is well, after {seconds:.0f} s.", "")
        self._say(*report.next_steps(sent, logs))

    def _prepare(self) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        self._say(report.database())
        self._say(self._make_admin())
        create_products()

    def _make_admin(self) -> str:
        """Create admin/admin, but never where it could be more than a demo."""
        if not settings.DEBUG:
            return "DEBUG is off: no user admin is made."
        user, created = User.objects.get_or_create(
            username="admin", defaults={"is_staff": True, "is_superuser": True}
        )
        if created:
            user.set_password("admin")
            user.save(update_fields=["password"])
        return f"Admin: user admin, password admin ({'created' if created else 'was there'})"

    def _start_api(self) -> OutsideApi:
        """Return the outside API, which knows the plans and is down now and then.

        It knows those of earlier demos too: what one that was cut off has left runs now.
        """
        api = OutsideApi(limit=ALLOWED[Integration.Plan.BASIC], fault_share=FAULT_SHARE)
        api.limits.update(allowances())
        return api

    def _drain(
        self, plan: Plan, sent: Sent, workers: Workers, logs: Path, *, kill: bool
    ) -> Drained:
        pids = workers.start(), workers.start()
        self._say(f"Workers {pids[0]} and {pids[1]}, logs in {logs}")
        drain = Drain(
            sent,
            workers,
            Progress(self.stdout, "work   ", len(sent.jobs)),
            place_early=lambda: place_orders(plan.early, sent.customers),
        )
        return drain.run(kill=kill)

    def _play(self, world: World, workers: Workers, *, edits: int) -> Played:
        planned = len(world.products) + len(world.unpriced) + len(world.trades)
        planned += len(world.integrations) + edits // EDITS_EACH
        play = Play(world, edits=edits, check_workers=workers.check)
        return play.run(Progress(self.stdout, "sync   ", planned))

    def _pay(self, run: str, workers: Workers, employees: int, *, kill: bool) -> Paid:
        payday = Payday(f"2026-11, {run}", workers, employees=employees)
        return payday.run(Progress(self.stdout, "pay    ", employees), kill=kill)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.stdout.write(f"{line}\n")
        self.stdout.flush()
