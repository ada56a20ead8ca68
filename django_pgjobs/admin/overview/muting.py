"""Muting a warning for a while: who, why and until when is on the Overview, below the others."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.live import forget
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.mutes import MuteForm, mute, unmute
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.database import job_database
from django_pgjobs.warnings.notices import KINDS, MAX_SUBJECT


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
    target, reason = str(mute(form, by=request.user.get_username())), given["reason"]
    transaction.on_commit(_show_now, using=job_database())
    record(request.user, "mute", target=target, reason=reason, site=model_admin.admin_site)
    say(request, _("Muted. It is shown below the other warnings until it ends."))
    return back(request, model_admin.url("pgjobs_job_overview"))


def unmute_view(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Show a warning again."""
    refused = refuse_unless_posted(request, Verb.CONTROL_QUEUES)
    if refused:
        return refused
    kind, subject = request.POST.get("kind", ""), request.POST.get("subject", "")
    if unmute(kind, subject):
        transaction.on_commit(_show_now, using=job_database())
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
