"""One request for jobs: what it asks, claiming for it, and waiting."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from django_pgjobs.http.access import Access
from django_pgjobs.http.assignments import MAX_LENGTH, MAX_NAMED, opened
from django_pgjobs.http.looking import looks
from django_pgjobs.http.members import Member, find_member, recent_members
from django_pgjobs.http.outcomes import held_by
from django_pgjobs.http.pool import borrowed, turn
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.http.taking import GivenAttempt, again, take
from django_pgjobs.http.threads import in_thread
from django_pgjobs.http.waiting import POLL_SECONDS, Waiter, waiting
from django_pgjobs.queries.claims import Group, send_token_wait
from django_pgjobs.queries.workers import set_listening
from django_pgjobs.worker.claiming.plan import Listing

MOST_JOBS, MOST_SECONDS = 100, 25.0
# A waiting request that was not woken takes what another one saw up to this part of a pause ago: so
# one look serves all.
SHARED = 0.9
LEAST_PAUSE = 0.001


@dataclass(frozen=True, slots=True)
class Asked:
    """What a worker asks for: up to so many jobs, within *wait* seconds.

    *held* is the claims of the jobs that it knows of; None: it does not say.
    """

    access: Access
    member: Member
    max_jobs: int
    wait: float
    held: dict[int, int] | None

    @classmethod
    def of(cls, request: ApiRequest, worker_id: int) -> Asked:
        """Read a request; raise Problem."""
        fields = request.fields()
        max_jobs = fields.integer("max_jobs", 1, MOST_JOBS, default=1)
        wait = fields.seconds("wait", 0, MOST_SECONDS, default=0.0)
        sealed = fields.texts("held", default=None, max_items=MAX_NAMED, max_length=MAX_LENGTH)
        fields.check()
        held = None
        if sealed is not None:
            known = (opened(each, request.access.token_id) for each in sealed)
            held = {each.job_id: each.claim for each in known if each is not None}
        return cls(
            request.access, recent_members.get(request.access, worker_id), max_jobs, wait, held
        )

    def give(self) -> list[GivenAttempt]:
        """Return jobs for the worker: first those that it runs and does not know of."""
        worker, row = self.member
        given = self._again()
        if given or row.is_quiet or row.is_stopping:
            return given
        given = take(worker, self.max_jobs, insists=not self.wait)
        if given and row.is_listening:
            # Busy workers find jobs by working.
            self.say_listening(listening=False)
        return given

    def _again(self) -> list[GivenAttempt]:
        if self.held is None:
            return []
        worker = self.member.worker
        held = held_by(worker.id, MAX_NAMED + self.max_jobs)
        return again(worker, held, self.held, self.max_jobs)

    def say_listening(self, *, listening: bool) -> bool:
        """Set or clear the flag that lets enqueues notify; return False if the row is locked."""
        with borrowed() as connection, connection.cursor() as cursor:
            set_listening(cursor, self.member.worker.id, listening=listening)
            is_said = bool(cursor.rowcount)
        recent_members.forget(self.member.worker.id)
        return is_said

    def newest(self) -> Member:
        """Return the worker as its row is now; raise Problem (404) if it is gone."""
        return find_member(self.access, self.member.worker.id)

    def look(self, since: float) -> list[GivenAttempt]:
        """Claim what a look shows that is not older than *since*, if there is anything for it."""
        found = looks.get(since=since)
        options = self.member.worker.options
        if not any(options.serves(place) for place in found.places):
            return []
        # It may have been asked to be quiet, or may have less, since it began to wait.
        worker, row = self.newest()
        if row.is_quiet or row.is_stopping:
            return []
        return take(worker, self.max_jobs, since=since, insists=False)

    def tokens_at(self) -> float:
        """Return when the first jobs for the worker have the tokens that they wait for."""
        groups = Listing.of(looks.last.places, self.member.worker.options).groups
        if not groups:
            return math.inf
        [rows] = turn([send_token_wait])
        waits = (seconds for *names, seconds in rows if Group(*names) in groups)
        return time.monotonic() + min(waits, default=math.inf) + LEAST_PAUSE

    def answer(self, given: Sequence[GivenAttempt], *, retry_after: float | None = None) -> Reply:
        """Return the answer with these jobs."""
        worker = self.member.worker
        body: dict[str, Any] = {"assignments": [each.as_dict(worker) for each in given]}
        if retry_after is not None:
            body["retry_after"] = retry_after
        return Reply(200, body)


class Wait:
    """The waiting of one request, in a `with` block; *wake* ends a pause, from any thread."""

    def __init__(self, asked: Asked, wake: Callable[[], None]) -> None:
        self._asked = asked
        worker = asked.member.worker
        self._waiter = Waiter(worker.id, worker.queues, worker.paths, wake)
        self._until = time.monotonic() + asked.wait
        self._is_said = False
        # Seconds until it looks again: short at first, because an enqueue that began before the
        # flag was set notifies nobody.
        self._gap = POLL_SECONDS
        # When there will be enough tokens of rate limits for jobs that it could get.
        self._tokens_at = math.inf
        self._has_found = False

    def __enter__(self) -> Self:
        waiting.enter(self._waiter)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # If it found jobs it may have left some, and if it ends by an exception it may have been
        # woken for jobs that others are to get.
        passes_on = self._has_found or kind is not None or self._tokens_at < math.inf
        waiting.leave(self._waiter, passes_on=passes_on)

    def _say_listening(self) -> bool:
        """Let enqueues notify: what is known here may be older than what another process wrote."""
        return self._asked.newest().row.is_listening or self._asked.say_listening(listening=True)

    def look(self) -> list[GivenAttempt]:
        """Claim what there is by now."""
        was_said = self._is_said
        # The first heartbeat, which comes with the first claim, may hold the row: say it later.
        self._is_said = was_said or self._say_listening()
        was_woken = waiting.note_looked(self._waiter)
        since = time.monotonic()
        if was_said and not was_woken:
            since -= SHARED * min(self._gap, waiting.pause)
            self._gap *= 2
        given = self._asked.look(since)
        self._tokens_at = math.inf
        # One of each sort is enough to wait for tokens.
        if not given and waiting.is_first(self._waiter):
            self._tokens_at = self._asked.tokens_at()
            if self._tokens_at == math.inf:
                # They may have come between the claim and the question.
                given = self._asked.look(since)
        self._has_found = bool(given)
        return given

    def pause(self) -> float | None:
        """Return how long to wait at most for the next look; None: no longer."""
        now = time.monotonic()
        if now >= self._until or self._waiter.is_dismissed:
            return None
        due_in = min(self._until, looks.last.due_at, self._tokens_at) - now
        return max(LEAST_PAUSE, min(due_in, self._gap, waiting.pause))


def wait_in_thread(asked: Asked) -> list[GivenAttempt]:
    """Return jobs as soon as there are some, nothing if it takes too long."""
    event = threading.Event()
    with Wait(asked, event.set) as wait:
        while True:
            event.clear()
            given = wait.look()
            if given or (pause := wait.pause()) is None:
                return given
            event.wait(pause)


async def wait_in_loop(asked: Asked) -> list[GivenAttempt]:
    """Do the same on an event loop; its task may be cancelled, when the client vanishes."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def wake() -> None:
        # The loop may end before the listening thread.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    # Entered here and not in the thread, which goes on when this task is cancelled.
    with Wait(asked, wake) as wait:
        while True:
            event.clear()
            given = await in_thread(wait.look)
            if given or (pause := wait.pause()) is None:
                return given
            # Not `wait_for`, which ignores a cancel that comes as the event does.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await event.wait()
