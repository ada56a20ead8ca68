"""The headers of a trace, where they are kept: in the metadata of the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_pgjobs.conf import get_conf

# The key of the metadata.
KEY = "pgjobs.trace"
# Of all headers; beyond that they are left out, from the last one on: baggage has no bound.
MAX_BYTES = 8_192

Headers = Mapping[str, str]


def is_tracing() -> bool:
    """Do the settings ask for traces?"""
    conf = get_conf()
    return conf.OPENTELEMETRY or conf.SENTRY_TRACING


def bounded(headers: Headers) -> dict[str, str]:
    """Return the first headers, as many as may be kept."""
    kept: dict[str, str] = {}
    left = MAX_BYTES
    for name, value in headers.items():
        left -= len(name.encode()) + len(value.encode(errors="replace"))
        if left < 0:
            break
        kept[name] = value
    return kept


def headers_of_detail(detail: str | None) -> dict[str, str]:
    """Return what the row of a claimed job says, empty if that is nothing of use.

    *detail* is the JSON that a claim returns of the whole row. Anybody may have written it.
    """
    try:
        metadata = json.loads(json.loads(detail or "{}").get("metadata") or "{}")
        found = metadata.get(KEY) or {}
        return bounded({str(k): v for k, v in found.items() if isinstance(v, str)})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def without_headers(metadata: Any) -> Any:
    """Return metadata as its task declared it; what plain SQL wrote may be no dict."""
    if not isinstance(metadata, dict) or KEY not in metadata:
        return metadata
    return {name: value for name, value in metadata.items() if name != KEY}
