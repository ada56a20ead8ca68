"""Tags and filters for numbers and times where many of them stand together.

What needs the admin is imported when it is drawn, as in `pgjobs_admin`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template
from django.utils.safestring import SafeString

from django_pgjobs.drawing import age, counted, jobs_link, percent

register = template.Library()

register.simple_tag(jobs_link)
for drawn in (age, counted, percent):
    register.filter(drawn)


@register.simple_tag
def queue_cells(queue: Any, jobs_url: str, now: datetime, spark: Any = None) -> SafeString:
    """Draw the numbers of a queue as cells, under the heads of queue_heads.html."""
    from django_pgjobs.admin.queue_cells import draw_cells

    return draw_cells(queue, jobs_url, now, spark)


@register.simple_tag
def queue_state(queue: Any) -> SafeString:
    """Draw whether a queue is paused, and whether no worker takes its jobs."""
    from django_pgjobs.admin.queue_cells import draw_state

    return draw_state(queue)


@register.simple_tag
def pause_state(pause: Any) -> SafeString:
    """Draw whether something is paused: by whom, since and until when, why."""
    from django_pgjobs.admin.queue_cells import draw_pause

    return draw_pause(pause)


@register.simple_tag
def queue_spark(spark: Any) -> SafeString:
    """Draw how many jobs of a queue were ready lately."""
    from django_pgjobs.admin.queue_cells import draw_spark

    return draw_spark(spark)


@register.filter
def lines(text: str) -> str:
    """Return lines of text as one line."""
    return ", ".join(text.splitlines())
