"""Muting a warning for a while: who, why and until when is told below the others.

The Overview and `manage.py jobs mute` share this.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.models import Mute
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.values.moments import aware, now_aware
from django_pgjobs.values.payload import is_storable
from django_pgjobs.warnings.notices import KINDS, MAX_MUTED_BYTES, MAX_SUBJECT, OTHERS

MAX_REASON = 200
SPANS = (
    ("3600", gettext_lazy("1 hour")),
    ("86400", gettext_lazy("1 day")),
    ("604800", gettext_lazy("1 week")),
    ("", gettext_lazy("Until a time")),
)
# The longest that a warning may be muted.
MAX_MUTED = timedelta(days=366)


class MuteForm(forms.Form):
    """What is muted, why and until when."""

    kind = forms.ChoiceField(choices=list(KINDS.items()), widget=forms.HiddenInput, required=True)
    subject = forms.CharField(
        max_length=MAX_SUBJECT, widget=forms.HiddenInput, required=False, strip=False
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=MAX_REASON,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Everybody who looks at the Overview reads it."),
    )
    lasts = forms.ChoiceField(label=gettext_lazy("For how long"), choices=SPANS, required=False)
    until = forms.DateTimeField(
        label=gettext_lazy("Or until"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=format_lazy(
            "{} {}", CURRENT_ZONE, gettext_lazy("The time goes before the length.")
        ),
    )

    def clean_subject(self) -> str:
        """Refuse what cannot be stored: no queue, task or key is that long."""
        subject: str = self.cleaned_data["subject"]
        if len(subject.encode(errors="replace")) > MAX_MUTED_BYTES:
            most = MAX_MUTED_BYTES
            text = ngettext("Expected at most %s byte.", "Expected at most %s bytes.", most)
            raise ValidationError(text % most)
        return subject

    def clean_until(self) -> Any:
        """Refuse an end that is over, and one that is hardly one."""
        given, now = self.cleaned_data["until"], now_aware()
        until = given and aware(given)
        if until is not None and until <= now:
            raise ValidationError(_("Expected a time in the future."))
        if until is not None and until > now + MAX_MUTED:
            raise ValidationError(_("Expected a time within a year."))
        return until

    def clean(self) -> dict[str, Any]:
        """Ask for an end."""
        given = self.cleaned_data
        if not given.get("lasts") and not given.get("until") and "until" not in self.errors:
            self.add_error("until", _("Expected a time."))
        if given.get("subject") == OTHERS:
            self.add_error(None, _("This warning is about several things."))
        return given

    @property
    def end(self) -> datetime:
        """When the warning is shown again."""
        given = self.cleaned_data
        until: datetime | None = given["until"]
        return until or timezone.now() + timedelta(seconds=int(given["lasts"]))


def mute(form: MuteForm, *, by: str) -> Mute:
    """Mute what a form that is valid says; those that have ended are deleted."""
    given = form.cleaned_data
    with transaction.atomic(using=job_database()):
        row, _is_new = rows_of(Mute).update_or_create(
            kind=given["kind"],
            subject=given["subject"],
            defaults={
                "until": form.end,
                "reason": given["reason"],
                "muted_by": by,
                "muted_at": timezone.now(),
            },
        )
        rows_of(Mute).filter(until__lt=timezone.now()).delete()
    return row


def unmute(kind: str, subject: str) -> bool:
    """Let a warning be shown again; return False if it was not muted."""
    if not is_storable(kind + subject):
        return False
    deleted, _by_model = rows_of(Mute).filter(kind=kind, subject=subject).delete()
    return bool(deleted)
