"""The bytes of a request -> the object that they spell, or a problem.

Nothing that comes out can harm what it is given to: it is not deep, its numbers are finite, and
PostgreSQL can store its texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.http import HttpRequest, UnreadablePostError

from django_pgjobs.http.problems import FieldError, Problem, invalid
from django_pgjobs.values.payload import exceeds_depth, finite

# A value of a job has 100 levels at most; around it are those of trees of batches.
MAX_DEPTH = 250
CHUNK_BYTES = 65_536
# How JSON spells characters that PostgreSQL may not be able to store: NUL, surrogates.
SUSPICIOUS = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
MAX_ERRORS = 100
# Of a pointer in an error. The names of members are the client's own and may be as long as a body.
MAX_POINTER = 500
CUT = "…"


def read_object(request: HttpRequest, max_bytes: int) -> dict[str, Any]:
    """Return the object in the body of a request, {} if it has none; raise Problem."""
    body = _read_bytes(request, max_bytes)
    if not body:
        _refuse_unknown_length(request)
        return {}
    _require_json(request)
    value = _decoded(body)
    if not isinstance(value, dict):
        raise invalid([FieldError("", "expected an object")])
    return value


def _read_bytes(request: HttpRequest, max_bytes: int) -> bytes:
    """Read the body; stop where it is too large, whatever its Content-Length said."""
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        raise Problem("bad-request", detail="Content-Length") from None
    if length > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := request.read(CHUNK_BYTES):
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except UnreadablePostError:
        raise _incomplete() from None
    if size < length:
        raise _incomplete()
    return b"".join(chunks)


def _incomplete() -> Problem:
    return Problem("bad-request", detail="The body is not complete.")


def _too_large(max_bytes: int) -> Problem:
    detail = f"At most {max_bytes} bytes are taken."
    return Problem("too-large", detail=detail)


def _refuse_unknown_length(request: HttpRequest) -> None:
    """Raise Problem if there is a body that the server has not read: under WSGI, in chunks."""
    if "Transfer-Encoding" in request.headers and not request.headers.get("Content-Length"):
        detail = "Send the body with a Content-Length, not in chunks."
        raise Problem("length-required", detail=detail)


def _require_json(request: HttpRequest) -> None:
    encoding = request.content_params.get("charset", "utf-8") if request.content_params else "utf-8"
    is_utf8 = encoding.lower() in ("utf-8", "utf8")
    if request.content_type != "application/json" or not is_utf8:
        raise Problem("unsupported-media-type", detail="Send application/json, in UTF-8.")


def _decoded(body: bytes) -> Any:
    try:
        text = body.decode()
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=finite)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Problem("not-json", detail=str(error)) from None
    except (RecursionError, MemoryError):
        raise _too_deep() from None
    except ValueError as error:
        # A number that is no number, or too long for Python.
        raise invalid([FieldError("", str(error))]) from None
    if exceeds_depth(value, text, MAX_DEPTH):
        raise _too_deep()
    # Each of a million texts may be wrong: no more errors are looked for than are told.
    if SUSPICIOUS.search(text) and (errors := list(islice(_unstorable(value), MAX_ERRORS))):
        raise invalid(errors)
    return value


def _too_deep() -> Problem:
    return invalid([FieldError("", f"expected at most {MAX_DEPTH} levels")])


def _refuse_constant(name: str) -> float:
    raise ValueError(f"expected a finite number, got {name}")


def _unstorable(value: Any, pointer: str = "") -> Iterator[FieldError]:
    """Yield an error for each text with NUL or a lone surrogate."""
    if isinstance(value, str):
        if "\0" in value:
            yield FieldError(pointer, "expected text without NUL")
        elif any("\ud800" <= character <= "\udfff" for character in value):
            yield FieldError(pointer, "expected text without lone surrogates")
    elif isinstance(value, dict):
        for key, item in value.items():
            # The name itself can be what is wrong; then it cannot be in the pointer.
            for error in _unstorable(key, pointer):
                yield FieldError(pointer, f"a name: {error.detail}")
            yield from _unstorable(item, below(pointer, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unstorable(item, below(pointer, place))


def below(pointer: str, key: str | int) -> str:
    """Return the JSON pointer to a member of what is at *pointer*; one that is long is cut."""
    if pointer.endswith(CUT):
        return pointer
    text = str(key)[: MAX_POINTER + 1].encode("utf-8", "backslashreplace").decode()
    member = f"{pointer}/{text.replace('~', '~0').replace('/', '~1')}"
    return member if len(member) <= MAX_POINTER else member[:MAX_POINTER] + CUT
