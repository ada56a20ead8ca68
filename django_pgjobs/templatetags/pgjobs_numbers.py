"""Filters for numbers and times where many of them stand together."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.drawing import counted, time_element
from django_pgjobs.values.moments import duration

register = template.Library()


register.filter(counted)


@register.simple_tag
def jobs_link(number: int, jobs_url: str, query: str, is_cut: bool = False) -> str | SafeString:
    """Draw a number of jobs, as a link to the list of them; *is_cut*: there are more."""
    text = counted(number)
    if is_cut:
        text = _("more than %s") % text
    elif not number:
        return text
    return format_html('<a href="{}?{}">{}</a>', jobs_url, query, text)


@register.filter
def percent(share: float | None) -> str:
    """Return a percentage; what is there but rounds to nothing is less than 1."""
    if share is None:
        return "–"
    if 0 < share < 1:
        return "<1 %"
    return f"{formats.number_format(round(share))} %"


@register.filter
def age(instant: datetime | None, now: datetime) -> str | SafeString:
    """Draw how long ago an instant was, by the database's clock; the exact time is its title."""
    if instant is None:
        return "–"
    return time_element(instant, duration((now - instant).total_seconds()))


@register.filter
def lines(text: str) -> str:
    """Return lines of text as one line."""
    return ", ".join(text.splitlines())
