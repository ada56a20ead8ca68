"""The row that a job is about: `task.using(subject=order)`, stored as "app.model:key".

It is a plain text and no foreign key: the row may live in another database, and may be deleted
before its jobs are.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.apps import apps
from django.db.models import Model

from django_pgjobs.values.bounds import MAX_SUBJECT_BYTES
from django_pgjobs.values.payload import fits_column, quoted


class Subject(str):
    """The text that stands for a row in `pgjobs_job.subject`."""

    __slots__ = ()


def subject_of(row: Any) -> Subject:
    """Return the text for a saved model instance; a Subject stands for itself.

    A proxy is the row of its concrete model. Raise TypeError for anything that is no model
    instance, and ValueError for one that has no row yet.
    """
    if isinstance(row, Subject):
        return row
    if not isinstance(row, Model):
        raise TypeError(f"expected subject to be a model instance, got {quoted(row)}.")
    if row.pk is None or row._state.adding:
        raise ValueError(
            f"expected subject to be a saved row, got a {type(row).__name__} that is not saved "
            "yet. Save it first, in the same transaction."
        )
    text = f"{row._meta.concrete_model._meta.label_lower}:{_key_of(row)}"  # type: ignore[union-attr]
    if not fits_column(text, MAX_SUBJECT_BYTES):
        raise ValueError(
            f"expected subject to take at most {MAX_SUBJECT_BYTES} bytes without NUL, got "
            f"{text[:80]!r}."
        )
    return Subject(text)


def _key_of(row: Model) -> str:
    """Return the primary key as text, the same for the key as given and as read back."""
    fields = row._meta.pk_fields
    keys = [str(field.to_python(getattr(row, field.attname))) for field in fields]
    # Parts of a composite key are told apart by the quotes.
    return keys[0] if len(keys) == 1 else json.dumps(keys, ensure_ascii=False)


class Parsed(NamedTuple):
    """The model and the primary key, as text, that a subject names."""

    model: type[Model]
    key: str


def parse_subject(text: str) -> Parsed | None:
    """Return what *text* names, None if this project has no such model."""
    label, _, key = text.partition(":")
    try:
        return Parsed(apps.get_model(label), key)
    except (LookupError, ValueError):
        return None
