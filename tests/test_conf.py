"""The setting PGJOBS: every key is checked, and says what it expects."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_pgjobs.conf import SECRETS, Conf, automatic_concurrency, find_problems, get_conf
from tests.helpers import in_a_loop


def problem(**settings: Any) -> str:
    """Return fact and remedy of the one thing that is wrong."""
    [(_, fact, remedy)] = find_problems(settings)
    return f"{fact} {remedy}"


def test_without_the_setting_the_defaults_are_in_force() -> None:
    with override_settings():
        assert get_conf() == Conf()


def test_a_key_replaces_its_default() -> None:
    with override_settings(PGJOBS={"LEASE_SECONDS": 12, "TASK_MODULES": ["a.b"]}):
        assert get_conf() == Conf(LEASE_SECONDS=12, TASK_MODULES=("a.b",))
    assert get_conf() == Conf()


def test_the_settings_are_read_once() -> None:
    assert get_conf() is get_conf()


def test_the_settings_in_force_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_conf().LISTEN = False  # type: ignore[misc]


@pytest.mark.parametrize("value", [None, [], "LISTEN", 5])
def test_the_setting_must_be_a_dict(value: object) -> None:
    [(_, fact, remedy)] = find_problems(value)
    assert fact == f"expected PGJOBS to be a dict, got {value!r}."
    assert remedy == "Write PGJOBS = {...}."


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("LEASE_SECOND", "Did you mean LEASE_SECONDS?"),
        ("POLL_INTERVAL", "Did you mean POLL_INTERVAL_SECONDS?"),
        ("MAX_ATEMPTS", "Did you mean MAX_ATTEMPTS?"),
        ("zzz", "Remove it."),
        (7, "Remove it."),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(key: Any, near: str) -> None:
    [(_, fact, remedy)] = find_problems({key: 1})
    assert fact == f"unknown key {key!r} in PGJOBS."
    assert remedy == near


GOOD: dict[str, list[Any]] = {
    "LEASE_SECONDS": [1, 60.0, 86400],
    "POLL_INTERVAL_SECONDS": [0.05, 1, 3600],
    "SHUTDOWN_TIMEOUT_SECONDS": [0, 30.5],
    "TIMEOUT_GRACE_SECONDS": [0, 5],
    "RETENTION_SECONDS": [None, 0, 86400],
    "FAILED_RETENTION_SECONDS": [None, 0.5],
    "WORKFLOW_NOTICE_SECONDS": [0, 3600.0],
    "STATISTICS_RETENTION_SECONDS": [3600, 86400.0, None],
    "CONCURRENCY": [None, 1, 1000],
    "ASYNC_CONCURRENCY": [1, 100_000],
    "CLAIM_LIMIT": [None, 1, 20, 100_000],
    "PROCESSES": [1, 256],
    "MAX_ATTEMPTS": [1, 1_000_000],
    "FOREIGN_MAX_ATTEMPTS": [1, 25],
    "FOREIGN_MAX_ATTEMPTS_BY_PATH": [{}, {"wagtail": 3, "shop.tasks.mail": 1_000_000}],
    "MAX_LOSSES": [1, 1_000_000],
    "MAX_PAYLOAD_BYTES": [1, 1_048_576],
    "LISTEN": [True, False],
    "WORKER_DATABASE": [None, "default"],
    "AGEING_SECONDS": [None, 0.1, 60],
    "UNKNOWN_TASK": ["wait", "fail"],
    "TASK_MODULES": [[], ["a"], ("a.b", "c")],
    "BROKEN_TASK_MODULES": ["stop", "skip"],
    "RATE_LIMITS": [{}, {"a": {"count": 2, "period": 1}}],
    "REDACT": [[], ["iban"], ("^pin$", "card(no)?")],
    "ADMIN_PERMISSION": [None, "shop.permissions.jobs_of"],
    "TRACE_URL": [None, "https://traces.example/{correlation_id}"],
    "SENTRY_CHECK_INS": [True, False],
    "SENTRY_TRACING": [True, False],
    "OPENTELEMETRY": [True, False],
    "METRICS_TOKEN": [None, "x" * 16],
    "HTTP_HEARTBEAT_SECONDS": [0.1, 60, 3600.0],
    "HTTP_MAX_BODY_BYTES": [1024, 104_857_600],
    "HTTP_MAX_CONNECTIONS": [1, 1000],
    "HTTP_MAX_WAITING": [0, 10_000],
    "CALLBACK_HOSTS": [[], ("a.example", ".b.example"), ["http://a.example:8000", "[::1]:443"]],
    "CALLBACK_SECRET": [None, "x" * 32],
    "CALLBACK_ALLOW_PRIVATE": [True, False],
}
NO_NUMBER: list[Any] = ["60", True, float("nan"), [1]]
BAD: dict[str, list[Any]] = {
    "LEASE_SECONDS": [None, 0, 0.9, 86401, -1, float("inf"), *NO_NUMBER],
    "POLL_INTERVAL_SECONDS": [None, 0, 0.04, 3601, *NO_NUMBER],
    "SHUTDOWN_TIMEOUT_SECONDS": [None, -1, float("inf"), *NO_NUMBER],
    "TIMEOUT_GRACE_SECONDS": [None, -0.1, *NO_NUMBER],
    "RETENTION_SECONDS": [-1, float("inf"), *NO_NUMBER],
    "FAILED_RETENTION_SECONDS": [-1, float("inf"), *NO_NUMBER],
    "WORKFLOW_NOTICE_SECONDS": [-1, float("inf"), None, *NO_NUMBER],
    "STATISTICS_RETENTION_SECONDS": [3599, -1, float("inf"), *NO_NUMBER],
    "CONCURRENCY": [0, 1001, 1.0, "auto", *NO_NUMBER],
    "ASYNC_CONCURRENCY": [None, 0, 100_001, *NO_NUMBER],
    "CLAIM_LIMIT": [0, -1, 1.5, 100_001, True, "20"],
    "PROCESSES": [None, 0, 257, *NO_NUMBER],
    "MAX_ATTEMPTS": [None, 0, -1, 1.5, *NO_NUMBER],
    "FOREIGN_MAX_ATTEMPTS": [None, 0, -1, 1.5, *NO_NUMBER],
    "FOREIGN_MAX_ATTEMPTS_BY_PATH": [
        *(None, [], "wagtail", {"wagtail": 0}, {"wagtail": None}, {"wagtail": True}),
        *({"": 1}, {"wagtail.": 1}, {"wagtail.*": 1}, {1: 1}),
    ],
    "MAX_LOSSES": [None, 0, -1, 1.5, *NO_NUMBER],
    "MAX_PAYLOAD_BYTES": [None, 0, 1_048_577, *NO_NUMBER],
    "LISTEN": [None, 1, 0, "yes"],
    "WORKER_DATABASE": ["nowhere", 1, ["default"]],
    "AGEING_SECONDS": [0, 86401, *NO_NUMBER],
    "UNKNOWN_TASK": [None, "ignore", True, ["wait"]],
    "TASK_MODULES": [None, "a.b", [""], [1], {"a"}],
    "BROKEN_TASK_MODULES": [None, "ignore", True, ["skip"]],
    "RATE_LIMITS": [None, [], "a", {"a"}],
    "REDACT": [None, "iban", {"iban"}],
    "ADMIN_PERMISSION": ["jobs_of", True, 1],
    "TRACE_URL": ["https://traces.example/", True, 1],
    "SENTRY_CHECK_INS": [None, 1, "yes"],
    "SENTRY_TRACING": [None, 1, "yes"],
    "OPENTELEMETRY": [None, 0, "opentelemetry"],
    "METRICS_TOKEN": ["", "short", 7, "x" * 15 + " ", "é" * 16],
    "HTTP_HEARTBEAT_SECONDS": [None, 0, 3601, *NO_NUMBER],
    "HTTP_MAX_BODY_BYTES": [None, 1023, 104_857_601, *NO_NUMBER],
    "HTTP_MAX_CONNECTIONS": [None, 0, 1001, *NO_NUMBER],
    "HTTP_MAX_WAITING": [None, -1, 10_001, *NO_NUMBER],
    "CALLBACK_HOSTS": [None, "a.example", ["*"], [""], [5], ["ftp://a.example"], ["A.example"]],
    "CALLBACK_SECRET": [5, "x" * 31, ""],
    "CALLBACK_ALLOW_PRIVATE": [None, 1, "yes"],
}


def test_every_key_is_tried_here() -> None:
    assert set(GOOD) == set(BAD) == {field.name for field in dataclasses.fields(Conf)}


@in_a_loop("key", GOOD)
def test_good_values_are_taken(key: str) -> None:
    """S3.9."""
    assert [value for value in GOOD[key] if find_problems({key: value})] == []


@in_a_loop("key", BAD)
def test_bad_values_are_refused_and_the_error_says_what_was_expected(key: str) -> None:
    for value in BAD[key]:
        said = problem(**{key: value})
        assert said.startswith(f"expected PGJOBS[{key!r}] to be "), value
        got = "something else" if key in SECRETS else repr(value)
        assert said.endswith(f", got {got}. See docs/settings.md.")


@in_a_loop("field", dataclasses.fields(Conf))
def test_every_default_is_a_good_value(field: dataclasses.Field[Any]) -> None:
    assert find_problems({field.name: getattr(Conf(), field.name)}) == []


def test_all_problems_are_reported_at_once() -> None:
    with override_settings(PGJOBS={"LEASE_SECONDS": 0, "LISTN": True}):
        with pytest.raises(ImproperlyConfigured) as caught:
            get_conf()
    said = str(caught.value)
    assert "expected PGJOBS['LEASE_SECONDS'] to be seconds from 1 to 86400, got 0." in said
    assert "unknown key 'LISTN' in PGJOBS. Did you mean LISTEN?" in said


def test_a_wrong_setting_is_not_remembered_when_it_is_put_right() -> None:
    with override_settings(PGJOBS={"PROCESSES": 0}), pytest.raises(ImproperlyConfigured):
        get_conf()
    assert get_conf().PROCESSES == 1


def test_automatic_concurrency_follows_the_processors_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert automatic_concurrency() == 7
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert automatic_concurrency() == 32


def test_automatic_concurrency_without_affinity_counts_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert automatic_concurrency() == 5
