"""What `manage.py jobs limits` shows: the limits, their use, and what waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.forms.models import model_to_dict

from django_pgjobs.conf import get_conf
from django_pgjobs.limits import Limits, read_limits
from django_pgjobs.management.printing import Write, json_text, width_of, write_table
from django_pgjobs.management.reading import reading
from django_pgjobs.models import ConcurrencyLimit, QueueSettings, RateLimit
from django_pgjobs.queries.database import rows_of
from django_pgjobs.queries.limit_pages import MAX_LIMITS, ConcurrencyKeyRow, RateKeyRow
from django_pgjobs.queries.numbers import Size
from django_pgjobs.queries.queue_pages import list_queues
from django_pgjobs.values.moments import duration
from django_pgjobs.values.words import CONTROL, counted

NONE = "-"
OF_RATES = ("rate limit", "count", "period", "burst", "ready", "declared", "note")
OF_RATE_KEYS = ("key of a rate limit", "ready", "tokens", "next", "all")
OF_PATTERNS = ("key or pattern", "max_running", "weight", "note")
OF_KEYS = ("concurrency key", "max_running", "run", "ready", "by", "state")
OF_QUEUES = ("queue", "max_running", "boost", "run", "ready", "note")
NUMBERS = (
    *("count", "period", "burst", "ready", "tokens", "next", "all"),
    *("max_running", "weight", "boost", "run"),
)
Sizes = Mapping[str, Size | None]


def show_limits(write: Write, screen: Any, *, as_json: bool) -> None:
    """Print the limits, and of which something is in use or waits."""
    with reading() as cursor:
        limits = read_limits(cursor)
        queues = list(rows_of(QueueSettings).order_by("queue_name")[:MAX_LIMITS])
    sizes = _sizes() if queues else {}
    if as_json:
        write(json_text(_as_values(limits, queues, sizes)))
        return
    is_first = True
    for names, rows in _tables(limits, queues, sizes):
        if not rows:
            continue
        if not is_first:
            write("")
        write_table(write, names, rows, nothing="", numbers=NUMBERS, width=width_of(screen))
        is_first = False
    if is_first:
        write("there are no limits.")
    if limits.is_cut:
        write(f"there are more limits; the first {MAX_LIMITS} of a kind are shown.")
    for name, keys in limits.missing.items():
        number = _jobs_of(keys)
        wait = f"{counted(number, 'job')} wait{'s' if number == 1 else ''}"
        said = f"{wait} for the rate limit {name}, which is not there: `jobs limits rate` makes it."
        write(f"WARNING {said}".translate(CONTROL))


def shown_number(value: Any) -> str:
    """Return what a column of a limit has."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _sizes() -> Sizes:
    """Return how many jobs of queues wait and run, of the first queues by name."""
    with reading(walks=True) as cursor:
        return {row.name: row.size for row in list_queues(cursor).rows}


def _tables(
    limits: Limits, queues: list[QueueSettings], sizes: Sizes
) -> Iterator[tuple[tuple[str, ...], list[tuple[object, ...]]]]:
    keys = [key for rate in limits.rates for key in limits.keys_of.get(rate.name, [])]
    yield OF_RATES, [_rate_cells(limits, rate) for rate in limits.rates]
    yield OF_RATE_KEYS, [_rate_key_cells(key) for key in keys]
    yield OF_PATTERNS, [_pattern_cells(row) for row in limits.limits]
    yield OF_KEYS, [_key_cells(key) for key in limits.keys]
    yield OF_QUEUES, [_queue_cells(row, sizes.get(row.queue_name)) for row in queues]


def _rate_cells(limits: Limits, rate: RateLimit) -> tuple[object, ...]:
    declared = _declared(rate)
    told = NONE
    if declared is not None:
        numbers = (declared["count"], declared["period"], declared.get("burst"))
        is_changed = numbers != (rate.count, rate.period, rate.burst)
        told = "changed" if is_changed else "settings"
    period = shown_number(rate.period)
    ready = _ready(limits.keys_of.get(rate.name, []))
    return rate.name, rate.count, period, rate.burst_in_force, ready, told, rate.note


def _declared(rate: RateLimit) -> dict[str, Any] | None:
    """Return what the settings say of a limit, None if they do not declare it."""
    declared = get_conf().RATE_LIMITS.get(rate.name)
    return None if declared is None else dict(declared)


def _ready(keys: list[RateKeyRow]) -> int:
    """Return how many jobs wait with keys of a limit, also with those that are not shown."""
    return keys[0].jobs_of_limit if keys else 0


def _jobs_of(keys: list[RateKeyRow]) -> int:
    return sum(key.jobs for key in keys)


def _rate_key_cells(key: RateKeyRow) -> tuple[object, ...]:
    return key.key, key.jobs, _tokens(key), _in(key.next_in), _in(key.full_in)


def _tokens(key: RateKeyRow) -> int:
    """Return how many whole tokens a key has left; below zero turns were given ahead."""
    return max(0, int(key.tokens or 0))


def _in(seconds: float | None) -> str:
    return duration(seconds) if seconds else "now"


def _pattern_cells(row: ConcurrencyLimit) -> tuple[object, ...]:
    return row.pattern, row.max_running, row.weight, row.note


def _key_cells(key: ConcurrencyKeyRow) -> tuple[object, ...]:
    by = "code" if key.pattern is None else key.pattern
    states = [*["PAUSED"][: key.is_paused], *["full"][: key.running >= key.max_running]]
    return key.key, key.max_running, key.running, key.waiting, by, " ".join(states)


def _queue_cells(row: QueueSettings, size: Size | None) -> tuple[object, ...]:
    run, ready = (NONE, NONE) if size is None else (size.running, size.ready)
    most = NONE if row.max_running is None else row.max_running
    return row.queue_name, most, row.boost, run, ready, row.note


# For programs


def _as_values(limits: Limits, queues: list[QueueSettings], sizes: Sizes) -> dict[str, Any]:
    return {
        "rate_limits": [_rate_values(limits, rate) for rate in limits.rates],
        "missing_rate_limits": [
            {"name": name, "ready": _jobs_of(keys), "keys": [key.key for key in keys]}
            for name, keys in limits.missing.items()
        ],
        "concurrency_limits": [model_to_dict(row) for row in limits.limits],
        "concurrency_keys": [
            {
                "key": key.key,
                "ready": key.waiting,
                "running": key.running,
                "max_running": key.max_running,
                "pattern": key.pattern,
                "is_paused": key.is_paused,
            }
            for key in limits.keys
        ],
        "queues": [_queue_values(row, sizes.get(row.queue_name)) for row in queues],
        "is_cut": limits.is_cut,
    }


def _rate_values(limits: Limits, rate: RateLimit) -> dict[str, Any]:
    keys = limits.keys_of.get(rate.name, [])
    shown = [
        {
            "key": key.key,
            "ready": key.jobs,
            "tokens": _tokens(key),
            "next_seconds": key.next_in,
            "full_seconds": key.full_in,
        }
        for key in keys
    ]
    return model_to_dict(rate) | {
        "declared": _declared(rate),
        "ready": _ready(keys),
        "keys": shown,
    }


def _queue_values(row: QueueSettings, size: Size | None) -> dict[str, Any]:
    counts = {"ready": size and size.ready, "running": size and size.running}
    return model_to_dict(row) | counts
