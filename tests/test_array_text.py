"""Arrays as the text that statements are given."""

from __future__ import annotations

import pytest
from django.db import DataError, connection

from django_pgjobs.queries.arrays import text_array_text

TEXTS = ["", "a", "NULL", "null", '"', "\\", '\\"', "{}", ",", '","', "{a,b}", "a\nb", "\x01", "ä"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "items", [[], [""], [None], TEXTS, TEXTS[::-1], [*TEXTS, None], [None, *TEXTS]]
)
def test_the_server_reads_the_texts_that_were_given(items: list[str | None]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text[]", [text_array_text(items)])
        assert cursor.fetchone() == (items,)


@pytest.mark.django_db
def test_a_text_with_a_nul_is_refused_and_not_taken_for_two() -> None:
    with connection.cursor() as cursor, pytest.raises(DataError):
        cursor.execute("SELECT %s::text[]", [text_array_text(["a\0b", "c"])])
