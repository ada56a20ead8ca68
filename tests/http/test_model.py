"""Workers over HTTP against a model: whatever they do, each job ends once, by who has it.

Two workers claim, lose answers, finish, fail, release, say things twice and late, and fall silent,
in an order that a seed decides. After each step the rows are what the model says.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.http.looking import looks
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote, body_of

STEPS = 60
SHOPS = 3
Given = dict[str, Any]


class World:
    """The jobs as the model has them, and the workers."""

    def __init__(self, api: Api, seed: int) -> None:
        self.api = api
        self.random = random.Random(seed)
        self.workers = [Remote(api, f"node-{number}") for number in range(2)]
        # What each job is to be given as, by id; its key; what runs, what is over, what was lost.
        self.ready: dict[int, int] = {}
        self.keys: dict[int, str] = {}
        self.held: dict[str, tuple[Remote, Given]] = {}
        self.unheard: dict[str, tuple[Remote, Given]] = {}
        self.over: list[Given] = []
        self.done: list[int] = []

    # Steps

    def enqueue(self) -> None:
        priority = self.random.choice((0, 0, 5))
        if self.random.random() < 0.5:
            job_id = int(tasks.resize.using(priority=priority).enqueue(1).id)
        else:
            shop = self.random.randrange(SHOPS)
            job_id = int(tasks.bill.enqueue(shop).id)
            self.keys[job_id] = f"shop:{shop}"
            priority = 0
        self.ready[job_id] = priority

    def claim(self) -> None:
        worker = self.random.choice(self.workers)
        wanted = self.random.choice((1, 1, 2, 5))
        mine = [name for name, (owner, _) in self.held.items() if owner is worker]
        missed = {name for name, (owner, _) in self.unheard.items() if owner is worker}
        # What one goes by may be a second old.
        looks.begin_anew()
        given = worker.claim(wanted, held=mine)
        names = {each["assignment"] for each in given}
        if missed:
            assert names <= missed, "what was lost is given first"
            assert len(names) == min(wanted, len(missed))
            if self.random.random() < 0.3:
                return  # this answer is lost, too
            for each in given:
                del self.unheard[each["assignment"]]
                self.held[each["assignment"]] = (worker, each)
            return
        may_start = self.startable()
        assert {int(each["job"]) for each in given} <= may_start
        assert len(given) == min(wanted, len(may_start))
        plain = [self.ready[int(g["job"])] for g in given if int(g["job"]) not in self.keys]
        assert plain == sorted(plain, reverse=True)
        hears = self.random.random() > 0.2
        for each in given:
            del self.ready[int(each["job"])]
            (self.held if hears else self.unheard)[each["assignment"]] = (worker, each)

    def startable(self) -> set[int]:
        """Return the jobs that may start: of each key the oldest, if none of it runs."""
        running = {self.keys.get(int(g["job"])) for _, g in self.everything()}
        first: dict[str, int] = {}
        for job_id in sorted(self.ready):
            if (key := self.keys.get(job_id)) is not None and key not in running:
                first.setdefault(key, job_id)
        return {job for job in self.ready if job not in self.keys} | set(first.values())

    def everything(self) -> list[tuple[Remote, Given]]:
        return [*self.held.values(), *self.unheard.values()]

    def report(self) -> None:
        if not self.held:
            return
        name = self.random.choice(sorted(self.held))
        worker, given = self.held.pop(name)
        job_id = int(given["job"])
        self.over.append(given)
        what = self.random.choice(("result", "result", "release", "failure"))
        body = {"error": {"type": "E"}, "retry_after": 0} if what == "failure" else {}
        said = body_of(worker.say(given, what, body))["status"]
        assert said == {"result": "stored", "release": "released", "failure": "retry"}[what]
        if what == "result":
            self.done.append(job_id)
        else:
            self.ready[job_id] = given["priority"]

    def repeat(self) -> None:
        """Say something of what is over; it changes nothing."""
        if self.over:
            given = self.random.choice(self.over)
            results = [{"assignment": given["assignment"], "result": "late"}]
            body = body_of(self.api.post("results", {"results": results}))
            assert body["results"][0]["status"] == "lost"

    def fall_silent(self) -> None:
        """Let time pass in which a worker names some of what it has."""
        worker = self.random.choice(self.workers)
        mine = [n for n, (o, _) in {**self.held, **self.unheard}.items() if o is worker]
        named = [name for name in mine if name in self.held and self.random.random() < 0.7]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgjobs_job_live SET last_attempted_at = now() - interval '200 s'"
                " WHERE status = 'running' AND worker_id = %s",
                [worker.id],
            )
            cursor.execute("UPDATE pgjobs_worker SET named_at = NULL WHERE id = %s", [worker.id])
        body = body_of(worker.post("heartbeat", {"assignments": named}))
        # Those that ran too long are ended, not lost.
        late = {each["assignment"] for each in body["cancel"]}
        for name in mine:
            given = {**self.held, **self.unheard}[name][1]
            if name in named and name not in late:
                continue
            self.held.pop(name, None)
            self.unheard.pop(name, None)
            self.over.append(given)
            self.ready[int(given["job"])] = given["priority"]
        with connection.cursor() as cursor:
            # What is to wait for its retry does not.
            cursor.execute("UPDATE pgjobs_job_live SET due_at = NULL WHERE status = 'ready'")

    def check(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, status FROM pgjobs_job")
            found = dict(cursor.fetchall())
        expected = dict.fromkeys(self.ready, "ready") | dict.fromkeys(self.done, "successful")
        expected |= {int(g["job"]): "running" for _, g in self.everything()}
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_each_job_ends_once_whatever_happens(api: Api, seed: int) -> None:
    world = World(api, seed)
    steps = [world.enqueue] * 4 + [world.claim] * 4 + [world.report] * 3
    steps += [world.repeat, world.fall_silent]
    for _ in range(STEPS):
        world.random.choice(steps)()
        world.check()
    while world.ready or world.held or world.unheard:
        world.claim()
        world.report()
        world.check()
    assert len(world.done) == len(set(world.done))
