"""The labels of a task's jobs, for the project's own use: a correlation id and tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django_pgjobs.values.bounds import MAX_CORRELATION_ID_BYTES
from django_pgjobs.values.payload import fits_column, quoted, shorten

# Bounds, because tags are in filters and on pages of many jobs.
MAX_TAGS = 64
MAX_TAG_BYTES = 256


def find_label_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the correlation id and the tags of *task*."""
    given = task.correlation_id
    if not fits_column(given, MAX_CORRELATION_ID_BYTES, min_bytes=0):
        yield (
            f"expected correlation_id to be text of at most {MAX_CORRELATION_ID_BYTES} bytes "
            f"without NUL, got {shorten(quoted(given))}."
        )
    tags = task.tags
    if not isinstance(tags, tuple):
        yield f"expected tags to be a list of strings, got {shorten(quoted(tags))}."
        return
    if len(tags) > MAX_TAGS:
        yield f"expected at most {MAX_TAGS} tags, got {len(tags)}. Larger data goes into metadata."
    for tag in tags:
        if not fits_column(tag, MAX_TAG_BYTES):
            yield (
                f"expected tags to be a list of strings of 1 to {MAX_TAG_BYTES} bytes without "
                f"NUL, got {shorten(quoted(tag))}."
            )
