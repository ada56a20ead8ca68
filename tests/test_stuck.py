"""Which running jobs look stuck: the rule, the rows, and where it is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone
from psycopg import sql

from django_pgjobs.control import stuck
from django_pgjobs.control.explain import explain
from django_pgjobs.control.stuck import Usual, far_beyond, find_stuck, judge, standing_still
from django_pgjobs.models import Statistic
from django_pgjobs.queries.statistics import CLASSES
from django_pgjobs.queries.stuck import LongRun
from tests.factories import ago, make_job, make_running_job, make_worker
from tests.odd_rows import admit_odd_values

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TASK = "tests.tasks.add"


def run(seconds: float = 3_600.0, progress: Any = None) -> LongRun:
    text = None if progress is None else json.dumps(progress)
    return LongRun(1, TASK, "default", 1, "a:1", seconds, text, NOW)


def report(seconds: float, pause: Any = 1.0) -> dict[str, Any]:
    """Return a report that changed so long ago."""
    changed_at = (NOW - timedelta(seconds=seconds)).isoformat()
    return {"done": 1, "changed_at": changed_at, "longest_pause": pause}


def usually(seconds_class: int, *, runs: int = 100, **columns: Any) -> None:
    """Let runs of a task have taken what the class says: 2 ** class milliseconds at most."""
    given = {
        "begins_at": timezone.now() - timedelta(hours=1),
        "queue_name": "default",
        "task_path": TASK,
        "runs": [0] * seconds_class + [runs],
    }
    Statistic.objects.create(**(given | columns))


class TestTheRule:
    """Pure functions."""

    def test_far_is_ten_times_the_usual_and_a_minute_at_least(self) -> None:
        """S2.32."""
        assert far_beyond(Usual(1.0, 40.0)) == 400.0
        assert far_beyond(Usual(0.001, 0.002)) == 60.0

    @pytest.mark.parametrize(("seconds", "is_far"), [(401.0, True), (399.0, False)])
    def test_only_what_is_beyond_that_is_stuck(self, seconds: float, is_far: bool) -> None:
        found = judge([run(seconds)], {TASK: Usual(3.0, 40.0)})
        assert bool(found) is is_far
        assert judge([run(seconds)], {"another.task": Usual(3.0, 40.0)}) == []

    def test_too_few_runs_say_nothing_of_what_is_usual(self) -> None:
        others = [0] * (CLASSES - 4)
        assert stuck.usual_of([0, 0, 0, 19, *others]) is None
        assert stuck.usual_of([0, 0, 0, 20, *others]) is not None

    @pytest.mark.parametrize(
        ("progress", "still"),
        [
            (report(301), 301),
            (report(299), None),
            (report(599, pause=60.0), None),
            (report(601, pause=60.0), 601),
        ],
    )
    def test_progress_stands_still_for_ten_times_its_longest_pause(
        self, progress: Any, still: float | None
    ) -> None:
        assert standing_still(run(progress=progress)) == still

    def test_a_report_of_an_earlier_attempt_is_no_older_than_this_one(self) -> None:
        assert standing_still(run(100.0, report(9_000))) is None

    @pytest.mark.parametrize(
        "progress",
        [
            None,
            [],
            {"done": 1},
            {"changed_at": 5, "longest_pause": 1},
            {"changed_at": "x", "longest_pause": 1},
            report(9_000, pause="1"),
            report(9_000, pause=-1),
            report(9_000, pause=float("nan")),
            report(9_000, pause=10**400),
        ],
        ids=str,
    )
    def test_a_report_that_says_no_time_stands_nowhere(self, progress: Any) -> None:
        assert standing_still(run(progress=progress)) is None

    def test_what_is_no_json_is_no_report(self) -> None:
        assert standing_still(run()._replace(progress="{")) is None
        assert standing_still(run()._replace(progress="[" * 100_000)) is None


@pytest.mark.django_db
class TestTheRows:
    """What the statements find."""

    def find(self, **columns: Any) -> list[int]:
        with connection.cursor() as cursor:
            return [found.run.id for found in find_stuck(cursor, **columns)]

    def test_a_job_far_beyond_what_its_task_usually_takes(self) -> None:
        usually(10)
        long = make_running_job(last_attempted_at=ago(7_200)).id
        longest = make_running_job(last_attempted_at=ago(9_200)).id
        make_running_job(last_attempted_at=ago(30))
        make_running_job(task_path="tests.tasks.other", last_attempted_at=ago(7_200))
        make_job(last_attempted_at=ago(7_200))
        assert self.find() == [longest, long]
        assert self.find(ids=[long]) == [long]
        assert self.find(ids=[]) == []

    def test_runs_of_more_than_a_week_ago_do_not_count(self) -> None:
        usually(10, begins_at=timezone.now() - timedelta(days=8), period="day")
        make_running_job(last_attempted_at=ago(7_200))
        assert self.find() == []

    def test_a_long_job_of_a_task_that_takes_long(self) -> None:
        usually(24)
        make_running_job(last_attempted_at=ago(7_200))
        assert self.find() == []

    def test_a_job_whose_worker_is_lost_does_not_run(self) -> None:
        usually(10)
        make_running_job(make_worker(lease_seconds=-1), last_attempted_at=ago(7_200))
        make_running_job(make_worker(ended_at=ago(5)), last_attempted_at=ago(7_200))
        assert self.find() == []

    def test_odd_times_and_reports_are_read(self) -> None:
        admit_odd_values()
        usually(10)
        running = {"status": "running", "worker_id": make_worker(), "attempts": 1}
        endless = sql.SQL("'-infinity'")
        odd = make_job(last_attempted_at=endless, progress=["x"], **running)
        make_job(last_attempted_at=sql.SQL("'infinity'"), **running)
        make_job(**running)
        assert self.find() == [odd]

    def test_it_is_said_where_the_job_is_explained(self) -> None:
        """S1.2."""
        usually(12)
        job = make_running_job(make_worker("a:1"), last_attempted_at=ago(7_200))
        reasons = {reason.code: reason.text for reason in explain(job.id).reasons}
        assert list(reasons) == ["running", "runs_long"]
        assert reasons["runs_long"] == (
            "It has run for 2 h; jobs of its task usually take 2.0 s to 4.1 s."
        )

    def test_a_job_whose_progress_stands_still_is_explained(self) -> None:
        changed_at = (timezone.now() - timedelta(hours=1)).isoformat()
        progress = {"done": 1, "changed_at": changed_at, "longest_pause": 2.5}
        job = make_running_job(last_attempted_at=ago(7_200), progress=progress)
        [text] = [each.text for each in explain(job.id).reasons if each.code == "stands_still"]
        assert text == "Its progress has stood still for 1 h."

    def test_the_command_does_not_fail_without_any(self) -> None:
        call_command("jobs", "stuck", "--fail", stdout=StringIO())

    def test_the_command_lists_them(self) -> None:
        usually(12)
        job = make_running_job(make_worker("a:1"), last_attempted_at=ago(7_200), queue_name="mail")
        make_running_job(last_attempted_at=ago(55))
        text = StringIO()
        call_command("jobs", "stuck", stdout=text)
        head, line = text.getvalue().splitlines()
        assert head.split() == ["id", "running", "queue_name", "worker", "task_path", "why"]
        assert line.split()[0] == str(job.id)
        assert "usually take 2.0 s to 4.1 s." in line
        with pytest.raises(CommandError, match=r"^1 job looks stuck\.$") as caught:
            call_command("jobs", "stuck", "--fail", stdout=StringIO())
        assert caught.value.returncode == 1
        text = StringIO()
        call_command("jobs", "stuck", "--json", stdout=text)
        [row] = json.loads(text.getvalue())
        assert (row["id"], row["worker_name"], row["still_seconds"]) == (job.id, "a:1", None)
        assert row["usual_seconds"][1] == pytest.approx(4.07, abs=0.1)
