"""`manage.py jobs limits`: rate limits, limits of keys and of queues, and changes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import translation

from django_pgjobs import limits, pause, try_acquire
from django_pgjobs.models import ConcurrencyLimit, QueueSettings, RateLimit, RateState
from tests.factories import make_job, make_jobs, make_running_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(run: Callable[..., str]) -> Callable[..., str]:
    """Run `jobs limits` with words of a command line; return what it prints."""
    return partial(run, "limits")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Notifications to workers that there are other rules."""
    sent: list[object] = []
    monkeypatch.setattr(limits.notifications, "notify_of_control", sent.append)
    return sent


def line_of(text: str, *words: str) -> list[str]:
    """Return the words of the line that begins with these."""
    lines = (line.split() for line in text.splitlines())
    return next(line for line in lines if line[: len(words)] == list(words))


def test_nothing_is_limited(run: Any, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "RATE_LIMITS": {}}
    assert run() == "there are no limits.\n"
    assert json.loads(run("--json")) == {
        "rate_limits": [],
        "missing_rate_limits": [],
        "concurrency_limits": [],
        "queues": [],
        "concurrency_keys": [],
        "is_cut": False,
    }


def test_rate_limits_are_told_with_their_use_and_where_they_come_from(
    run: Any, settings: Any
) -> None:
    declared = {"count": 5, "period": 60.0}
    settings.PGJOBS = {
        **settings.PGJOBS,
        "RATE_LIMITS": {"shopify": declared, "mail": declared, "x": declared},
    }
    RateLimit.objects.create(name="shopify", count=5, period=60.0)
    RateLimit.objects.create(name="mail", count=7, period=60.0, note="by ann")
    RateLimit.objects.create(name="own", count=9, period=0.5, burst=2)
    RateLimit.objects.create(name="x", count=5, period=60.0, burst=2)
    make_jobs(2, rate_limit_keys="shopify:17")
    assert try_acquire("shopify:17", cost=5)
    text = run()
    assert line_of(text, "shopify") == ["shopify", "5", "60", "5", "2", "settings"]
    assert line_of(text, "mail") == ["mail", "7", "60", "7", "0", "changed", "by", "ann"]
    assert line_of(text, "x")[-1] == "changed"
    assert line_of(text, "own") == ["own", "9", "0.5", "2", "0", "-"]
    key, ready, tokens, *_ = line_of(text, "shopify:17")
    assert (key, ready, tokens) == ("shopify:17", "2", "0")
    told = {each["name"]: each for each in json.loads(run("--json"))["rate_limits"]}
    assert (told["shopify"]["declared"], told["own"]["declared"]) == (declared, None)
    assert (told["mail"]["declared"], told["mail"]["count"], told["mail"]["note"]) == (
        declared,
        7,
        "by ann",
    )
    assert (told["own"]["period"], told["own"]["burst"], told["mail"]["burst"]) == (0.5, 2, None)
    [key] = told["shopify"]["keys"]
    assert (key["key"], key["ready"], key["tokens"]) == ("shopify:17", 2, 0)
    assert 0 < key["next_seconds"] <= key["full_seconds"] <= 60


def test_a_rate_limit_that_is_not_there_is_warned_of(run: Any) -> None:
    make_job(rate_limit_keys="gone:1")
    make_job(rate_limit_keys="gone:2")
    said = run().splitlines()[-1]
    assert said.startswith("WARNING 2 jobs wait for the rate limit gone, which is not there")
    [told] = json.loads(run("--json"))["missing_rate_limits"]
    assert (told["name"], told["ready"], told["keys"]) == ("gone", 2, ["gone:1", "gone:2"])


def test_limits_of_keys_and_queues_are_told_with_their_use(run: Any) -> None:
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=2, weight=3, note="slow API")
    QueueSettings.objects.create(queue_name="mail", max_running=4, boost=-10)
    make_jobs(2, concurrency_key="shop:7", concurrency_limit=9)
    make_running_job(concurrency_key="shop:7", concurrency_limit=9)
    make_running_job(concurrency_key="company:1", concurrency_limit=1)
    make_job(queue_name="mail")
    pause(key="company:*")
    text = run()
    assert line_of(text, "shop:*") == ["shop:*", "2", "3", "slow", "API"]
    assert line_of(text, "mail") == ["mail", "4", "-10", "0", "1"]
    assert line_of(text, "shop:7") == ["shop:7", "2", "1", "2", "shop:*"]
    assert line_of(text, "company:1") == ["company:1", "1", "1", "0", "code", "PAUSED", "full"]
    told = json.loads(run("--json"))
    [limit] = told["concurrency_limits"]
    assert limit == {"pattern": "shop:*", "max_running": 2, "weight": 3, "note": "slow API"}
    [queue] = told["queues"]
    assert (queue["queue_name"], queue["max_running"], queue["boost"]) == ("mail", 4, -10)
    assert (queue["ready"], queue["running"]) == (1, 0)
    keys = {each["key"]: each for each in told["concurrency_keys"]}
    assert keys["shop:7"] == {
        "key": "shop:7",
        "ready": 2,
        "running": 1,
        "max_running": 2,
        "pattern": "shop:*",
        "is_paused": False,
    }
    assert (keys["company:1"]["pattern"], keys["company:1"]["is_paused"]) == (None, True)


def test_a_rate_limit_is_made_and_changed(run: Any, told: list[object]) -> None:
    said = run("rate", "shopify", "--count", 20, "--period", "1.6", "--burst", 5)
    assert said == "rate shopify: count 20, period 1.6, burst 5\n"
    assert len(told) == 1
    with translation.override("de"):
        said = run("rate", "shopify", "--count", 30, "--burst", "none", "--note", "ann")
    assert said == (
        "rate shopify: count 30, period 1.6, burst none, note ann\n"
        "  before: count 20, period 1.6, burst 5\n"
    )
    row = RateLimit.objects.get()
    assert (row.name, row.count, row.period, row.burst) == ("shopify", 30, 1.6, None)
    assert run("rate", "shopify", "--count", 30).endswith("(as before)\n")


