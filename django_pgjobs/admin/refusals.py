"""What the package refuses, for people: its exceptions are in English, as logs and code want them.

A text that is not known here is shown as it is.
"""

from __future__ import annotations

import re

from django.utils.translation import get_language, gettext_lazy

from django_pgjobs.status import JobStatus

# What begins like this, and how it is said.
KNOWN = [
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), said)
    for pattern, said in (
        (
            r"expected cron to be five fields.*, got '(?P<given>.*)': (?P<why>.*)\. known are .*",
            gettext_lazy(
                "Expected five fields (minute, hour, day of month, month, day of week), or six "
                "with the seconds first, got “%(given)s”: %(why)s. Known are names, ranges, steps, "
                "L, LW, 5L and MON#1."
            ),
        ),
        (r"wrong number of fields", gettext_lazy("there are more fields, or fewer")),
        (r"bad second", gettext_lazy("there is no such second")),
        (r"bad minute", gettext_lazy("there is no such minute")),
        (r"bad hour", gettext_lazy("there is no such hour")),
        (r"bad day-of-month", gettext_lazy("there is no such day of the month")),
        (r"bad month", gettext_lazy("there is no such month")),
        (r"bad day-of-week", gettext_lazy("there is no such day of the week")),
        (
            r"expected either cron or every, got both\.",
            gettext_lazy("Expected either a cron expression or an interval, got both."),
        ),
        (
            r"expected either cron or every, got none of them\.",
            gettext_lazy("Expected either a cron expression or an interval, got none of them."),
        ),
        (
            r"expected timezone to be .*, got '(?P<given>.*)'\..*",
            gettext_lazy(
                'Expected a continent and a city such as "Europe/Berlin" or "America/New_York", '
                'or "UTC", got “%(given)s”. Those that this computer does not know the package '
                "tzdata brings."
            ),
        ),
        (
            r"expected ends to be later than starts, (?P<starts>.+), got (?P<ends>.+)\.",
            gettext_lazy("Expected an end after the beginning, %(starts)s, got %(ends)s."),
        ),
        (
            r"expected at most (?P<most>\d+) occurrences.* from (?P<begin>.+) to (?P<end>.+)\. .*",
            gettext_lazy(
                "Expected at most %(most)s occurrences, got more from %(begin)s to %(end)s. Choose "
                "a narrower range."
            ),
        ),
        (
            r"(task_path: )?no task (?P<task>\S+) is declared here: (?P<why>.+)",
            gettext_lazy("No task %(task)s is declared here: %(why)s"),
        ),
        (
            r"(task_path: )?no task (?P<task>\S+) is declared here\..*",
            gettext_lazy(
                "No task %(task)s is declared here. Deploy its code, and name its app in "
                "INSTALLED_APPS, whose tasks.py is loaded, or its module in "
                "PGJOBS['TASK_MODULES']."
            ),
        ),
        (
            r"(task_path: )?(?P<task>\S+) does not allow schedules that people make.*",
            gettext_lazy(
                "%(task)s does not allow schedules that people make. Declare it with "
                "@task(schedulable=True)."
            ),
        ),
        (
            r"schedule (?P<name>.+?) cannot be run(?: now)?: (?:\w+: )?(?P<why>.+)",
            gettext_lazy("The schedule “%(name)s” cannot be run: %(why)s"),
        ),
        (
            r"(?P<call>.+) cannot be called with the arguments given: (?P<why>.+)",
            gettext_lazy("%(call)s cannot be called with these arguments: %(why)s"),
        ),
        (
            r"missing a required [\w -]*argument: '(?P<name>.+?)'\. it takes no '(?P<other>.+?)'.*",
            gettext_lazy("“%(name)s” is missing, and it takes no “%(other)s”."),
        ),
        (
            r"missing a required [\w -]*argument: '(?P<name>.+?)'.*",
            gettext_lazy("“%(name)s” is missing."),
        ),
        (
            r"got an unexpected keyword argument '(?P<name>.+?)'.*",
            gettext_lazy("It takes no “%(name)s”."),
        ),
        (
            r"multiple values for argument '(?P<name>.+?)'.*",
            gettext_lazy("“%(name)s” is given twice."),
        ),
        (r"too many positional arguments.*", gettext_lazy("There are too many.")),
        (
            r"pause\(\) expected .* one line of 1 to (?P<most>\d+) bytes, got (?P<given>.*)\.",
            gettext_lazy("Expected one line of 1 to %(most)s bytes, got %(given)s."),
        ),
        (
            r"expected (?P<name>\w+) to .* (?P<most>\d+) bytes as JSON, got (?P<size>\d+)\. .*",
            gettext_lazy(
                "Expected %(name)s to take at most %(most)s bytes as JSON, got %(size)s. Store the "
                "data in a table or file and pass its key, or raise PGJOBS['MAX_PAYLOAD_BYTES']."
            ),
        ),
        (
            r"locked by another transaction\. .*",
            gettext_lazy("locked by another transaction. Try again when that has ended."),
        ),
        (
            r"an open workflow or a waiting job needs it, .*",
            gettext_lazy(
                "an open workflow or a waiting job needs it, or another transaction has locked it."
            ),
        ),
        (
            r"job (?P<id>\d+) is locked by another transaction, after (?P<seconds>\S+) s of .*",
            gettext_lazy(
                "job %(id)s is locked by another transaction, after %(seconds)s s of retries. Try "
                "again when that has ended."
            ),
        ),
        (
            r"job (?P<id>\d+) is not requeued: (?P<why>.+)",
            gettext_lazy("job %(id)s is not requeued: %(why)s"),
        ),
        (r"its batch was cancelled\. .*", gettext_lazy("its batch was cancelled. Retry that.")),
        (
            r"the workflow of its batch is .*",
            gettext_lazy("the workflow of its batch is being deleted."),
        ),
        (r"it does not exist any more\.", gettext_lazy("it does not exist any more.")),
        (r"it is due by now\.", gettext_lazy("it is due by now.")),
        (r"it has been asked to end\.", gettext_lazy("it has been asked to end.")),
        (
            r"it is (?P<status>\w+) by now\.",
            gettext_lazy("its status is “%(status)s” by now."),
        ),
        (
            r"the database refused it: (?P<said>.*)",
            gettext_lazy("the database refused it: %(said)s"),
        ),
        (
            r"expected a finite number at (?P<path>.+), got (?P<given>\S+)\.",
            gettext_lazy("Expected a finite number at %(path)s, got %(given)s."),
        ),
        (
            r"expected a finite number[^,]*, got (?P<given>.+?)\.?",
            gettext_lazy("Expected a finite number, got %(given)s."),
        ),
        (
            r"(?P<why>[^:]+(?:':'[^:]+)?): line (?P<line>\d+) column (?P<column>\d+) \(char \d+\)",
            gettext_lazy("Line %(line)s, column %(column)s cannot be read: %(why)s."),
        ),
        (r"expecting value", gettext_lazy("a value is missing")),
        (
            r"expecting '(?P<sign>.)' delimiter",
            gettext_lazy("“%(sign)s” is missing"),
        ),
        (
            r"expecting property name enclosed in double quotes",
            gettext_lazy("a name in double quotes is missing"),
        ),
        (r"extra data", gettext_lazy("something stands behind the end")),
        (r"unterminated string starting at", gettext_lazy("a text that begins here has no end")),
    )
]
# Whoever may see a batch finds it on the page of its job.
BATCH_OF_JOB = re.compile(r"\bits batch \d+")


def in_words(error: object) -> str:
    """Return the text of an exception in the person's language, without what not all may know."""
    text = BATCH_OF_JOB.sub("its batch", str(error))
    if (get_language() or "en").startswith("en"):
        return text
    for pattern, said in KNOWN:
        found = pattern.fullmatch(text)
        if found:
            values = found.groupdict()
            if "why" in values:
                values["why"] = in_words(values["why"])
            if values.get("status") in JobStatus.values:
                values["status"] = JobStatus(values["status"]).label
            return str(said) % values
    return text
