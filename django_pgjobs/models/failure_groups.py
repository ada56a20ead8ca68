"""The last error of a job, and which failed jobs are the same failure: expressions for the ORM.

A group is a task, a class of exception and a message without what differs from job to job:
quoted text, numbers, UUIDs and hexadecimal digits are each replaced by an asterisk. The same
is said in list_failures.sql; a test holds the two together.
"""

from __future__ import annotations

from django.db.models import F, Func, TextField

# Digits are made equal before: messages that differ in nothing else become one text, which is
# cheap, and the regular expression sees few texts. An apostrophe within a word opens no
# quotation; a quotation that was cut off ends with the text. Twice as much is read as is kept,
# because what is cut off depends on how long the numbers before it are.
CHANGING = (
    """(?<![[:alnum:]])(?:'[^']*(?:'|$)|"[^"]*(?:"|$))"""
    "|[[:<:]][0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}[[:>:]]"
    "|[[:<:]][0-9a-fA-F]{8,}[[:>:]]"
    "|0[xX][0-9a-fA-F]+"
    "|[0-9]+(?:[.,:][0-9]+)*"
)
_CLASS = "COALESCE(left(%(expressions)s -> -1 ->> 'exception_class', 200), '') COLLATE \"C\""
_MESSAGE = (
    "left(regexp_replace(translate(COALESCE(left(%(expressions)s -> -1 ->> 'message', 400), ''),"
    " '123456789', '000000000')"
    ' COLLATE "C", '
    "'" + CHANGING.replace("'", "''") + "', '*', 'g'), 200)"
)


def last_error_expression(*, max_class: int | None = None, max_message: int | None = None) -> Func:
    """Return "class: message" of a job's last error, ": " if there is none.

    Of both, only the first *max_class* and *max_message* characters; None: all.
    """
    parts = [
        f"COALESCE(%(expressions)s -> -1 ->> '{key}', '')"
        if most is None
        else f"COALESCE(left(%(expressions)s -> -1 ->> '{key}', {most}), '')"
        for key, most in (("exception_class", max_class), ("message", max_message))
    ]
    return Func(
        F("errors"), template="(" + " || ': ' || ".join(parts) + ")", output_field=TextField()
    )


def error_class_expression() -> Func:
    """Return the path of the exception's class of a job's last error, '' if there is none."""
    return Func(F("errors"), template=_CLASS, output_field=TextField())


def error_message_expression() -> Func:
    """Return the message of a job's last error as its group knows it, '' if there is none."""
    return Func(F("errors"), template=_MESSAGE, output_field=TextField())
