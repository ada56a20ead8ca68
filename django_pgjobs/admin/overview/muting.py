"""Muting a warning for a while: who, why and until when is on the Overview, below the others."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.live import forget
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.models import Mute
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.moments import aware, now_aware
from django_pgjobs.warnings.notices import KINDS, OTHERS

MAX_REASON = 200
MAX_SUBJECT = 1_000
# The index of the table takes no more; a key of a rate limit, the longest subject, has 1,024.
MAX_MUTED_BYTES = 2_000
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
        return given

    @property
    def end(self) -> datetime:
        """When the warning is shown again."""
        given = self.cleaned_data
        until: datetime | None = given["until"]
        return until or timezone.now() + timedelta(seconds=int(given["lasts"]))


def mute_view(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Ask for a reason and an end; a POST mutes the warning."""
    require(request, Verb.CONTROL_QUEUES)
    if request.method != "POST":
        initial = {name: request.GET.get(name, "") for name in ("kind", "subject")}
        return _draw(model_admin, request, MuteForm(initial={"lasts": "3600", **initial}))
    form = MuteForm(request.POST)
    if not form.is_valid():
        return _draw(model_admin, request, form)
    given = form.cleaned_data
    if given["subject"] == OTHERS:
        form.add_error(None, _("This warning is about several things."))
        return _draw(model_admin, request, form)
    with transaction.atomic(using=job_database()):
        mute, _is_new = Mute.objects.update_or_create(
            kind=given["kind"],
            subject=given["subject"],
            defaults={
                "until": form.end,
                "reason": given["reason"],
                "muted_by": request.user.get_username(),
                "muted_at": timezone.now(),
            },
        )
        Mute.objects.filter(until__lt=timezone.now()).delete()
        transaction.on_commit(_show_now, using=job_database())
    target, reason = str(mute), given["reason"]
    record(request.user, "mute", target=target, reason=reason, site=model_admin.admin_site)
    say(request, _("Muted. It is shown below the other warnings until it ends."))
    return back(request, model_admin.url("pgjobs_job_overview"))


def unmute_view(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Show a warning again."""
    refused = refuse_unless_posted(request, Verb.CONTROL_QUEUES)
    if refused:
        return refused
    kind, subject = request.POST.get("kind", ""), request.POST.get("subject", "")
    form = MuteForm({"kind": kind, "subject": subject, "reason": "-", "lasts": "3600"})
    count = 0
    if form.is_valid():
        count, _by_model = Mute.objects.filter(kind=kind, subject=subject).delete()
        transaction.on_commit(_show_now, using=job_database())
    if count:
        target = f"{kind} {subject}".strip()
        record(request.user, "unmute", target=target, site=model_admin.admin_site)
        say(request, _("The warning is shown again."))
    else:
        say(request, _("The warning is not muted any more."), is_good=False)
    return back(request, model_admin.url("pgjobs_job_overview"))


def _show_now() -> None:
    """Let the Overview, which is kept for a moment, show what was changed."""
    forget(*(f"overview:{chosen}:{split}" for chosen in RANGES for split in SPLITS))


def _draw(model_admin: PageAdmin, request: HttpRequest, form: MuteForm) -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET
    context = {
        "title": _("Mute a warning"),
        "pgjobs_page": "overview",
        "form": form,
        "kind": KINDS.get(given.get("kind", ""), ""),
        "subject": given.get("subject", "")[:MAX_SUBJECT],
        "next": given.get("next", ""),
        "action": model_admin.url("pgjobs_job_mute"),
    }
    return model_admin.render_page(request, "mute.html", context)
