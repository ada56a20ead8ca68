"""The form of a new token of the HTTP API."""

from __future__ import annotations

import re
import secrets
from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_pgjobs.conf import is_dotted
from django_pgjobs.http.access import VERBS
from django_pgjobs.http.tokens import MAX_NAME, MAX_PER_SECOND, TokenScope, is_name
from django_pgjobs.limits import LineField, one_line
from django_pgjobs.values.bounds import MAX_QUEUE_NAME_BYTES

VERB_LABELS = {
    "work": _("work: claim jobs of remote tasks and report how they ended"),
    "enqueue": _("enqueue: add jobs and workflows"),
    "read": _("read: look at jobs and workflows, and read results"),
    "manage": _("manage: cancel jobs, cancel and delete workflows"),
}
# How long a token is good, in seconds; empty: for ever.
SPANS = (
    ("2592000", _("30 days")),
    ("7776000", _("90 days")),
    ("31536000", _("1 year")),
    ("", _("For ever")),
)
# How long one that was rotated is good.
KEPT = (
    ("3600", _("1 hour")),
    ("86400", _("1 day")),
    ("604800", _("7 days")),
)
MAX_NAMES = 200


class NamesField(forms.CharField):
    """Names with commas or line breaks between; None if there are none."""

    def __init__(self, **options: Any) -> None:
        widget = forms.Textarea(attrs={"rows": 2, "cols": 40, "class": "vLargeTextField"})
        super().__init__(required=False, widget=widget, **options)

    def clean(self, value: Any) -> Any:
        """Return the names, each once."""
        given = re.split(r"[,\r\n]+", super().clean(value))
        names = list(dict.fromkeys(name.strip() for name in given if name.strip()))
        if len(names) > MAX_NAMES:
            raise ValidationError(_("Expected at most %s names.") % MAX_NAMES)
        for name in names:
            one_line(MAX_QUEUE_NAME_BYTES)(name)
        return names or None


def new_sheet() -> str:
    """Return what tells one drawn form from the next."""
    return secrets.token_urlsafe(8)


class TokenForm(forms.Form):
    """Who is to use a token, and for what; *sheet* is the form as it was drawn, sent once."""

    sheet = forms.CharField(
        widget=forms.HiddenInput, required=False, max_length=20, initial=new_sheet
    )
    name = LineField(
        label=_("Name"),
        max_length=MAX_NAME,
        help_text=_("Who is to use it, for others to read."),
    )
    verbs = forms.MultipleChoiceField(
        label=_("It may"),
        choices=[(verb, VERB_LABELS[verb]) for verb in VERBS],
        widget=forms.CheckboxSelectMultiple,
    )
    queues = NamesField(
        label=_("Queues"), help_text=_("Only jobs of these; with commas between. Empty: all.")
    )
    tasks = NamesField(
        label=_("Tasks"),
        help_text=_("Only jobs of these, such as shop.tasks.push_product. Empty: all."),
    )
    lasts = forms.ChoiceField(
        label=_("For how long"), choices=SPANS, required=False, initial="7776000"
    )
    per_second = forms.FloatField(
        label=_("Requests per second"),
        required=False,
        min_value=0.001,
        max_value=MAX_PER_SECOND,
        help_text=_("At most, for each web process. Empty: any number."),
    )

    def clean_name(self) -> str:
        """Refuse what cannot be printed in a line."""
        name = str(self.cleaned_data["name"])
        if not is_name(name):
            raise ValidationError(_("Expected one line of text."))
        return name

    def clean_tasks(self) -> list[str] | None:
        """Refuse what can be no task's path."""
        paths: list[str] | None = self.cleaned_data["tasks"]
        if paths is not None and not all(map(is_dotted, paths)):
            raise ValidationError(_("Expected paths such as shop.tasks.push_product."))
        return paths

    @property
    def scope(self) -> TokenScope:
        """What the token is to be for."""
        given = self.cleaned_data
        lasts = given["lasts"]
        return TokenScope(
            verbs=given["verbs"],
            queues=given["queues"],
            tasks=given["tasks"],
            per_second=given["per_second"],
            expires_at=timezone.now() + timedelta(seconds=int(lasts)) if lasts else None,
        )


class RotationForm(forms.Form):
    """How long the token that gets a successor is still good."""

    keep = forms.ChoiceField(label=_("The old one is good for"), choices=KEPT, initial="86400")

    @property
    def kept(self) -> timedelta:
        """The time from now on."""
        return timedelta(seconds=int(self.cleaned_data["keep"]))
