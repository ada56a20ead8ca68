"""Jobs as a file: masked, safe to open in a spreadsheet, whatever the rows hold."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings

from django_pgjobs.admin.bulk import export
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.declaring.redaction import MASK
from tests.admin.bulk_support import address, confirm, log_in
from tests.factories import make_job, make_jobs, make_running_job
from tests.odd_rows import admit_odd_values
from tests.test_admin import HOSTILE, LONG_NUMBER, NOW, ROWS

pytestmark = pytest.mark.django_db

EVERYTHING = Selection({})
SECRETS = {"kwargs": {"api_token": "s3cret", "who": "anna"}}


def download(client: Client, selection: Selection = EVERYTHING, **fields: str) -> str:
    """Return the file."""
    fields = {"file_format": "jsonl", **fields}
    response = confirm(client, address("export", selection), **fields)
    assert response.status_code == 200
    assert response["Content-Disposition"].startswith('attachment; filename="jobs-')
    return b"".join(response.streaming_content).decode()


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_every_job_of_the_selection_is_in_the_file(admin_client: Client) -> None:
    ids = [*make_jobs(3, status="failed", finished_at=NOW), make_job(), make_running_job().id]
    rows = rows_of(download(admin_client))
    assert sorted(row["id"] for row in rows) == sorted(ids)
    assert set(rows[0]) == set(export.COLUMNS)
    failed = rows_of(download(admin_client, Selection({"status": "failed"})))
    assert [row["id"] for row in failed] == ids[:3]
    assert failed[0]["args"] == [1, 2]


@pytest.mark.slow
def test_any_row_can_be_exported(admin_client: Client) -> None:
    """A row that cannot be read must not end the file in the middle."""
    admit_odd_values()
    for columns in ROWS.values():
        make_job(**columns)
    assert len(rows_of(download(admin_client))) == len(ROWS)
    before = csv.field_size_limit(2**24)
    try:
        lines = io.StringIO(download(admin_client, file_format="csv"), newline="")
        assert len(list(csv.reader(lines))) == len(ROWS) + 1
    finally:
        csv.field_size_limit(before)


def test_secrets_are_masked() -> None:
    make_job(**SECRETS)
    make_job(args=LONG_NUMBER)
    client = log_in("view_job")
    masked, undecodable = rows_of(download(client, reveal="on"))
    assert masked["kwargs"] == {"api_token": MASK, "who": "anna"}
    assert undecodable["args"] == MASK
    assert "s3cret" not in download(client, file_format="csv", reveal="on")


def test_secrets_are_shown_to_those_who_may_and_ask(admin_client: Client) -> None:
    make_job(**SECRETS)
    assert "s3cret" not in download(admin_client)
    assert rows_of(download(admin_client, reveal="on"))[0]["kwargs"]["api_token"] == "s3cret"
    messages = [entry.change_message for entry in LogEntry.objects.order_by("id")]
    assert len(messages) == 2
    assert LogEntry.objects.order_by("id").last().object_repr == "masked values shown"


def mail_only(user: Any, permission: str, jobs: Any) -> Any:
    """Reveal the queue "mail" only; a function for PGJOBS["ADMIN_PERMISSION"]."""
    if jobs is None or permission != "pgjobs.reveal_job":
        return True
    return jobs.filter(queue_name="mail")


def test_secrets_of_some_jobs_may_stay_masked(admin_client: Client) -> None:
    make_job(queue_name="mail", **SECRETS)
    make_job(**SECRETS)
    with override_settings(PGJOBS={"ADMIN_PERMISSION": f"{__name__}.mail_only"}):
        rows = rows_of(download(admin_client, reveal="on"))
    assert [row["kwargs"]["api_token"] for row in rows] == ["s3cret", MASK]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_no_cell_is_a_formula(admin_client: Client, text: str) -> None:
    make_job(note=text, correlation_id=text)
    [header, row] = csv.reader(io.StringIO(download(admin_client, file_format="csv"), newline=""))
    cells = dict(zip(header, row, strict=True))
    assert cells["note"] == cells["correlation_id"] == f"'{text}"
    assert cells["args"] == "[1, 2]"


def test_hostile_text_stays_in_its_cell(admin_client: Client) -> None:
    make_job(note=f'{HOSTILE}",\n"x', priority=-5)
    [header, row] = csv.reader(io.StringIO(download(admin_client, file_format="csv"), newline=""))
    cells = dict(zip(header, row, strict=True))
    assert cells["note"] == f'{HOSTILE}",\n"x'
    assert cells["priority"] == "-5"


def test_a_file_has_a_bounded_number_of_jobs(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MAX_ROWS", 7)
    monkeypatch.setattr(export, "PAGE_JOBS", 3)
    make_jobs(10)
    assert len(rows_of(download(admin_client))) == 7
