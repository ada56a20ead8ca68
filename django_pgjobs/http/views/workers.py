"""Workers over HTTP: they enter, say that they live, claim, and say goodbye."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import partial

from django_pgjobs.backend import our_aliases
from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.http.access import Access
from django_pgjobs.http.asking import Asked, wait_in_loop, wait_in_thread
from django_pgjobs.http.assignments import MAX_LENGTH, MAX_NAMED, Assignment, opened
from django_pgjobs.http.beating import beat
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.members import find_member, recent_members
from django_pgjobs.http.options import lease_seconds, make_options
from django_pgjobs.http.outcomes import LOST, at_goodbye, attempt_of, held_by
from django_pgjobs.http.pool import borrowed
from django_pgjobs.http.problems import forbidden
from django_pgjobs.http.progress import progress_of, write_progress
from django_pgjobs.http.reporting import deliver
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.routing import Handler, route
from django_pgjobs.http.single import take_one
from django_pgjobs.http.station import station
from django_pgjobs.http.taking import GivenAttempt
from django_pgjobs.http.threads import in_thread
from django_pgjobs.http.waiting import waiting
from django_pgjobs.queries import workers
from django_pgjobs.queries.workers import Registration
from django_pgjobs.values.bounds import MAX_QUEUE_NAME_BYTES, MAX_TASK_PATH_BYTES

# When to claim again where as many wait as may.
RETRY_SECONDS = 1.0
MAX_NAME = 200
MAX_QUEUES, MAX_TASKS, MAX_SLOTS = 100, 1_000, 1_000


def register(request: ApiRequest) -> Reply:
    """Enter a worker."""
    fields = request.fields()
    name = fields.text("name", max_length=MAX_NAME)
    queues = fields.texts(
        "queues", default=None, max_items=MAX_QUEUES, max_length=MAX_QUEUE_NAME_BYTES
    )
    tasks = fields.texts("tasks", default=None, max_items=MAX_TASKS, max_length=MAX_TASK_PATH_BYTES)
    slots = fields.integer("slots", 1, MAX_SLOTS, default=1)
    paths = _tasks_of(request.access, tasks, fields)
    fields.check()
    row: Registration = {
        "name": name,
        "host": "http",
        "pid": 0,
        "version": "v1",
        "slots": slots,
        "queues": _queues_of(request.access, queues, paths),
        "excluded_queues": [],
        "backends": our_aliases(),
        "task_paths": paths,
        "schedule_names": [],
        "lease": lease_seconds(),
        "quiet": False,
        "token_id": request.access.token_id,
    }
    with borrowed() as connection, connection.cursor() as cursor:
        worker_id = workers.register_worker(cursor, row)
    return Reply(
        201,
        {
            "worker": str(worker_id),
            "heartbeat_seconds": get_conf().HTTP_HEARTBEAT_SECONDS,
            "lease_seconds": lease_seconds(),
        },
    )


def _tasks_of(access: Access, named: Collection[str] | None, fields: Fields) -> list[str]:
    """Return the remote tasks that a worker may run: those that it names, else its token's."""
    remote = station.remote_tasks()
    if named is None:
        return sorted(access.tasks_of(remote))
    if others := sorted(set(named) - access.tasks_of(named)):
        raise forbidden(f"This token is not for the task {others[0]!r}.")
    for path in sorted(set(named) - remote):
        fields.refuse("tasks", f"{path!r} is not declared with remote=True")
    return sorted(set(named))


def _queues_of(access: Access, named: Collection[str] | None, paths: Collection[str]) -> list[str]:
    """Return the queues that a worker serves: those that it names, else those of its tasks."""
    if named is None:
        # Not all: a claim would wade through the jobs of others.
        return sorted(access.queues_of({find_task(path).queue_name for path in paths}))
    if others := sorted(set(named) - access.queues_of(named)):
        raise forbidden(f"This token is not for the queue {others[0]!r}.")
    return sorted(set(named))


