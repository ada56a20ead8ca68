"""A trigger of the project that refuses rows of jobs."""

from __future__ import annotations

from django.db import connection

FUNCTION = """
CREATE OR REPLACE FUNCTION refuse_job() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF {condition} THEN RAISE EXCEPTION 'refused'; END IF;
    RETURN NEW;
END
$body$;
"""
TRIGGERS = """
CREATE TRIGGER refuse_job BEFORE INSERT OR UPDATE ON pgjobs_job_live
    FOR EACH ROW EXECUTE FUNCTION refuse_job();
CREATE TRIGGER refuse_job BEFORE INSERT OR UPDATE ON pgjobs_job_finished
    FOR EACH ROW EXECUTE FUNCTION refuse_job();
"""
ENDS = "NEW.status IN ('successful', 'failed', 'cancelled')"


def refuse_rows(condition: str = ENDS) -> None:
    """Let the server refuse rows for which a condition holds, until `allow`."""
    refuse_instead(condition)
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS)


def refuse_instead(condition: str) -> None:
    """Let those that refuse already refuse other rows; that waits for nobody who has a row."""
    with connection.cursor() as cursor:
        cursor.execute(FUNCTION.format(condition=condition))


def allow() -> None:
    """Let the server refuse nothing any more."""
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION IF EXISTS refuse_job() CASCADE")
