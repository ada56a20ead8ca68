"""A warning, and where it leads."""

from __future__ import annotations

from typing import NamedTuple


class Notice(NamedTuple):
    """A sentence, and the page that shows what it counts: its name among the site's urls.

    *kind* and *subject* say what it is about, whatever its numbers are by now. *page* is "" where
    none helps; *key* is that of the row the page is about, None for a page about many; *query* is
    the rest of the address.
    """

    kind: str
    text: str
    page: str = ""
    key: int | None = None
    query: str = ""
    subject: str = ""