@pytest.mark.slow
def test_limits_of_keys_and_queues_are_made_and_changed(run: Any) -> None:
    assert run("key", "shop:*", "--max-running", 5) == "key shop:*: max-running 5, weight 1\n"
    run("key", "shop:*", "--weight", 7)
    assert ConcurrencyLimit.objects.values_list("max_running", "weight").get() == (5, 7)
    make_job(queue_name="mail")
    run("queue", "mail", "--max-running", 4)
    run("queue", "mail", "--max-running", "none", "--boost", "-10")
    assert QueueSettings.objects.values_list("max_running", "boost").get() == (None, -10)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rate", "a", "--count", "5"), "--period: This field is required"),
        (("rate", "a", "--count", "0", "--period", "1"), "--count: Ensure this value is greater"),
        (("rate", "a", "--count", "x", "--period", "1"), "--count: Enter a whole number"),
        (("rate", "a", "--count", "1", "--period", "nan"), "--period: Enter a number"),
        (("rate", "a:*", "--count", "1", "--period", "1"), "Rate limits have no patterns"),
        (
            ("rate", "a", "--count", "1", "--period", "1", "--burst", "2"),
            "--burst: Expected at most the count",
        ),
        (("key", "a**", "--max-running", "1"), "Expected single stars"),
        (("key", "a\nb", "--max-running", "1"), "Expected one line of text"),
        (("key", "", "--max-running", "1"), "This field is required"),
        (("queue", "mail", "--boost", "300"), "--boost: Ensure this value is less"),
        (("rate", "a"), "limits rate expected what to change, such as --count"),
    ],
)
def test_what_the_admin_refuses_is_refused_in_the_same_words(
    run: Any, words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(CommandError) as refused:
        run(*words)
    assert said in str(refused.value)
    assert refused.value.returncode == 2
    assert not (RateLimit.objects.exists() or ConcurrencyLimit.objects.exists())


def test_limits_are_removed(run: Any, told: list[object]) -> None:
    RateLimit.objects.create(name="own", count=5, period=1.0)
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=2)
    QueueSettings.objects.create(queue_name="mail", max_running=4)
    for number, kind, name in ((1, "rate", "own"), (2, "key", "shop:*"), (3, "queue", "mail")):
        assert run("remove", kind, name) == f"{kind} {name}: removed\n"
        assert len(told) == number
        with pytest.raises(CommandError, match="is not there") as refused:
            run("remove", kind, name)
        assert refused.value.returncode == 1


def test_who_removes_a_declared_limit_is_told_that_it_comes_back(run: Any, settings: Any) -> None:
    declared = {"shopify": {"count": 5, "period": 60.0}}
    settings.PGJOBS = {**settings.PGJOBS, "RATE_LIMITS": declared}
    RateLimit.objects.create(name="shopify", count=7, period=60.0)
    assert run("remove", "rate", "shopify") == (
        "rate shopify: removed; PGJOBS['RATE_LIMITS'] declares it, so `migrate` makes it again\n"
    )


def test_a_key_gets_all_its_tokens_again(run: Any) -> None:
    RateLimit.objects.create(name="shopify", count=5, period=60.0)
    assert try_acquire("shopify:17", cost=5)
    assert run("reset", "shopify:17") == "key shopify:17: has all its tokens again\n"
    assert not RateState.objects.exists()
    assert run("reset", "shopify:17") == "key shopify:17: had all its tokens\n"


def test_what_rows_say_steers_no_terminal_and_begins_no_line(run: Any) -> None:
    hostile = "a\x1b[31m\u202eb\x9b\nzzz"
    RateLimit.objects.create(name="r", count=5, period=60.0, note=hostile)
    ConcurrencyLimit.objects.create(pattern=hostile, max_running=2, note=hostile)
    QueueSettings.objects.create(queue_name=hostile, note=hostile)
    make_running_job(concurrency_key=hostile.replace("\n", ""))
    make_job(rate_limit_keys=hostile.replace("\n", ""))
    for words in ((), ("rate", "r", "--count", 4)):
        printed = run(*words)
        assert "a\\x1b[31m\\x202eb\\x9b" in printed
        assert not [line for line in printed.splitlines() if line.startswith("zzz")]
    assert "\x1b" not in run("--json")


def test_a_key_that_has_no_limit_has_nothing_to_reset(run: Any) -> None:
    RateLimit.objects.create(name="shopify", count=2, period=60)
    assert run("reset", "shopify:17") == "key shopify:17: had all its tokens\n"
    with pytest.raises(CommandError, match=r"no rate limit holds for the key shopfy:17\."):
        run("reset", "shopfy:17")
    # Its limit was removed.
    RateState.objects.create(key="gone:1", next_free="2030-01-01T00:00Z")
    assert run("reset", "gone:1") == "key gone:1: has all its tokens again\n"


@pytest.mark.parametrize("words", [("remove", "rate"), ("reset",)])
def test_a_name_that_cannot_be_is_not_that_of_another(run: Any, words: tuple[str, ...]) -> None:
    RateLimit.objects.create(name="shopify", count=2, period=60)
    with pytest.raises(CommandError):
        run(*words, "shop\0ify")
    assert RateLimit.objects.filter(name="shopify").exists()


def test_a_queue_that_cannot_be_is_refused_in_words(run: Any) -> None:
    with pytest.raises(CommandError, match="Expected one line of text"):
        run("queue", "ma\0il", "--max-running=2")
