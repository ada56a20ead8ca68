"""Workflows: trees of batches are opened, filled, sealed, looked at, and deleted."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from django.db.models import QuerySet

from django_pgjobs.exceptions import DuplicateWorkflow
from django_pgjobs.flows import workflow
from django_pgjobs.http.access import Access
from django_pgjobs.http.assignments import MAX_LENGTH, opened_or_refused
from django_pgjobs.http.calls import NewJob, blamed_on, read_job
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.owning import (
    duplicate,
    has_opened,
    require_all,
    require_begun,
    require_jobs,
    with_opener,
)
from django_pgjobs.http.pages import QUERY, page_of
from django_pgjobs.http.problems import FieldError, invalid, not_found
from django_pgjobs.http.removing import remove
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.results import page_of_results
from django_pgjobs.http.routing import Handler, route
from django_pgjobs.http.sessions import in_bounded_time, in_transaction, until_done
from django_pgjobs.http.shown import OPENER, batch_status, shown_batch
from django_pgjobs.http.trees import MAX_JOBS, TreeOpener, TreePart, TreeReader, add_jobs
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import all_workflows, with_states
from django_pgjobs.queries.batches import Asking
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.bounds import MAX_BATCH_NAME_BYTES, MAX_KEY_BYTES
from django_pgjobs.values.payload import is_storable
from django_pgjobs.workflows.inserting import OnConflict

KEY = "Idempotency-Key"


def open_workflow(request: ApiRequest) -> Reply:
    """Open a whole tree, with its jobs; if one has its key already, tell of that one instead."""
    fields = request.fields()
    key, is_replay_good = _key_of(request, fields)
    root = TreeReader(request.access).read(fields)
    if not root.name:
        fields.refuse("name", "this field is missing")
    if OPENER in (root.options["metadata"] or {}):
        fields.refuse("metadata", f"the name {OPENER!r} is not for clients")
    fields.check()
    root.options["metadata"] = with_opener(root.options["metadata"], request.access)
    return until_done(lambda: _open(root, key, request.access, is_replay_good=is_replay_good))


def _open(root: TreePart, key: str | None, access: Access, *, is_replay_good: bool) -> Reply:
    opener = TreeOpener()
    options = {name: value for name, value in root.options.items() if value is not None}
    try:
        with (
            blamed_on(root.fields),
            workflow(root.name, dedupe_key=key, seal=root.is_sealed, **options) as flow,
        ):
            opener.fill(root, flow)
    except DuplicateWorkflow as error:
        if not is_replay_good or error.batch_id is None:
            raise
        found = _find(error.batch_id)
        if not has_opened(access, found):
            raise duplicate(
                "Somebody else opened a workflow of this name with this key."
            ) from error
        return _opened(200, found, {})
    return _opened(201, flow, opener.batches)


def _opened(status: int, flow: Batch, batches: dict[str, Batch]) -> Reply:
    labels = {label: str(batch.pk) for label, batch in batches.items()}
    body = {"id": str(flow.pk), "name": flow.name, "is_new": status == 201, "batches": labels}
    return Reply(status, body, {"Location": f"workflows/{flow.pk}/status"})


def _key_of(request: ApiRequest, fields: Fields) -> tuple[str | None, bool]:
    """Return the dedupe key, and whether it came as a header: then who repeats gets the first."""
    given = fields.text("dedupe_key", default=None, max_length=MAX_KEY_BYTES)
    header = request.http.headers.get(KEY)
    if header is None:
        return given, False
    if given is not None or not 1 <= len(header) <= MAX_KEY_BYTES or not is_storable(header):
        detail = f"expected 1 to {MAX_KEY_BYTES} characters, and no dedupe_key beside it"
        raise invalid([FieldError(KEY, detail, is_parameter=True)])
    return header, True


def list_workflows(request: ApiRequest) -> Reply:
    """List workflows, newest first."""
    roots = with_states(all_workflows().using(job_database()))
    name = request.query("name", max_length=MAX_BATCH_NAME_BYTES)
    if name is not None:
        roots = roots.filter(name=name)
    ended = request.query("complete", choices=("true", "false"))
    if ended is not None:
        roots = roots.filter(tree_completed_at__isnull=ended == "false")
    with in_bounded_time():
        show = partial(shown_batch, has_key=request.access.is_for_all)
        page = page_of(request, roots.defer("step", "callbacks"), show, "workflows")
    return Reply(200, page)


def show_status(request: ApiRequest, *, batch: int) -> Reply:
    """Tell how a workflow does, or a batch of one, with all below it."""
    return Reply(200, _status(request, batch))


def _status(request: ApiRequest, batch_id: int) -> dict[str, Any]:
    found = _find(batch_id)
    with in_bounded_time():
        return batch_status(found, has_key=request.access.is_for_all) | {"reasons": _reasons(found)}


def _reasons(batch: Batch) -> list[dict[str, Any]]:
    return [
        {"code": reason.code, "text": reason.text, "refs": list(map(str, reason.refs))}
        for reason in batch.explain().reasons
    ]


def list_results(request: ApiRequest, *, batch: int) -> Reply:
    """Tell the results of what nothing follows below a batch, in order."""
    with in_bounded_time():
        return Reply(200, page_of_results(request, _find(batch)))


def delete_workflow(request: ApiRequest, *, batch: int) -> Reply:
    """Cancel a workflow, and let a worker delete it when nothing of it runs."""
    found = _find(batch)
    if found.parent_id is not None:
        raise not_found(f"That is a batch of workflow {found.root_id}.")
    require_all(request.access, found)
    until_done(lambda: remove(found))
    return Reply(202, shown_batch(_find(batch), has_key=request.access.is_for_all))


def add_to_batch(request: ApiRequest, *, batch: int) -> Reply:
    """Add jobs to an open batch, all or none."""
    fields = request.fields()
    given = fields.objects("jobs", max_items=MAX_JOBS)
    jobs = [read_job(each, request.access) for each in given]
    options = {
        "dedupe_key": fields.text("dedupe_key", default=None, max_length=MAX_KEY_BYTES),
        "on_conflict": fields.text(
            "on_conflict", default="raise", max_length=10, choices=get_args(OnConflict)
        ),
    }
    assignment = fields.text("assignment", default=None, max_length=MAX_LENGTH)
    fields.check()
    asking = None if assignment is None else _asking(assignment, request.access.token_id)
    wanted = [job for job in jobs if job is not None]

    def add() -> list[str]:
        ids = _add(batch, wanted, options, request.access, asking)
        require_jobs(request.access, ids)
        return ids

    return Reply(201, {"jobs": in_transaction(add)})


def _asking(assignment: str, token_id: int) -> Asking:
    """Return the running job that adds to its own batch, which takes that though it is sealed."""
    given = opened_or_refused(assignment, token_id)
    return Asking(given.job_id, given.claim)


def _add(
    batch_id: int,
    jobs: list[NewJob],
    options: dict[str, Any],
    access: Access,
    asking: Asking | None,
) -> list[str]:
    batch = _find(batch_id)
    require_begun(access, batch)
    batch.asking = asking
    return add_jobs(batch, jobs, **options)


def seal_batch(request: ApiRequest, *, batch: int) -> Reply:
    """Say that no more comes; one that is sealed stays so."""
    request.fields().check()
    found = _find(batch)
    require_all(request.access, found)
    until_done(found.seal)
    return Reply(200, _status(request, batch))


def _find(batch_id: int) -> Any:
    """Return a batch with its state."""
    rows: QuerySet[Any] = with_states(Batch.objects.using(job_database()))
    found = rows.filter(pk=batch_id).first()
    if found is None:
        raise not_found("There is no such batch.")
    return found


ROUTES = [
    route(
        "workflows",
        {
            "GET": Handler(list_workflows, "read", query=("name", "complete", *QUERY)),
            "POST": Handler(open_workflow, "enqueue"),
        },
    ),
    route("workflows/<pgjobs_id:batch>", {"DELETE": Handler(delete_workflow, "manage")}),
    route("workflows/<pgjobs_id:batch>/status", {"GET": Handler(show_status, "read")}),
    route(
        "workflows/<pgjobs_id:batch>/results", {"GET": Handler(list_results, "read", query=QUERY)}
    ),
    route("batches/<pgjobs_id:batch>/jobs", {"POST": Handler(add_to_batch, "enqueue")}),
    route("batches/<pgjobs_id:batch>/seal", {"POST": Handler(seal_batch, "enqueue")}),
]
