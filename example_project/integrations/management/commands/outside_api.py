"""`manage.py outside_api`: the other company's API, for trying the pages by hand."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser

from example_project.integrations.limits import ALLOWED, allowances
from example_project.integrations.models import Integration
from example_project.integrations.outside import OutsideApi


class Command(BaseCommand):
    """Serve the outside API at settings.OUTSIDE_API_URL."""

    help = (
        "Serve the outside API that products are sent to. It keeps what it gets in memory, "
        "answers 429 above the limit of an integration's plan, and 503 now and then."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--fault-share",
            type=float,
            default=0.01,
            metavar="P",
            help="the part of calls that get 503 (default: 0.01)",
        )

    def handle(self, *, fault_share: float, **options: Any) -> None:
        """Serve until Ctrl-C."""
        port = urlsplit(settings.OUTSIDE_API_URL).port or 80
        try:
            api = OutsideApi(
                limit=ALLOWED[Integration.Plan.BASIC], fault_share=fault_share, port=port
            )
        except OSError as error:
            raise CommandError(f"cannot listen on port {port}: {error}") from error
        api.limits.update(allowances())
        self.stdout.write(f"The outside API is at {api.url}. Ctrl-C to stop.")
        self.stdout.flush()
        try:
            api.serve_forever()
        except KeyboardInterrupt:
            self.stdout.write(f"Answered: {dict(api.answers)}")
