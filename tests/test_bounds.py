"""The bounds of texts, which the code checks before the server does, are those of the columns."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgjobs.values import bounds

pytestmark = pytest.mark.django_db

# Of each text column, what its domain and its own constraint say of its length.
BOUNDS = """
    SELECT attribute.attrelid::regclass || '.' || attribute.attname AS place,
           (regexp_match(pg_get_constraintdef(bound.oid), '<= ([0-9]+)'))[1]::int
    FROM pg_attribute AS attribute
    JOIN pg_constraint AS bound
        ON bound.contypid = attribute.atttypid
        OR (bound.conrelid = attribute.attrelid AND bound.conkey = ARRAY[attribute.attnum])
    WHERE pg_get_constraintdef(bound.oid) LIKE '%octet_length%'
"""


@pytest.mark.parametrize(
    ("places", "most"),
    [
        ("job.queue_name queue_settings.queue_name", bounds.MAX_QUEUE_NAME_BYTES),
        ("job.task_path schedule.task_path", bounds.MAX_TASK_PATH_BYTES),
        ("job.backend", bounds.MAX_ALIAS_BYTES),
        ("job.concurrency_key job.unique_key pause.name", bounds.MAX_KEY_BYTES),
        ("batch.dedupe_key batch_key.dedupe_key", bounds.MAX_KEY_BYTES),
        ("rate_limit.name", bounds.MAX_LIMIT_NAME_BYTES),
        ("job.rate_limit_keys", bounds.MAX_RATE_LIMITS_BYTES),
        ("job.subject", bounds.MAX_SUBJECT_BYTES),
        ("job.correlation_id", bounds.MAX_CORRELATION_ID_BYTES),
        ("batch.name", bounds.MAX_BATCH_NAME_BYTES),
        ("schedule.name job.schedule", bounds.MAX_SCHEDULE_NAME_BYTES),
    ],
)
def test_the_bounds_of_texts_are_those_of_the_columns(places: str, most: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(BOUNDS)
        found = dict(cursor.fetchall())
    assert {place: found.get(f"pgjobs_{place}") for place in places.split()} == dict.fromkeys(
        places.split(), most
    )


def test_the_bounds_of_a_priority_are_those_of_the_column() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conname = 'pgjobs_priority_is_from_minus_100_to_100'"
        )
        [(text,)] = cursor.fetchall()
    assert str(bounds.MIN_PRIORITY) in text
    assert f"<= {bounds.MAX_PRIORITY}" in text
