"""What a person chooses before a bulk change runs: when, where to, why."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_pgjobs.admin.bulk.export import ExportOptions
from django_pgjobs.bulk.actions import ChosenOptions
from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.values.bounds import MAX_PRIORITY, MAX_QUEUE_NAME_BYTES, MIN_PRIORITY
from django_pgjobs.values.payload import BOUNDS_OF_TIMES, EARLIEST, LATEST, in_utc

# Ten years; a longer one is a slip.
MAX_DELAY_SECONDS = 315_360_000
# What people write between the digits of a number.
GROUPING = re.compile(r"[\s.,'’]")
UNITS = {
    "1": _("seconds"),
    "60": _("minutes"),
    "3600": _("hours"),
    "86400": _("days"),
}


class BulkForm(forms.Form):
    """The base: a reason, which everybody can read in the history."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=MAX_REASON,
        strip=True,
        help_text=_("For those who read the history."),
    )

    def options(self) -> ChosenOptions:
        """Return what was chosen, for `django_pgjobs.bulk.actions`."""
        return {}


class EndingForm(BulkForm):
    """The reason, and for many jobs the text that shows that somebody has read how many."""

    typed = forms.CharField(label=_("To confirm"), required=False, strip=True)
    field_order = ["typed", "reason"]
    wanted = ""

    def ask_to_type(self, text: str) -> None:
        """Ask to type *text*; an empty one asks for nothing."""
        self.wanted = text
        if text:
            self.fields["typed"].help_text = _("Type “%(text)s”.") % {"text": text}
        else:
            self.fields.pop("typed", None)

    def clean_typed(self) -> str:
        """Refuse anything else; how the digits are grouped does not matter."""
        given: str = self.cleaned_data["typed"]
        plain = GROUPING.sub("", given) if self.wanted.isdecimal() else given
        if plain != self.wanted:
            raise ValidationError(_("This is not the text asked for."))
        return given


class BulkTimeForm(BulkForm):
    """When the jobs are to run: at a moment, or within or after a length of time in a unit."""

    amount = forms.IntegerField(label=_("How long"), required=False, min_value=1, initial=1)
    unit = forms.ChoiceField(
        label=_("Unit"), required=False, choices=list(UNITS.items()), initial="3600"
    )
    at = forms.DateTimeField(
        label=_("At"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=CURRENT_ZONE,
    )

    def clean(self) -> dict[str, Any]:
        """Ask for what the choice of *when* needs."""
        cleaned: dict[str, Any] = super().clean() or {}
        when = cleaned.get("when")
        if when == "at" and "at" not in self.errors:
            self._check_moment(cleaned.get("at"))
        if when in ("spread", "in") and "amount" not in self.errors:
            if not cleaned.get("amount"):
                self.add_error("amount", ValidationError(_("Say how long.")))
            elif self.seconds() > MAX_DELAY_SECONDS:
                self.add_error("amount", ValidationError(_("Expected at most ten years.")))
        return cleaned

    def seconds(self) -> int:
        """Return the length that was given; before it is checked, there may be no float for it."""
        amount: int = self.cleaned_data["amount"]
        return amount * int(self.cleaned_data.get("unit") or 1)

    def moment(self) -> str:
        """Return the time that was given, as ISO text with its zone."""
        at: datetime = self.cleaned_data["at"]
        return in_utc(timezone.make_aware(at) if timezone.is_naive(at) else at).isoformat()

    def options(self) -> ChosenOptions:
        when = self.cleaned_data["when"]
        if when == "at":
            return {"at": self.moment()}
        if when == "spread":
            return {"spread": self.seconds()}
        return {"delay": self.seconds()} if when == "in" else {}

    def _check_moment(self, at: datetime | None) -> None:
        if at is None:
            self.add_error("at", ValidationError(_("Say when.")))
            return
        aware = timezone.make_aware(at) if timezone.is_naive(at) else at
        if not EARLIEST <= aware <= LATEST:
            first, last = BOUNDS_OF_TIMES
            said = _("Expected a time from %(first)s to %(last)s.")
            self.add_error("at", ValidationError(said % {"first": first, "last": last}))


class RequeueForm(BulkTimeForm):
    """Now, spread over a time, or at a time; only waiting jobs have attempts to reset."""

    when = forms.ChoiceField(
        label=_("When"),
        choices=[
            ("now", _("Now")),
            ("spread", _("Spread over a time, from now on")),
            ("at", _("At a time")),
        ],
        initial="now",
        widget=forms.RadioSelect,
    )
    reset_attempts = forms.BooleanField(
        label=_("Reset attempts"),
        required=False,
        help_text=_(
            "Finished jobs get new attempts anyway. With this, waiting jobs that were tried "
            "before begin to count again, too."
        ),
    )
    field_order = ["when", "amount", "unit", "at", "reset_attempts", "reason"]

    def __init__(self, *args: Any, has_waiting: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not has_waiting:
            del self.fields["reset_attempts"]

    def options(self) -> ChosenOptions:
        chosen = super().options()
        is_reset = self.cleaned_data.get("reset_attempts")
        return chosen | {"reset_attempts": True} if is_reset else chosen


class PostponeForm(BulkTimeForm):
    """In a while, or at a time."""

    when = forms.ChoiceField(
        label=_("When"),
        choices=[("in", _("In a while, from now on")), ("at", _("At a time"))],
        initial="in",
        widget=forms.RadioSelect,
    )
    field_order = ["when", "amount", "unit", "at", "reason"]


class MoveForm(BulkForm):
    """Another queue, another priority, or both."""

    queue_name = forms.CharField(label=_("Queue"), required=False, help_text=_("Empty: as it is."))
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text=_("-100 to 100; higher runs first. Empty: as it is."),
    )
    field_order = ["queue_name", "priority", "reason"]

    def clean_queue_name(self) -> str:
        """Refuse what the column does not hold."""
        name: str = self.cleaned_data["queue_name"]
        if len(name.encode(errors="replace")) > MAX_QUEUE_NAME_BYTES:
            raise ValidationError(_("Expected at most 128 bytes."))
        return name

    def clean(self) -> dict[str, Any]:
        """Ask for one of the two."""
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors and not cleaned["queue_name"] and cleaned["priority"] is None:
            raise ValidationError(_("Give a queue, a priority, or both."))
        return cleaned

    def options(self) -> ChosenOptions:
        return {
            "queue_name": self.cleaned_data["queue_name"] or None,
            "priority": self.cleaned_data["priority"],
        }


class ExportForm(BulkForm):
    """The format, and whether secrets are in it."""

    file_format = forms.ChoiceField(
        label=_("Format"),
        choices=[("jsonl", _("JSON, one job per line")), ("csv", _("CSV, for spreadsheets"))],
        initial="jsonl",
        widget=forms.RadioSelect,
    )
    reveal = forms.BooleanField(
        label=_("Show masked values"),
        required=False,
        help_text=_("Passwords, tokens and the like as they are. It is recorded."),
    )
    field_order = ["file_format", "reveal", "reason"]

    def __init__(self, *args: Any, may_reveal: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not may_reveal:
            del self.fields["reveal"]

    def export_options(self) -> ExportOptions:
        """Return what was chosen, for `stream_jobs`."""
        return {
            "file_format": self.cleaned_data["file_format"],
            "reveal": self.cleaned_data.get("reveal", False),
        }


FORMS: dict[str, type[BulkForm]] = {
    "requeue": RequeueForm,
    "postpone": PostponeForm,
    "move": MoveForm,
    "export": ExportForm,
    **dict.fromkeys(("cancel", "discard", "delete"), EndingForm),
}
