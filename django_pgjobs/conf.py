"""`settings.PGJOBS` as one frozen object: the list of keys, types and defaults.

Nothing else in the package reads the setting. Durations are seconds.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_pgjobs.values.bounds import COUNT, MAX_LIMIT_NAME_BYTES, is_count
from django_pgjobs.values.hosts import HOST
from django_pgjobs.values.payload import is_storable, quoted, shorten

# The queue of the package's own jobs. Every worker serves it, whatever its --queues say.
OWN_QUEUE = "pgjobs"
# The defaults of the columns, and so of rows that plain SQL writes.
DEFAULT_QUEUE, DEFAULT_PRIORITY = "default", 0


@dataclass(frozen=True, kw_only=True)
class Conf:
    """The keys of `settings.PGJOBS` and their defaults; docs/settings.md explains each."""

    LEASE_SECONDS: float = 60.0
    POLL_INTERVAL_SECONDS: float = 5.0
    SHUTDOWN_TIMEOUT_SECONDS: float = 30.0
    TIMEOUT_GRACE_SECONDS: float = 5.0
    RETENTION_SECONDS: float | None = 7 * 86400.0
    FAILED_RETENTION_SECONDS: float | None = 30 * 86400.0
    WORKFLOW_NOTICE_SECONDS: float = 0.0
    STATISTICS_RETENTION_SECONDS: float | None = 400 * 86400.0
    CONCURRENCY: int | None = None
    ASYNC_CONCURRENCY: int = 100
    CLAIM_LIMIT: int | None = None
    PROCESSES: int = 1
    MAX_ATTEMPTS: int = 25
    FOREIGN_MAX_ATTEMPTS: int = 1
    FOREIGN_MAX_ATTEMPTS_BY_PATH: Mapping[str, int] = field(default_factory=dict)
    MAX_LOSSES: int = 3
    MAX_PAYLOAD_BYTES: int = 262_144
    LISTEN: bool = True
    WORKER_DATABASE: str | None = None
    AGEING_SECONDS: float | None = None
    UNKNOWN_TASK: str = "wait"
    TASK_MODULES: tuple[str, ...] = ()
    BROKEN_TASK_MODULES: str = "stop"
    RATE_LIMITS: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    REDACT: tuple[str, ...] = (
        *("token", "secret", "passw", "pwd", "api_?key", "authorization", "cookie", "card"),
        *("session", "credential", "private"),
    )
    ADMIN_PERMISSION: str | None = None
    TRACE_URL: str | None = None
    SENTRY_CHECK_INS: bool = False
    SENTRY_TRACING: bool = False
    OPENTELEMETRY: bool = False
    METRICS_TOKEN: str | None = None
    HTTP_HEARTBEAT_SECONDS: float = 60.0
    HTTP_MAX_BODY_BYTES: int = 2_097_152
    HTTP_MAX_CONNECTIONS: int = 8
    HTTP_MAX_WAITING: int = 4
    CALLBACK_HOSTS: tuple[str, ...] = ()
    CALLBACK_SECRET: str | None = None
    CALLBACK_ALLOW_PRIVATE: bool = False


# The server's own limit on one payload (domain pgjobs_payload), in bytes.
SERVER_PAYLOAD_BYTES = 1_048_576


class SettingRule(NamedTuple):
    """What one key may hold: its type, in words, and exactly."""

    kind: type
    expected: str
    fits: Callable[[Any], bool]
    nullable: bool = False


ATTEMPTS = SettingRule(int, "a whole number from 1 to 1000000", lambda v: 1 <= v <= 1_000_000)


def is_dotted(text: str) -> bool:
    """Does *text* read like the name of a module, or of something in one?"""
    return all(part.isidentifier() for part in text.split("."))


_RULES = {
    "LEASE_SECONDS": SettingRule(float, "seconds from 1 to 86400", lambda v: 1 <= v <= 86400),
    "POLL_INTERVAL_SECONDS": SettingRule(
        float, "seconds from 0.05 to 3600", lambda v: 0.05 <= v <= 3600
    ),
    "SHUTDOWN_TIMEOUT_SECONDS": SettingRule(
        float, "seconds from 0 to 604800", lambda v: 0 <= v <= 604_800
    ),
    "TIMEOUT_GRACE_SECONDS": SettingRule(
        float, "seconds from 0 to 604800", lambda v: 0 <= v <= 604_800
    ),
    "RETENTION_SECONDS": SettingRule(
        float, "seconds from 0 to 1e11, or None", lambda v: 0 <= v <= 1e11, nullable=True
    ),
    "FAILED_RETENTION_SECONDS": SettingRule(
        float, "seconds from 0 to 1e11, or None", lambda v: 0 <= v <= 1e11, nullable=True
    ),
    "STATISTICS_RETENTION_SECONDS": SettingRule(
        float, "seconds from 3600 to 1e11, or None", lambda v: 3600 <= v <= 1e11, nullable=True
    ),
    "WORKFLOW_NOTICE_SECONDS": SettingRule(
        float, "seconds from 0 to 1e11", lambda v: 0 <= v <= 1e11
    ),
    "CONCURRENCY": SettingRule(
        int, "a whole number from 1 to 1000, or None", lambda v: 1 <= v <= 1000, nullable=True
    ),
    "ASYNC_CONCURRENCY": SettingRule(
        int, "a whole number from 1 to 100000", lambda v: 1 <= v <= 100_000
    ),
    "CLAIM_LIMIT": SettingRule(
        int, "a whole number from 1 to 100000, or None", lambda v: 1 <= v <= 100_000, nullable=True
    ),
    "PROCESSES": SettingRule(int, "a whole number from 1 to 256", lambda v: 1 <= v <= 256),
    "MAX_ATTEMPTS": ATTEMPTS,
    "FOREIGN_MAX_ATTEMPTS": ATTEMPTS,
    "FOREIGN_MAX_ATTEMPTS_BY_PATH": SettingRule(
        dict,
        "a dict of whole numbers from 1 to 1000000 by the dotted path of a task, module or package",
        lambda v: all(
            isinstance(path, str) and is_dotted(path) and _is_given(ATTEMPTS, count)
            for path, count in v.items()
        ),
    ),
    "MAX_LOSSES": SettingRule(
        int, "a whole number from 1 to 1000000", lambda v: 1 <= v <= 1_000_000
    ),
    "MAX_PAYLOAD_BYTES": SettingRule(
        int,
        f"a whole number from 1 to {SERVER_PAYLOAD_BYTES}",
        lambda v: 1 <= v <= SERVER_PAYLOAD_BYTES,
    ),
    "LISTEN": SettingRule(bool, "True or False", lambda v: True),
    "WORKER_DATABASE": SettingRule(
        str, "an alias of DATABASES, or None", lambda v: v in settings.DATABASES, nullable=True
    ),
    "AGEING_SECONDS": SettingRule(
        float, "seconds from 0.1 to 86400, or None", lambda v: 0.1 <= v <= 86400, nullable=True
    ),
    "UNKNOWN_TASK": SettingRule(str, "'wait' or 'fail'", lambda v: v in ("wait", "fail")),
    "TASK_MODULES": SettingRule(
        tuple,
        "a list of dotted module names",
        lambda v: all(isinstance(name, str) and name for name in v),
    ),
    "BROKEN_TASK_MODULES": SettingRule(str, "'stop' or 'skip'", lambda v: v in ("stop", "skip")),
    "RATE_LIMITS": SettingRule(dict, "a dict of rate limits by name", lambda v: True),
    "REDACT": SettingRule(tuple, "a list of regular expressions", lambda v: True),
    "ADMIN_PERMISSION": SettingRule(
        str, "the dotted path of a function, or None", lambda v: "." in v, nullable=True
    ),
    "TRACE_URL": SettingRule(
        str,
        "an address with {correlation_id}, or None",
        lambda v: "{correlation_id}" in v,
        nullable=True,
    ),
    "SENTRY_CHECK_INS": SettingRule(bool, "True or False", lambda v: True),
    "SENTRY_TRACING": SettingRule(bool, "True or False", lambda v: True),
    "OPENTELEMETRY": SettingRule(bool, "True or False", lambda v: True),
    "METRICS_TOKEN": SettingRule(
        str,
        "text of 16 ASCII characters or more without spaces, or None",
        lambda v: len(v) >= 16 and all("!" <= character <= "~" for character in v),
        nullable=True,
    ),
    "HTTP_HEARTBEAT_SECONDS": SettingRule(
        float, "seconds from 0.1 to 3600", lambda v: 0.1 <= v <= 3600
    ),
    "HTTP_MAX_BODY_BYTES": SettingRule(
        int, "a whole number from 1024 to 104857600", lambda v: 1024 <= v <= 104_857_600
    ),
    "HTTP_MAX_CONNECTIONS": SettingRule(
        int, "a whole number from 1 to 1000", lambda v: 1 <= v <= 1000
    ),
    "HTTP_MAX_WAITING": SettingRule(
        int, "a whole number from 0 to 10000", lambda v: 0 <= v <= 10_000
    ),
    "CALLBACK_HOSTS": SettingRule(
        tuple,
        "a list of hosts, such as 'example.com', '.example.com', 'http://intern.example:8000'",
        lambda v: all(isinstance(host, str) and HOST.fullmatch(host) for host in v),
    ),
    "CALLBACK_SECRET": SettingRule(
        str, "text of 32 characters or more, or None", lambda v: len(v) >= 32, nullable=True
    ),
    "CALLBACK_ALLOW_PRIVATE": SettingRule(bool, "True or False", lambda v: True),
}

# Settings that no message and no page may show.
SECRETS = {"METRICS_TOKEN", "CALLBACK_SECRET"}

_LIMIT_RULES = {
    "count": SettingRule(int, COUNT, is_count),
    "period": SettingRule(
        float, "seconds from 0.001 to 31622400", lambda v: 0.001 <= v <= 31_622_400
    ),
    "burst": SettingRule(int, f"{COUNT}, or None", is_count, nullable=True),
    "note": SettingRule(str, "text without NUL or lone surrogates", is_storable),
}
_LIMIT_KEYS = "expected a dict with 'count', 'period' and perhaps 'burst' and 'note'"


class WrongSetting(NamedTuple):
    """What is wrong *about* a key of the settings, and the remedy."""

    about: str
    fact: str
    remedy: str


def find_problems(value: object) -> list[WrongSetting]:
    """Return everything wrong with *value* as the setting PGJOBS."""
    if not isinstance(value, Mapping):
        fact = f"expected PGJOBS to be a dict, got {quoted(value)}."
        return [WrongSetting("PGJOBS", fact, "Write PGJOBS = {...}.")]
    problems = []
    for key, given in value.items():
        rule = _RULES.get(key)
        if rule is None:
            about = key if isinstance(key, str) else quoted(key)
            near = difflib.get_close_matches(about.upper(), _RULES, n=1, cutoff=0.4)
            hint = f"Did you mean {near[0]}?" if near else "Remove it."
            problems.append(WrongSetting(about, f"unknown key {quoted(key)} in PGJOBS.", hint))
        elif not accepts(rule, given):
            got = "something else" if key in SECRETS else quoted(given)
            fact = f"expected PGJOBS[{key!r}] to be {rule.expected}, got {got}."
            problems.append(WrongSetting(key, fact, "See docs/settings.md."))
        elif key == "RATE_LIMITS":
            problems += [
                WrongSetting(
                    f"{key}[{quoted(name)}]",
                    f"PGJOBS[{key!r}][{quoted(name)}]: {fact}.",
                    "See docs/rate-limits.md.",
                )
                for name, limit in given.items()
                for fact in _find_limit_problems(name, limit)
            ]
        elif key == "REDACT":
            problems += [
                WrongSetting(
                    f"{key}[{place}]",
                    f"PGJOBS[{key!r}][{place}] is {fact}.",
                    "See docs/settings.md.",
                )
                for place, expression in enumerate(given)
                for fact in _find_expression_problems(expression)
            ]
    return problems


def _find_expression_problems(expression: object) -> Iterator[str]:
    reason = ""
    if not isinstance(expression, str):
        reason = "it is no text"
    elif not expression:
        reason = "it is empty, and would mask everything"
    else:
        try:
            re.compile(expression, re.IGNORECASE)
        except RecursionError:
            reason = "it is nested too deeply"
        except (re.error, ValueError, OverflowError) as error:
            reason = str(error)
    if reason:
        yield f"{shorten(quoted(expression))}, which is no regular expression: {reason}"


def _find_limit_problems(name: object, limit: object) -> Iterator[str]:
    size = len(name.encode(errors="replace")) if isinstance(name, str) else 0
    if not isinstance(name, str) or not 1 <= size <= MAX_LIMIT_NAME_BYTES:
        yield f"expected a name of 1 to {MAX_LIMIT_NAME_BYTES} bytes, got {quoted(name)}"
    elif "\n" in name or not is_storable(name):
        yield f"expected a name of one line without NUL or lone surrogates, got {quoted(name)}"
    if not isinstance(limit, Mapping) or not {"count", "period"} <= limit.keys():
        yield f"{_LIMIT_KEYS}, got {quoted(limit)}"
        return
    has_good_values = True
    for key, value in limit.items():
        rule = _LIMIT_RULES.get(key)
        if rule is None:
            yield f"{_LIMIT_KEYS}, got the key {quoted(key)}"
        elif not accepts(rule, value):
            has_good_values = False
            yield f"expected {key} to be {rule.expected}, got {quoted(value)}"
    if not has_good_values or limit.get("burst") is None:
        return
    count, burst = limit["count"], limit["burst"]
    if burst > count:
        yield f"expected burst to be at most the count, {count}, got {burst}"


def fits(key: str, value: object) -> bool:
    """May the setting *key* have this value?"""
    return accepts(_RULES[key], value)


def expected(key: str) -> str:
    """Return in words what the setting *key* accepts."""
    return _RULES[key].expected.removesuffix(", or None")


def _is_given(rule: SettingRule, value: object) -> bool:
    return value is not None and accepts(rule, value)


def accepts(rule: SettingRule, value: object) -> bool:
    """Does the rule allow this value?"""
    if value is None:
        return rule.nullable
    if isinstance(value, bool) and rule.kind is not bool:
        return False
    kinds = {float: (float, int), tuple: (tuple, list)}.get(rule.kind, (rule.kind,))
    return isinstance(value, kinds) and rule.fits(value)


@cache
def get_conf() -> Conf:
    """Return the settings in force; raise ImproperlyConfigured if one of them is wrong."""
    value = getattr(settings, "PGJOBS", {})
    problems = find_problems(value)
    if problems:
        raise ImproperlyConfigured(" ".join(f"{each.fact} {each.remedy}" for each in problems))
    given: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in value.items()
    }
    return Conf(**given)


def automatic_concurrency() -> int:
    """Return the number of threads for CONCURRENCY = None: usable processors + 4, at most 32."""
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    )
    return min(32, usable + 4)


def _forget(*, setting: str, **kwargs: object) -> None:
    if setting in ("PGJOBS", "DATABASES"):
        get_conf.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_pgjobs.conf")
