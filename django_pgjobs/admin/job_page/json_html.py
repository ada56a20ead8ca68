"""Drawing a JSON value: coloured by the style sheet, masked, folded when it is long.

Everything is written by Python's encoder, so that an integer of 30 digits keeps them all;
a browser's JSON.parse would round it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.declaring.redaction import MASK, redact, redact_text
from django_pgjobs.models.fields import Undecodable

# Characters of markup that one value may take; the page links to the whole of it.
MAX_DRAWN = 65_536
# Values of more lines are folded.
OPEN_LINES = 40
# What fits on one line: so many characters, none of them in a list or dict of its own.
LINE_WIDTH = 72
# `decode_value` lets no deeper value in; the column `errors` could hold one.
MAX_DEPTH = 100
INDENT = "  "

# CSS classes within .pgjobs-json; short, because a page has thousands of them.
NAME, TEXT, MASKED = "k", "s", "m"
# A piece of text and the CSS class it is drawn in, "" for none.
Piece = tuple[str, str]


def json_html(
    value: Any, *, reveal: bool = False, whole_url: str = "", limit: int = MAX_DRAWN
) -> SafeString:
    """Draw *value*, a decoded JSON value or an Undecodable, as a <pre>.

    Values of secret names are masked unless *reveal*. What would take more than *limit*
    characters of markup is cut, with a link to *whole_url* if that is given; what has many
    lines is folded into a <details>.
    """
    if isinstance(value, Undecodable):
        text = str(value) if reveal else redact_text(str(value))
        pieces: Iterator[Piece] = iter([(text, "")])
    else:
        pieces = _draw(value if reveal else redact(value), "", 0)
    drawn, lines, is_cut = _join(pieces, limit)
    pre = format_html('<pre class="pgjobs-json" dir="ltr">{}</pre>', drawn)
    if is_cut:
        pre += _cut_note(whole_url)
    if isinstance(value, Undecodable):
        pre += format_html(
            '<p class="pgjobs-quiet">{}</p>', _("This text cannot be decoded; shown as stored.")
        )
    if lines <= OPEN_LINES:
        return pre
    summary = ngettext("%(count)d line", "%(count)d lines", lines) % {"count": lines}
    return format_html(
        '<details class="pgjobs-fold"><summary>{}</summary>{}</details>', summary, pre
    )


def printable(text: str) -> str:
    """Return *text* with lone surrogates, which no response can hold, as their escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _join(pieces: Iterator[Piece], room: int) -> tuple[SafeString, int, bool]:
    """Return the markup of *pieces*, the number of its lines, and whether it was cut."""
    markup: list[str] = []
    lines = 1
    is_cut = False
    for whole, css in pieces:
        text = whole[:room]
        shown = escape(printable(text))
        if len(shown) > room:
            # By as much as escaping has made it longer.
            text = text[: room * room // len(shown)]
            shown = escape(printable(text))
        lines += text.count("\n")
        drawn = f'<span class="{css}">{shown}</span>' if css else shown
        room = max(0, room - len(drawn))
        markup.append(drawn)
        is_cut = len(text) < len(whole)
        if is_cut:
            markup.append("…")
            break
    # Each piece was escaped above, and the classes are ours.
    return mark_safe("".join(markup)), lines, is_cut  # noqa: S308


def _cut_note(whole_url: str) -> SafeString:
    note = _("The value is longer than what is shown.")
    if not whole_url:
        return format_html('<p class="pgjobs-quiet">{}</p>', note)
    link = format_html('<a href="{}">{}</a>', whole_url, _("Download all of it"))
    return format_html('<p class="pgjobs-quiet">{} {}</p>', note, link)


def _draw(value: Any, indent: str, depth: int) -> Iterator[Piece]:
    """Yield the pieces of *value*, over as many lines as it needs."""
    if not isinstance(value, dict | list) or _fits_line(value):
        yield from _draw_inline(value)
        return
    if depth >= MAX_DEPTH:
        yield "…", MASKED
        return
    inner = indent + INDENT
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield f"{opening}\n", ""
    for place, item in enumerate(value):
        if place:
            yield ",\n", ""
        yield inner, ""
        if isinstance(value, dict):
            yield _quote(item), NAME
            yield ": ", ""
            item = value[item]
        yield from _draw(item, inner, depth + 1)
    yield f"\n{indent}{closing}", ""


def _draw_inline(value: Any) -> Iterator[Piece]:
    """Yield the pieces of *value*, in which nothing is nested, on one line."""
    if not isinstance(value, dict | list):
        yield _draw_scalar(value)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield opening, ""
    for place, item in enumerate(value):
        if place:
            yield ", ", ""
        if isinstance(value, dict):
            yield _quote(item), NAME
            yield ": ", ""
            item = value[item]
        yield from _draw_inline(item)
    yield closing, ""


def _draw_scalar(value: Any) -> Piece:
    if value == MASK:
        return MASK, MASKED
    if isinstance(value, str):
        return _quote(value), TEXT
    return json.dumps(value), ""


def _quote(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fits_line(value: dict[str, Any] | list[Any]) -> bool:
    """Is *value* short enough for one line, with nothing nested in it?"""
    if len(value) > LINE_WIDTH:
        return False
    length = 0
    for item in value:
        if isinstance(value, dict):
            length += len(item) + 4
            item = value[item]
        if isinstance(item, dict | list) and item:
            return False
        length += (len(item) if isinstance(item, str) else len(str(item))) + 2
        if length > LINE_WIDTH:
            return False
    return True
