"""Drawing a stored traceback: the project's own frames stand out, libraries are folded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.admin.job_page.json_html import printable

# Characters of one traceback that are drawn; the worker keeps 8,000.
MAX_DRAWN = 16_384
# The first line of a frame; in a group of exceptions it comes after bars.
FRAME = re.compile(r'(?P<indent>[\s|]*)File "(?P<file>[^"]*)", line \d+')
INDENT = re.compile(r"[\s|]*")
LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|[/\\]Lib[/\\]|^<frozen "
)


class Piece(NamedTuple):
    """A frame, or text between frames, whose *file* is empty."""

    file: str
    text: str


def traceback_html(text: str) -> SafeString:
    """Draw a traceback as text with folded libraries; what is not one is drawn as it is."""
    is_cut = len(text) > MAX_DRAWN
    if is_cut:
        # Its end says what went wrong.
        text = text[-MAX_DRAWN:]
    drawn = [
        _draw_run(kind, list(parts)) for kind, parts in groupby(_split(printable(text)), _kind_of)
    ]
    body = format_html_join("", "{}", ((part,) for part in drawn))
    note = format_html('<p class="pgjobs-quiet">{}</p>', _("Its beginning is left out."))
    return format_html(
        '{}<div class="pgjobs-traceback" dir="ltr">{}</div>', note if is_cut else "", body
    )


def last_project_frame(text: str) -> str:
    """Return the last line of the project's own code that a traceback names, "" for none."""
    found = ""
    for part in _split(text[-MAX_DRAWN:]):
        if part.file and not LIBRARY.search(part.file):
            found = part.text.split("\n", 1)[0].strip(" |")
    return found


def _split(text: str) -> Iterator[Piece]:
    """Yield the frames of a traceback and what stands between them, in order."""
    file, indent, lines = "", 0, list[str]()
    for line in text.splitlines():
        found = FRAME.match(line)
        if found or (file and not _is_body(line, indent)):
            if lines:
                yield Piece(file, "\n".join(lines))
            file, indent = (found["file"], len(found["indent"])) if found else ("", 0)
            lines = [line]
        else:
            lines.append(line)
    if lines:
        yield Piece(file, "\n".join(lines))


def _is_body(line: str, indent: int) -> bool:
    """Does *line* belong to a frame that is indented so far: code, carets, repetitions?"""
    own = INDENT.match(line)
    deep = own is not None and own.end() > indent
    return deep or line.lstrip(" |").startswith("[Previous line repeated")


def _kind_of(part: Piece) -> str:
    if not part.file:
        return "text"
    return "library" if LIBRARY.search(part.file) else "project"


def _draw_run(kind: str, parts: list[Piece]) -> SafeString:
    text = "\n".join(part.text for part in parts)
    if kind != "library":
        return format_html('<pre class="pgjobs-frame-{}">{}</pre>', kind, text)
    said = ngettext("%(count)d frame of libraries", "%(count)d frames of libraries", len(parts)) % {
        "count": len(parts)
    }
    return format_html(
        '<details class="pgjobs-fold"><summary>{}</summary>'
        '<pre class="pgjobs-frame-library">{}</pre></details>',
        said,
        text,
    )
