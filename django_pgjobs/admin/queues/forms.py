"""The forms of pauses: what the table refuses, refused here in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.limits import LineField
from django_pgjobs.models import Pause
from django_pgjobs.status import PauseKind
from django_pgjobs.values.bounds import MAX_KEY_BYTES
from django_pgjobs.values.moments import aware, now_aware

# How long a pause may be asked to last, in seconds; empty: until somebody resumes.
SPANS = (
    ("", _("Until somebody resumes it")),
    ("900", _("15 minutes")),
    ("3600", _("1 hour")),
    ("14400", _("4 hours")),
    ("86400", _("1 day")),
    ("604800", _("7 days")),
)


def to_come(end: datetime | None) -> datetime | None:
    """Return the end of a pause; raise ValidationError if it is over."""
    if end is not None and aware(end) <= now_aware():
        raise ValidationError(_("Expected a time in the future."))
    return end


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
