"""`manage.py jobs delete`, of jobs by ids and of all that match."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_pgjobs.models import Job
from tests.factories import make_batch, make_job
from tests.helpers import connect
from tests.test_client import make_finished_job

pytestmark = pytest.mark.django_db


def make_failed(**columns: Any) -> int:
    return make_finished_job("failed", **({"result": None} | columns))


def test_jobs_are_deleted_by_their_ids(run: Any) -> None:
    failed, done = make_failed(), make_finished_job("successful")
    assert run("delete", failed, done) == f"job {failed}: deleted\njob {done}: deleted\n"
    assert not Job.objects.exists()


def test_what_is_not_deleted_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """It waits, an open workflow needs it, or it does not exist."""
    waiting, of_open = make_job(), make_failed(batch_id=make_batch("open"))
    with pytest.raises(CommandError, match=r"^3 of 3 jobs were not deleted\.$"):
        call_command("jobs", "delete", waiting, of_open, 4711)
    assert capsys.readouterr().out == (
        f"job {waiting}: is ready\n"
        f"job {of_open}: is failed, and an open workflow or a waiting job needs it, or somebody "
        "has locked it\n"
        "job 4711: does not exist\n"
    )
    assert Job.objects.count() == 2


def test_filters_find_finished_jobs_of_any_end(run: Any) -> None:
    ids = [make_failed(), make_finished_job("successful"), make_finished_job("cancelled")]
    waiting, other = make_job(), make_failed(queue_name="mail")
    given = ("delete", "--queue", "default")
    assert run(*given, "--dry-run") == f"would delete 3 jobs: {', '.join(map(str, ids))}\n"
    assert run(*given, "--status", "failed", "--yes") == "1 job deleted.\n"
    assert run(*given, "--yes") == "2 jobs deleted.\n"
    assert set(Job.objects.values_list("pk", flat=True)) == {waiting, other}
    assert run(*given, "--yes") == "no failed or cancelled or successful job was found.\n"


def test_jobs_that_an_open_workflow_needs_are_none_of_them(run: Any) -> None:
    failed = make_failed(batch_id=make_batch("open"))
    make_failed()
    assert run("delete", "--status", "failed", "--yes") == "1 job deleted.\n"
    assert [job.pk for job in Job.objects.all()] == [failed]


@pytest.mark.django_db(transaction=True)
def test_a_job_that_runs_again_meanwhile_stays(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was found as failed; somebody has requeued it, and it was cancelled since."""
    job_id = make_failed()

    def cancel_it(*args: Any, **flags: Any) -> None:
        with connect() as other:
            other.execute("UPDATE pgjobs_job SET status = 'cancelled' WHERE id = %s", [job_id])

    monkeypatch.setattr("django_pgjobs.management.changes._refuse_unless_sure", cancel_it)
    monkeypatch.setattr("django_pgjobs.control.many.LOCKED_SECONDS", 0.0)
    with pytest.raises(CommandError):
        call_command("jobs", "delete", "--status", "failed")
    assert Job.objects.get().status == "cancelled"
