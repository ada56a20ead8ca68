"""What became of an assignment, one at a time or many in one request."""

from __future__ import annotations

from django_pgjobs.declaring.retries import LONGEST_DELAY_SECONDS
from django_pgjobs.http.assignments import MAX_LENGTH, lost, opened_or_refused
from django_pgjobs.http.beating import beat
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.options import lease_seconds
from django_pgjobs.http.outcomes import (
    LATER,
    LOST,
    MAX_NOTE,
    Release,
    Report,
    Result,
    Told,
    failure_of,
    running_under,
    store,
)
from django_pgjobs.http.problems import unavailable
from django_pgjobs.http.progress import last_progress, read_progress, write_progress
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.routing import Handler, route

MOST_RESULTS = 1_000


def put_result(request: ApiRequest, assignment: str) -> Reply:
    """The attempt returned."""
    fields = request.fields()
    told = Told(assignment, Result(fields.json("result", default=None)), last_progress(fields))
    fields.check()
    return _store(request, told)


def put_failure(request: ApiRequest, assignment: str) -> Reply:
    """The attempt failed."""
    fields = request.fields()
    told = Told(assignment, failure_of(fields), last_progress(fields))
    fields.check()
    return _store(request, told)


def release(request: ApiRequest, assignment: str) -> Reply:
    """The job goes back; the attempt does not count."""
    fields = request.fields()
    delay = fields.seconds("delay", 0, LONGEST_DELAY_SECONDS, default=None)
    note = fields.text("note", default="", min_length=0, max_length=MAX_NOTE)
    fields.check()
    return _store(request, Told(assignment, Release(delay, note)))


def _store(request: ApiRequest, told: Told) -> Reply:
    token_id = request.access.token_id
    opened_or_refused(told.sealed, token_id)
    [said] = store(token_id, [told])
    if said["status"] == LOST:
        raise lost()
    if said["status"] == LATER:
        raise unavailable("The job's row is locked, or the database refuses to change it.")
    return Reply(200, said)


def put_results(request: ApiRequest) -> Reply:
    """Many at once; what became of each is said in order."""
    fields = request.fields()
    items = fields.objects("results", max_items=MOST_RESULTS)
    told = [
        Told(each.text("assignment", max_length=MAX_LENGTH), _report_of(each), last_progress(each))
        for each in items
    ]
    fields.check()
    said = store(request.access.token_id, told)
    results = [
        {"assignment": sealed, **each} for (sealed, *_), each in zip(told, said, strict=True)
    ]
    return Reply(200, {"results": results})


def _report_of(fields: Fields) -> Report:
    kinds = [name for name in ("error", "release") if fields.has(name)]
    if len(kinds) + fields.has("result") > 1:
        fields.refuse_all("expected one of result, error and release")
    if "error" in kinds:
        return failure_of(fields)
    if "release" in kinds:
        if not fields.flag("release"):
            fields.refuse("release", "expected true")
        return Release()
    return Result(fields.json("result", default=None))


def beat_assignment(request: ApiRequest, assignment: str) -> Reply:
    """Name one assignment; that renews the lease of its worker, too."""
    request.fields().check()
    found = opened_or_refused(assignment, request.access.token_id)
    pulse = beat(found.worker_id, found.token_id, [found], of_all=False)
    return Reply(200, {"cancel": pulse.reasons.get(found), "lease_seconds": lease_seconds()})


def put_progress(request: ApiRequest, assignment: str) -> Reply:
    """How far an attempt is."""
    fields = request.fields()
    text = read_progress(fields.object("progress"))
    fields.check()
    found = opened_or_refused(assignment, request.access.token_id)
    written = write_progress([(found, text)])
    # A report is left out where the row is locked; then the attempt is still under way.
    if found.job_id not in written and not running_under([(found.job_id, found.claim)]):
        raise lost()
    return Reply(200, {"status": "stored"})


ROUTES = [
    route("results", {"POST": Handler(put_results, "work")}, name="results"),
    *(
        route(f"assignments/<str:assignment>/{name}", {"POST": Handler(run, "work")}, name=name)
        for name, run in {
            "result": put_result,
            "failure": put_failure,
            "release": release,
            "progress": put_progress,
            "heartbeat": beat_assignment,
        }.items()
    ),
]
