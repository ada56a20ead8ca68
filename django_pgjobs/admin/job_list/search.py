"""The search of the list of jobs: a small grammar, so that each word has an index or a bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.addresses import quoted
from django_pgjobs.declaring.redaction import is_secret
from django_pgjobs.status import JobStatus
from django_pgjobs.values.bounds import MAX_BIGINT

MAX_TERMS = 20
MAX_VALUE = 500

# name:"value", name:value, "text" or text; the name ends at the first colon.
TERM = re.compile(
    r'\s*(?:(?P<name>[^\s:"]+):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)(?P<end>"?)|(?P<plain>[^\s"]\S*)?)'
)
NUMBER = re.compile(r"#?([0-9]+)", re.ASCII)
STEP = re.compile(r"[^.]+")

HELP = gettext_lazy(
    "A job's number, or part of a task's path. Other things by their names: error:timeout, "
    "args.customer:17, task: queue: status: tag: worker: key: subject: schedule: batch: tree:. "
    'Put text with spaces in "quotation marks".'
)
# Where text may be meant to be found that is in no task's path.
ELSEWHERE = ("error", "args.0", "tag", "key", "queue", "worker")


class Reach(IntEnum):
    """What it costs to ask one job whether it matches, and so how many are asked."""

    INDEXED = 0
    PLAIN = 1
    # A value is unpacked that may be large.
    SLOW = 2


class Condition(NamedTuple):
    """One condition of the list: lookups (`bulk.lookups`), and what they cost."""

    lookups: Mapping[str, Any]
    reach: Reach = Reach.PLAIN


class WrongTerm(ValueError):
    """A term that nobody can mean; its text says what is expected."""


class Search(NamedTuple):
    """What a search asks for, and what is wrong with it, in words."""

    parts: list[Condition]
    problems: list[str]


def parse_search(text: str, *, may_reveal: bool) -> Search:
    """Return what *text* asks for.

    Masked values cannot be searched for unless *may_reveal*: whoever may not see them must not
    be able to guess them either.
    """
    found = Search([], [])
    numbers: list[int] = []
    for name, value in _terms(text, found.problems):
        number = None if name else NUMBER.fullmatch(value)
        try:
            if number:
                numbers.append(_job_id(number[1]))
            else:
                found.parts.append(_part(name, value, may_reveal))
        except WrongTerm as error:
            found.problems.append(str(error))
    if numbers:
        found.parts.append(Condition({"id__in": numbers}, Reach.INDEXED))
    return found


def look_elsewhere(text: str) -> list[str]:
    """Return searches for the words of *text* without a name, as errors, arguments and others.

    Its other terms stay; there is none if all have names.
    """
    terms = _terms(text, [])
    words = " ".join(value for name, value in terms if not name)
    rest = [f"{name}:{quoted(value)}" for name, value in terms if name]
    return [" ".join([f"{name}:{quoted(words)}", *rest]) for name in ELSEWHERE if words]


def _terms(text: str, problems: list[str]) -> list[tuple[str, str]]:
    """Return (name or nothing, value) of each term."""
    terms: list[tuple[str, str]] = []
    for term in TERM.finditer(text.strip()):
        if not term[0]:
            continue
        if term["end"] == "":
            problems.append(_("A quotation mark is not closed: %s") % f'"{term["quoted"]}')
        elif term["quoted"] is not None:
            value = re.sub(r"\\(.)", r"\1", term["quoted"], flags=re.DOTALL)
            terms.append((term["name"] or "", value))
        else:
            terms.append((term["name"] or "", term["plain"] or ""))
    if len(terms) > MAX_TERMS:
        problems.append(_("Search for at most %d words at a time.") % MAX_TERMS)
    return terms[:MAX_TERMS]


def _part(name: str, value: str, may_reveal: bool) -> Condition:
    if len(value) > MAX_VALUE or "\0" in value:
        raise WrongTerm(_("Search for at most %d characters of text.") % MAX_VALUE)
    if not value:
        raise WrongTerm(_("A value is missing after “%s:”.") % name if name else _("“” is empty."))
    if not name:
        return Condition({"task_path__icontains": value})
    if name == "args" or name.startswith("args."):
        return _argument(name, value, may_reveal)
    if name not in TERMS:
        raise WrongTerm(
            _(
                "“%(name)s:” is not known. Expected one of %(known)s, or quotation marks "
                "around the whole text."
            )
            % {"name": name, "known": " ".join([*(f"{term}:" for term in TERMS), "args.name:"])}
        )
    return TERMS[name](value)


def _job_id(digits: str) -> int:
    if len(digits) > 19 or int(digits) > MAX_BIGINT:
        raise WrongTerm(_("No job has the number %s.") % f"{digits[:20]}…")
    return int(digits)


def _id(value: str) -> Condition:
    number = NUMBER.fullmatch(value)
    if not number:
        raise WrongTerm(_("Expected a job's number after “id:”, got “%s”.") % value)
    return Condition({"id__in": [_job_id(number[1])]}, Reach.INDEXED)


def _batch(value: str) -> Condition:
    return Condition({"batch": _batch_id("batch", value)}, Reach.INDEXED)


def _tree(value: str) -> Condition:
    """A batch and all below it: the index leads to the jobs only if these are not too many."""
    return Condition({"tree": _batch_id("tree", value)})


def _batch_id(name: str, value: str) -> int:
    number = NUMBER.fullmatch(value)
    if not number or int(number[1]) > MAX_BIGINT:
        raise WrongTerm(
            _("Expected a batch's number after “%(name)s:”, got “%(value)s”.")
            % {"name": name, "value": value[:40]}
        )
    return int(number[1])


def _task(value: str) -> Condition:
    """The path of a task, or its end."""
    return Condition({"any_of": [{"task_path": value}, {"task_path__endswith": f".{value}"}]})


def _status(value: str) -> Condition:
    if value not in JobStatus.values:
        raise WrongTerm(
            _("Expected one of %(known)s after “status:”, got “%(value)s”.")
            % {"known": ", ".join(JobStatus.values), "value": value}
        )
    return Condition({"status": value})


def _argument(name: str, value: str, may_reveal: bool) -> Condition:
    """`args.customer.id:17`, or `args.0:17` for the first positional argument."""
    path = STEP.findall(name.partition(".")[2])
    if not path:
        raise WrongTerm(
            _("Expected the name of an argument: args.customer:17, or args.0:17 for the first.")
        )
    if not may_reveal and any(is_secret(step) for step in path):
        raise WrongTerm(_("“%s” is masked for you, so it cannot be searched for.") % name)
    return Condition({"argument": {"path": path, "value": value}}, Reach.SLOW)


TERMS: dict[str, Callable[[str], Condition]] = {
    "task": _task,
    "queue": lambda value: Condition({"queue_name": value}),
    "status": _status,
    "tag": lambda value: Condition({"tag": value}),
    "error": lambda value: Condition({"error": value}, Reach.SLOW),
    "worker": lambda value: Condition({"worker": value}),
    "key": lambda value: Condition({"key": value}),
    "subject": lambda value: Condition({"subject": value}, Reach.INDEXED),
    "schedule": lambda value: Condition({"schedule": value}, Reach.INDEXED),
    "batch": _batch,
    "tree": _tree,
    "id": _id,
}
