"""What `manage.py demo` says about integrations: its checks pass, and notice what is off."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_pgjobs.models import Job, RateLimit
from django_pgjobs.testing import run_jobs
from example_project.integrations import limits
from example_project.integrations.demo import checks, play, report
from example_project.integrations.demo.play import Play, Played
from example_project.integrations.demo.world import INTEGRATIONS, World, make_world
from example_project.integrations.models import Company, Integration, Product, Trade
from example_project.integrations.outside import OutsideApi
from example_project.integrations.syncing import resync
from example_project.shop.demo.checks import Check
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.progress import Progress
from example_project.shop.demo.report import verdicts
from example_project.shop.management.commands.demo import Command

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)

Done = tuple[World, Played, OutsideApi]


@pytest.fixture
def done(db: None, settings: Any) -> Iterator[Done]:
    """A small world in which everything has happened, run on the test's connection."""
    RateLimit.objects.create(name=limits.OUTSIDE_API, count=20, period=1)
    with OutsideApi(limit=10_000, fault_share=0.02) as api:
        settings.OUTSIDE_API_URL = api.url
        world = make_world("run", products=20)
        played = Play(world, edits=20, check_workers=run_jobs).run(Progress(io.StringIO(), "", 1))
        yield world, played, api


def failed(found: list[Check]) -> list[str]:
    return [check.text for check in found if not check.passed]


@pytest.mark.slow
def test_the_checks_pass_when_all_went_well_and_notice_what_did_not(done: Done) -> None:
    world, played, api = done
    assert len(world.integrations) == INTEGRATIONS
    assert failed(checks.check_products(world, api)) == []
    assert failed(checks.check_coalescing(world, played)) == []
    assert failed(checks.check_trades(world, played)) == []
    assert any(line.startswith("  trades") for line in report.summary(world, played, api))

    Product.objects.filter(pk=world.products[0].pk).update(price=1)
    assert failed(checks.check_products(world, api)) == [
        "products whose last price and text arrived"
    ]
    Job.objects.filter(pk=played.jobs.latest("pk").pk).delete()
    assert failed(checks.check_coalescing(world, played)) == ["catalogues compared afterwards"]
    played.edits += 1
    assert "syncs and edits merged into them" in failed(checks.check_coalescing(world, played))

    later, before = Trade.objects.filter(company=Company.objects.first()).order_by("-pk")[:2]
    Trade.objects.filter(pk=later.pk).update(started_at=before.started_at)
    assert failed(checks.check_trades(world, played)) == [
        "trades that began before the one before had ended"
    ]
    Trade.objects.filter(pk=later.pk).update(balance_after=before.balance_after)
    assert "balances that are not those of the right order" in failed(
        checks.check_trades(world, played)
    )


@pytest.mark.slow
def test_integrations_that_waited_for_the_big_one_are_noticed(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world("run", products=20)
    for integration in world.ids:
        resync(integration)
    jobs = Job.objects.all()
    played = Played(after_job=0, last_catalogue_job=jobs.latest("pk").pk)
    assert checks.check_fairness(world, played) == []  # too small to tell
    monkeypatch.setattr(checks, "BIG", 20)
    jobs.update(started_at=NOW)
    big = jobs.filter(concurrency_key=limits.concurrency_key(world.big.pk))
    big.update(started_at=NOW + timedelta(seconds=1))
    assert failed(checks.check_fairness(world, played)) == []
    late = [limits.concurrency_key(integration.pk) for integration in world.integrations[1:6]]
    jobs.filter(concurrency_key__in=late).update(started_at=NOW + timedelta(seconds=2))
    assert failed(checks.check_fairness(world, played)) == [
        "integrations under way before the big one"
    ]


def test_calls_that_the_other_side_refused_are_noticed(db: None) -> None:
    world = make_world("run", products=20)
    with OutsideApi(limit=1) as api:
        api.answers.update({200: 98, 429: 2})
        assert failed(checks.check_limits(world, api)) == []
        api.answers[429] += 1
        assert failed(checks.check_limits(world, api)) == ["calls answered with 429"]


def at(*seconds: float) -> list[datetime]:
    return [NOW + timedelta(seconds=second) for second in seconds]


@pytest.mark.parametrize(
    ("spans", "most"),
    [([], 0), ([(0, 1), (1, 2)], 1), ([(0, 2), (1, 3)], 2), ([(0, 9), (1, 2), (3, 4)], 2)],
)
def test_what_runs_at_a_time_is_counted(spans: list[tuple[float, float]], most: int) -> None:
    assert checks.most_at_a_time([(at(b)[0], at(e)[0]) for b, e in spans]) == most


def test_the_outside_api_knows_the_plans_of_a_demo_that_was_cut_off_too(db: None) -> None:
    cut_off = make_world("one", products=20)  # its jobs are left, and run in the next demo
    world = make_world("two", products=20)
    with Command()._start_api() as api:
        enterprise = limits.ALLOWED[Integration.Plan.ENTERPRISE]
        assert api.limits == {cut_off.big.pk: enterprise, world.big.pk: enterprise}


@pytest.mark.slow
def test_a_demo_without_progress_ends(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "STALL_SECONDS", 0.01)
    monkeypatch.setattr(play, "POLL_SECONDS", 0.02)
    world = make_world("run", products=20)
    idle = Play(world, edits=0, check_workers=lambda: None)
    with pytest.raises(DemoError, match=r"no sync or trade finished for 0.01 s; \d+ left"):
        idle.run(Progress(io.StringIO(), "", 1))


def test_a_bound_is_shown_with_what_was_found() -> None:
    good, bad = verdicts([Check("syncs", 10, 3, "at most "), Check("syncs", 10, 11, "at most ")])
    assert good.startswith("  ✓ syncs")
    assert good.endswith(" 3   expected at most 10")
    assert bad.startswith("  ✕ syncs")


def test_a_port_that_is_taken_is_a_clear_error(settings: Any) -> None:
    with OutsideApi(limit=1) as api:
        settings.OUTSIDE_API_URL = api.url
        with pytest.raises(CommandError, match="cannot listen on port"):
            call_command("outside_api")
