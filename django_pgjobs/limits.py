"""Limits of keys, rates and queues: which there are, who waits for them, and changes of them.

A change holds from the next claim on. What the tables refuse, the forms refuse in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgjobs.models import ConcurrencyLimit, QueueSettings, RateLimit, RateState
from django_pgjobs.queries import limit_pages, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor, job_database, rows_of
from django_pgjobs.queries.limit_pages import ConcurrencyKeyRow, RateKeyRow
from django_pgjobs.values.bounds import MAX_KEY_BYTES, MAX_QUEUE_NAME_BYTES
from django_pgjobs.values.payload import is_storable


class Limits(NamedTuple):
    """The limits by name, and the keys that jobs wait for or that are in use.

    *keys_of* are those of each rate limit, *missing* those that no limit is for, by the name that
    it would have. With *is_cut* there are more limits.
    """

    rates: list[RateLimit]
    keys_of: dict[str | None, list[RateKeyRow]]
    missing: dict[str, list[RateKeyRow]]
    limits: list[ConcurrencyLimit]
    keys: list[ConcurrencyKeyRow]
    is_cut: bool


def read_limits(cursor: Cursor) -> Limits:
    """Ask the database; of many limits the first are read."""
    most = limit_pages.MAX_LIMITS
    rates = list(rows_of(RateLimit).order_by("name")[:most])
    limits = list(rows_of(ConcurrencyLimit).order_by("pattern")[:most])
    keys_of = limit_pages.list_rate_keys(cursor, limits=len(rates))
    missing: dict[str, list[RateKeyRow]] = {}
    # The limit of a key may be one that was not read.
    for row in keys_of.get(None, []) if len(rates) < most else ():
        missing.setdefault(row.key.partition(":")[0], []).append(row)
    keys = limit_pages.list_concurrency_keys(cursor)
    return Limits(rates, keys_of, missing, limits, keys, most in (len(rates), len(limits)))


def tell_workers() -> None:
    """Let workers look for jobs, under the new rules, when the transaction commits."""
    with job_cursor() as cursor:
        notifications.notify_of_control(cursor)


def reset_rate(key: str) -> bool:
    """Give a key of a rate limit all its tokens again; return False if it has them."""
    with transaction.atomic(using=job_database()):
        deleted, _by_model = rows_of(RateState).filter(key=key).delete()
        if deleted:
            tell_workers()
    return bool(deleted)


def one_line(max_bytes: int | None) -> Callable[[str], None]:
    """Return a validator of names: one line that PostgreSQL can store, of so many bytes at most."""

    def check(value: str) -> None:
        if "\n" in value or "\r" in value or not is_storable(value):
            raise ValidationError(_("Expected one line of text."))
        if max_bytes is not None and len(value.encode()) > max_bytes:
            text = ngettext("Expected at most %s byte.", "Expected at most %s bytes.", max_bytes)
            raise ValidationError(text % max_bytes)

    return check


class LineField(forms.CharField):
    """A name: one line, whose first and last spaces count.

    *max_bytes* None: the column bounds characters, which *max_length* says.
    """

    def __init__(self, *, max_bytes: int | None = None, **options: Any) -> None:
        options.setdefault("strip", False)
        super().__init__(
            widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
            validators=[one_line(max_bytes)],
            **options,
        )


class QueueSettingsForm(forms.ModelForm):  # type: ignore[type-arg]
    """What holds for a queue."""

    queue_name = LineField(label=_("Queue"), max_bytes=MAX_QUEUE_NAME_BYTES)

    class Meta:
        model = QueueSettings
        fields = ("queue_name", "max_running", "boost", "note")
        widgets = {"note": forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})}


class ConcurrencyLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """How many jobs of a key, or of each key of a pattern, run at a time."""

    pattern = LineField(
        label=_("Key or pattern"),
        max_bytes=MAX_KEY_BYTES,
        help_text=ConcurrencyLimit._meta.get_field("pattern").help_text,
    )

    class Meta:
        model = ConcurrencyLimit
        fields = ("pattern", "max_running", "weight", "note")
        widgets = {"note": forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})}

    def clean_pattern(self) -> str:
        """Refuse stars side by side, which mean the same as one."""
        pattern: str = self.cleaned_data["pattern"]
        if "**" in pattern:
            raise ValidationError(_("Expected single stars: each stands for any text."))
        return pattern


class RateLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """How many starts in how much time."""

    name = LineField(
        label=_("Name"),
        max_bytes=MAX_KEY_BYTES,
        help_text=RateLimit._meta.get_field("name").help_text,
    )

    class Meta:
        model = RateLimit
        fields = ("name", "count", "period", "burst", "note")
        widgets = {"note": forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})}

    def clean_name(self) -> str:
        """Refuse patterns, which rate limits do not have."""
        name: str = self.cleaned_data["name"]
        if "*" in name:
            raise ValidationError(
                _('Rate limits have no patterns: "shopify" holds for each key of "shopify:...".')
            )
        return name
