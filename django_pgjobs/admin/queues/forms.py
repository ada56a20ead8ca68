"""The forms of queues, pauses and limits: what the tables refuse, refused here in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.models import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from django_pgjobs.status import PauseKind
from django_pgjobs.values.bounds import MAX_KEY_BYTES, MAX_QUEUE_NAME_BYTES
from django_pgjobs.values.moments import aware, now_aware
from django_pgjobs.values.payload import is_storable

# How long a pause may be asked to last, in seconds; empty: until somebody resumes.
SPANS = (
    ("", _("Until somebody resumes it")),
    ("900", _("15 minutes")),
    ("3600", _("1 hour")),
    ("14400", _("4 hours")),
    ("86400", _("1 day")),
    ("604800", _("7 days")),
)


def one_line(max_bytes: int | None) -> Callable[[str], None]:
    """Return a validator of names: one line that PostgreSQL can store, of so many bytes at most."""

    def check(value: str) -> None:
        if "\n" in value or "\r" in value or not is_storable(value):
            raise ValidationError(_("Expected one line of text."))
        if max_bytes is not None and len(value.encode()) > max_bytes:
            text = ngettext("Expected at most %s byte.", "Expected at most %s bytes.", max_bytes)
            raise ValidationError(text % max_bytes)

    return check


def to_come(end: datetime | None) -> datetime | None:
    """Return the end of a pause; raise ValidationError if it is over."""
    if end is not None and aware(end) <= now_aware():
        raise ValidationError(_("Expected a time in the future."))
    return end


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


class PauseForm(forms.Form):
    """What to pause, why and until when."""

    kind = forms.ChoiceField(label=_("Kind"), choices=PauseKind.choices)
    name = LineField(
        label=_("Name"),
        max_bytes=MAX_KEY_BYTES,
        help_text=_('A queue, a task\'s path, or a key or pattern such as "shop:*".'),
    )
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=MAX_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Everybody who looks at the queue or at a waiting job reads it."),
    )
    lasts = forms.ChoiceField(label=_("For how long"), choices=SPANS, required=False)
    until = forms.DateTimeField(
        label=_("Or until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=format_lazy("{} {}", CURRENT_ZONE, _("The time goes before the length.")),
    )

    def hide_target(self) -> PauseForm:
        """Let the form ask for reason and end only; what it pauses is known."""
        for name in ("kind", "name"):
            self.fields[name].widget = forms.HiddenInput()
        return self

    def clean_until(self) -> Any:
        """Refuse an end that is over."""
        return to_come(self.cleaned_data["until"])

    def clean(self) -> dict[str, Any]:
        """Refuse patterns where there are none."""
        given = self.cleaned_data
        if given.get("kind") != PauseKind.KEY and "*" in given.get("name", ""):
            self.add_error("name", _("Only concurrency keys have patterns."))
        return given

    @property
    def end(self) -> Any:
        """The end of the pause: an instant, the time from now, or None for no end."""
        given = self.cleaned_data
        if given["until"] is not None:
            return given["until"]
        return timedelta(seconds=int(given["lasts"])) if given["lasts"] else None


class PauseRowForm(forms.ModelForm):  # type: ignore[type-arg]
    """The row of a pause."""

    name = LineField(
        label=_("Name"), max_bytes=MAX_KEY_BYTES, help_text=Pause._meta.get_field("name").help_text
    )
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=MAX_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )

    class Meta:
        model = Pause
        fields = ("kind", "name", "reason", "resume_at")
        help_texts: ClassVar[dict[str, Any]] = {
            "resume_at": format_lazy(
                "{} {}", Pause._meta.get_field("resume_at").help_text, CURRENT_ZONE
            )
        }

    def clean_resume_at(self) -> Any:
        """Refuse an end that is over, unless it was there."""
        end = self.cleaned_data["resume_at"]
        return to_come(end) if "resume_at" in self.changed_data else end

    def clean(self) -> dict[str, Any]:
        """Refuse patterns where there are none."""
        given: dict[str, Any] = super().clean() or {}
        if given.get("kind") != PauseKind.KEY and "*" in given.get("name", ""):
            self.add_error("name", _("Only concurrency keys have patterns."))
        return given


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
