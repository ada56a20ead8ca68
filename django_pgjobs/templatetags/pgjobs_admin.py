"""Tags and filters of the admin's templates. Statuses are always an icon and a word.

Django imports every library of tags as soon as it makes an engine of templates, also in a project
without the admin. So what needs the admin is imported when it is drawn.
"""

from __future__ import annotations

from typing import Any

import django
from django import template
from django.apps import apps
from django.template import RequestContext
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.drawing import (
    breakable,
    capped,
    exact_time,
    moment,
    state_badge,
    status_badge,
)
from django_pgjobs.values.moments import duration, exact_duration

register = template.Library()

register.simple_tag(status_badge)
register.simple_tag(state_badge)
for drawn in (breakable, capped, duration, exact_duration, exact_time, moment):
    register.filter(drawn)


@register.inclusion_tag("admin/pgjobs/navigation.html", takes_context=True)
def pgjobs_navigation(context: RequestContext) -> dict[str, Any]:
    """Draw the links to all pages; the one of `pgjobs_page` is lit."""
    from django_pgjobs.admin.pages import navigation

    entries = navigation(context["request"], _site_name(context))
    return {"entries": entries, "current": context.get("pgjobs_page")}


@register.inclusion_tag("admin/pgjobs/breadcrumbs.html", takes_context=True)
def pgjobs_breadcrumbs(context: RequestContext) -> dict[str, Any]:
    """Draw the path to this page: Home, the app, the `steps` of the page, its title."""
    site_name = _site_name(context)
    steps: list[Any] = [
        {"label": _("Home"), "url": reverse("admin:index", current_app=site_name)},
        {
            "label": apps.get_app_config("pgjobs").verbose_name,
            "url": reverse("admin:app_list", args=["pgjobs"], current_app=site_name),
        },
    ]
    steps += context.get("steps") or []
    return {"steps": steps, "title": context.get("title"), "is_list": django.VERSION >= (6, 1)}


@register.simple_tag(takes_context=True)
def warning_link(context: RequestContext, notice: Any) -> SafeString:
    """Draw the link of a warning to what it counts."""
    from django_pgjobs.admin.overview.destinations import draw_link

    return draw_link(notice, _site_name(context))


@register.inclusion_tag("admin/pgjobs/overview.html", takes_context=True)
def pgjobs_overview(context: RequestContext) -> dict[str, Any]:
    """Draw the Overview, which has no view of its own: it is the app's index in the admin."""
    from django_pgjobs.admin.overview.page import overview

    return overview(context["request"])


def _site_name(context: RequestContext) -> str:
    """Return the name of the site of the admin that draws the page."""
    return getattr(context.request, "current_app", None) or "admin"