def beat_worker(request: ApiRequest, worker: int) -> Reply:
    """Renew a worker's lease, and tell it what to leave."""
    fields = request.fields()
    sealed = fields.texts("assignments", max_items=MAX_NAMED, max_length=MAX_LENGTH)
    progress = progress_of(fields)
    fields.check()
    token_id = request.access.token_id
    ours, forged = _sorted_out([*sealed, *progress], token_id, worker)
    named = [ours[each] for each in dict.fromkeys(sealed) if each in ours]
    pulse = beat(worker, token_id, named)
    write_progress([(ours[each], said) for each, said in progress.items() if each in ours])
    body = pulse.as_dict()
    asked = frozenset(sealed)
    body["cancel"] += [{"assignment": each, "reason": LOST} for each in forged if each in asked]
    return Reply(200, body)


def _sorted_out(
    sealed: Iterable[str], token_id: int, worker_id: int
) -> tuple[dict[str, Assignment], list[str]]:
    """Return the assignments of a worker by their ids, and the ids that are none of its."""
    ours, others = {}, []
    for each in dict.fromkeys(sealed):
        assignment = opened(each, token_id)
        if assignment is None or assignment.worker_id != worker_id:
            others.append(each)
        else:
            ours[each] = assignment
    return ours, others


def claim(request: ApiRequest, worker: int) -> Reply:
    """Give a worker jobs. Under WSGI a request that waits holds a thread, so only few may wait.

    None waits where the server has one thread: heartbeats and pages would wait as well.
    """
    asked, given = _ask(request, worker)
    if given or not asked.wait:
        return asked.answer(given)
    if request.http.META.get("wsgi.multithread", True):
        with waiting.place() as has_place:
            if has_place:
                return asked.answer(wait_in_thread(asked))
    given = asked.look(time.monotonic())
    return asked.answer(given, retry_after=None if given else RETRY_SECONDS)


async def claim_in_loop(request: ApiRequest, worker: int) -> Reply:
    """Do the same under ASGI, where a request that waits holds no thread."""
    asked, given = await in_thread(partial(_ask, request, worker))
    if given or not asked.wait:
        return asked.answer(given)
    return asked.answer(await wait_in_loop(asked))


def _ask(request: ApiRequest, worker: int) -> tuple[Asked, list[GivenAttempt]]:
    asked = Asked.of(request, worker)
    return asked, asked.give()


def claim_one(request: ApiRequest, job: int, worker: int) -> Reply:
    """Give a worker the job that it names."""
    request.fields().check()
    member = find_member(request.access, worker)
    return Reply(200, take_one(member, job).as_dict(member.worker))


def end(request: ApiRequest, worker: int) -> Reply:
    """Say goodbye for a worker; what it runs goes back."""
    request.fields().check()
    find_member(request.access, worker)
    while True:
        held = [attempt_of(each, make_options()) for each in held_by(worker, MAX_NAMED)]
        delivery = deliver((attempt, at_goodbye(attempt)) for attempt in held)
        # What cannot be written now is left to the rescue.
        if len(held) < MAX_NAMED or delivery.unwritten:
            break
    with borrowed() as connection, connection.cursor() as cursor:
        workers.end_worker(cursor, worker)
    recent_members.forget(worker)
    waiting.dismiss(worker)
    return Reply(204)


ROUTES = [
    route("workers", {"POST": Handler(register, "work")}, name="workers"),
    route("workers/<pgjobs_id:worker>", {"DELETE": Handler(end, "work")}, name="worker"),
    route(
        "workers/<pgjobs_id:worker>/heartbeat",
        {"POST": Handler(beat_worker, "work")},
        name="worker_heartbeat",
    ),
    route(
        "workers/<pgjobs_id:worker>/claim",
        {"POST": Handler(claim, "work", in_loop=claim_in_loop)},
        name="claim",
    ),
    route(
        "jobs/<pgjobs_id:job>/workers/<pgjobs_id:worker>",
        {"POST": Handler(claim_one, "work")},
        name="claim_one",
    ),
]
