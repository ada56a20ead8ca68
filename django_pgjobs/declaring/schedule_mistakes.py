"""Common mistakes in the declaration of a schedule, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django_pgjobs.occurrences.rule import LONGEST_EVERY, SHORTEST_EVERY
from django_pgjobs.values.bounds import MAX_SCHEDULE_NAME_BYTES
from django_pgjobs.values.given import remedy_for_number
from django_pgjobs.values.payload import fits_column
from django_pgjobs.values.words import CONTROL

# How crontabs give a time zone.
ZONE_PREFIXES = ("TZ=", "CRON_TZ=")


def find_mistakes(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with options of `schedule()`, each with its remedy."""
    every, cron = given.get("every"), given.get("cron")
    if every is not None and not (
        isinstance(every, timedelta) and SHORTEST_EVERY <= every <= LONGEST_EVERY
    ):
        said = f"expected every to be a timedelta from 1 s to 10 years, got {every!r}."
        yield said + remedy_for_number(every)
    if isinstance(cron, str):
        yield from _of_crontabs(cron.strip())
    for name in ("starts", "ends"):
        instant = given.get(name)
        if isinstance(instant, datetime) and instant.tzinfo is None:
            yield (
                f"expected {name} to be an aware datetime, got {instant!r}. Write "
                'datetime(..., tzinfo=ZoneInfo("Europe/Berlin")).'
            )
    yield from find_name_problems(given.get("name", "x"))


def _of_crontabs(cron: str) -> Iterator[str]:
    if cron.upper().startswith(ZONE_PREFIXES):
        zone, _, rest = cron.partition("=")[2].partition(" ")
        yield (
            f"expected cron without a time zone, got {cron!r}. Write cron={rest.strip()!r}, "
            f"timezone={zone!r}."
        )
    elif cron.lower() == "@reboot":
        yield (
            "expected cron to name times, got '@reboot': workers come and go. Enqueue a job where "
            "you start the system."
        )


def find_name_problems(name: Any) -> Iterator[str]:
    """Yield what is wrong with the name of a new schedule."""
    is_good = fits_column(name, MAX_SCHEDULE_NAME_BYTES)
    if not is_good or name != name.strip() or name.translate(CONTROL) != name:
        yield (
            f"expected name to be a line of up to {MAX_SCHEDULE_NAME_BYTES} bytes without control "
            f"characters, and without blanks around it, got {name!r}."
        )
