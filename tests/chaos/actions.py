"""What the clients do: every way of enqueueing, in transactions that commit or do not."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, InterfaceError, connection, transaction

from django_pgjobs import JobError
from django_pgjobs.models import Batch
from tests.chaos import tasks, trees
from tests.chaos.dirt import OddRow, odd_rows
from tests.chaos.journal import DIRTY, ENQUEUED, ROLLED_BACK, UNSURE, Journal
from tests.worker import dirt, nasty

OUTAGE = (DatabaseError, InterfaceError)
ROLLBACK_SHARE = 0.1

_numbers = itertools.count(1)
_dirt = itertools.count(1)


class RolledBack(Exception):
    """Raised to end a transaction without a commit."""


class Client:
    """One thread that enqueues on a connection of its own."""

    def __init__(self, journal: Journal, seed: str, families: Collection[str]) -> None:
        self.journal = journal
        self.random = random.Random(seed)
        self.actions = dict(ACTIONS)
        self._odd_rows: list[OddRow] = []
        for action, family in ACTIONS_OF_FAMILIES.items():
            if family in families:
                self.actions[action] = 6

    def run(self, is_over: threading.Event, is_full: Callable[[], bool]) -> None:
        """Enqueue until it is over; while there is a lot to do already, wait."""
        while not is_over.wait(self.random.uniform(0.0, 0.1)):
            if not is_full():
                choices, weights = zip(*self.actions.items(), strict=True)
                [action] = self.random.choices(choices, weights)
                action(self)
        connection.close()

    def token(self) -> str:
        """Return a name that nothing else has."""
        return f"t{next(_numbers)}"

    def commit(self, tokens: Iterable[str], write: Callable[[], Iterable[Any]], **facts: Any):
        """Call *write* in a transaction, and note what became of it and the ids it returned."""
        names = list(tokens)
        try:
            with transaction.atomic():
                ids = [int(getattr(job, "id", job)) for job in write()]
                if self.random.random() < ROLLBACK_SHARE:
                    raise RolledBack
        except RolledBack:
            self.journal.write(ROLLED_BACK, tokens=names)
        except JobError:
            self.journal.write(ROLLED_BACK, tokens=names)
        except OUTAGE:
            self.journal.write(UNSURE, tokens=names)
            connection.close()
        else:
            self.journal.write(ENQUEUED, tokens=names, ids=ids, **facts)
            return ids
        return []

    def seconds(self) -> float:
        """Return how long a job takes: mostly nothing, sometimes a second."""
        return round(self.random.choice((0.0, 0.0, 0.01, 0.1, 1.0)) * self.random.random(), 3)

    def key(self) -> str:
        """Return one of a few keys, so that jobs meet."""
        return self.random.choice("abcd")

    def enqueue_one(self) -> None:
        """Enqueue a plain, async, atomic or failing job."""
        task = self.random.choice(
            [tasks.work, tasks.work_async, tasks.record, tasks.squeeze]
        ).using(
            priority=self.random.choice((-5, 0, 0, 0, 5)),
            queue_name=self.random.choice((None, None, None, "other")),
        )
        token = self.token()
        self.commit([token], lambda: [task.enqueue(token, self.seconds())])

    def enqueue_badly(self) -> None:
        """Enqueue a job that fails, retries, snoozes or takes too long."""
        kinds = [tasks.stumble, tasks.stumble, tasks.record_and_fail, tasks.dawdle]
        task = self.random.choice(kinds)
        token = self.token()
        self.commit([token], lambda: [task.enqueue(token)])

    def enqueue_many(self) -> None:
        """Enqueue many at once."""
        tokens = [self.token() for _ in range(self.random.randint(2, 30))]
        task = self.random.choice([tasks.work, tasks.work_async, tasks.record])
        self.commit(tokens, lambda: task.enqueue_many((token, 0.01) for token in tokens))

    def enqueue_keyed(self) -> None:
        """Enqueue some jobs that may not run side by side, or not too many of them."""
        key = self.key()
        tokens = [self.token() for _ in range(self.random.randint(1, 6))]
        mishap = self.random.choice((0.0, 0.0, 0.3))
        task, more = self.random.choice(
            [
                (tasks.in_order, (key, 0.02, mishap)),
                (tasks.in_order, (key, 0.0, mishap)),
                (tasks.beside, (key, self.seconds())),
                (tasks.passing, (key, mishap)),
            ]
        )
        self.commit(tokens, lambda: [task.enqueue(token, *more) for token in tokens])

    def enqueue_rated(self) -> None:
        """Enqueue jobs of a rate limit."""
        key = self.key()
        tokens = [self.token() for _ in range(self.random.randint(1, 5))]
        self.commit(tokens, lambda: [tasks.rated.enqueue(token, key) for token in tokens])

    def enqueue_unique(self) -> None:
        """Enqueue a job that may meet one with its key."""
        token, key = self.token(), self.key()
        task = self.random.choice([tasks.once, tasks.strictly_once, tasks.latest])
        self.commit([token], lambda: [task.enqueue(token, key)])

    def enqueue_merged(self) -> None:
        """Enqueue a change that a waiting job may take in."""
        token, key = self.token(), self.key()
        later = tasks.gather.using(run_after=timedelta(seconds=self.random.random()))
        self.commit([token], lambda: [later.enqueue(tokens=[token], key=key)], what="gather")

    def enqueue_later(self) -> None:
        """Enqueue a job for some seconds from now."""
        token = self.token()
        task = self.random.choice([tasks.work, tasks.work_async])
        later = task.using(run_after=timedelta(seconds=self.random.uniform(0, 10)))
        self.commit([token], lambda: [later.enqueue(token)])

    def enqueue_dependents(self) -> None:
        """Enqueue a job that waits for others, in one transaction or in two."""
        first, second = self.token(), self.token()
        kind = self.random.choice([tasks.work, tasks.stumble])
        policy = self.random.choice(("cancel", "run", "hold"))
        before = self.commit([first], lambda: [kind.enqueue(first) for _ in range(2)])
        if before:
            dependent = tasks.work.using(after=before, after_failure=policy)
            self.commit([second], lambda: [dependent.enqueue(second)], after=before, what=policy)

    def enqueue_nasty(self) -> None:
        """Enqueue a job that ends, answers or leaves its connection as nobody should."""
        task, names = self.random.choice(NASTY)
        name = self.random.choice(list(names))
        self.commit([self.token()], lambda: [task.enqueue(name)])

    def insert_by_sql(self) -> None:
        """Enqueue as a program does that knows nothing but the table."""
        token = self.token()
        self.commit([token], lambda: self.insert({}, token))

    def insert_odd_row(self) -> None:
        """Insert a row with an odd value, or let the database refuse it."""
        row = self._next_odd_row()
        what = json.dumps(row.columns)[:300]
        try:
            with transaction.atomic():
                ids = self.insert(row.columns, f"dirt{next(_dirt)}")
        except OUTAGE:
            connection.close()
        else:
            self.journal.write(DIRTY, ids=ids, what=what, may_wait=row.may_wait)

    def _next_odd_row(self) -> OddRow:
        """Return one after the other, in an order of the client's own."""
        if not self._odd_rows:
            self._odd_rows = odd_rows()
            self.random.shuffle(self._odd_rows)
        return self._odd_rows.pop()

    def insert(self, columns: dict[str, str], token: str) -> list[int]:
        """Insert a row whose columns are given as SQL; return its id."""
        usual = {"task_path": f"'{tasks.work.module_path}'", "args": f"'[\"{token}\"]'"}
        given = usual | columns
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO pgjobs_job ({', '.join(given)}) VALUES ({', '.join(given.values())})"
                " RETURNING id"
            )
            return [row[0] for row in cursor.fetchall()]

    def enqueue_elsewhere(self) -> None:
        """Enqueue jobs for workers over HTTP, some of keys that jobs of our own have, too."""
        mishap = self.random.choice((0.0, 0.0, 0.3))
        seconds = self.seconds()
        task, more = self.random.choice(
            [
                (tasks.elsewhere, (seconds, mishap)),
                (tasks.elsewhere, (0.0, mishap)),
                (tasks.elsewhere_in_order, (0.02, mishap, self.key())),
                (tasks.elsewhere_beside, (seconds, mishap, self.key())),
            ]
        )
        tokens = [self.token() for _ in range(self.random.randint(1, 6))]
        self.commit(tokens, lambda: [task.enqueue(token, *more) for token in tokens])

    def open_tree(self) -> None:
        """Open a workflow, fill it, and seal it."""
        token = self.token()
        self.commit([token], lambda: trees.open_tree(self.random, token, seal=True)[1])

    def fill_tree(self) -> None:
        """Open a workflow, and add to it and seal it in transactions of their own."""
        token = self.token()
        opened: list[Batch] = []

        def begin() -> list[str]:
            root, ids = trees.open_tree(self.random, token, seal=False)
            opened.append(root)
            return ids

        if self.commit([token], begin):
            more = self.token()
            self.commit([more], lambda: trees.add_jobs(self.random, opened[0], more))
            # Where that does not come through, `operator` does it in the end.
            self.commit([self.token()], lambda: opened[0].seal() or [])

    def linger(self) -> None:
        """Enqueue a job that only its cancellation ends; `operator` cancels it."""
        token = self.token()
        task = self.random.choice([tasks.linger, tasks.linger_async])
        self.commit([token], lambda: [task.enqueue(token)])


ACTIONS: dict[Callable[[Client], None], int] = {
    Client.enqueue_one: 8,
    Client.enqueue_badly: 3,
    Client.enqueue_many: 3,
    Client.enqueue_keyed: 6,
    Client.enqueue_rated: 3,
    Client.enqueue_unique: 3,
    Client.enqueue_merged: 3,
    Client.enqueue_later: 2,
    Client.enqueue_dependents: 3,
    Client.insert_by_sql: 1,
    Client.open_tree: 3,
    Client.fill_tree: 2,
    Client.linger: 1,
}

ACTIONS_OF_FAMILIES = {
    Client.insert_odd_row: "rows",
    Client.enqueue_nasty: "tasks",
    Client.enqueue_elsewhere: "remote",
}
NASTY = [
    (nasty.end_with, nasty.ERRORS),
    (nasty.end_with_async, nasty.ERRORS),
    (nasty.give, nasty.RESULTS),
    (nasty.give_async, nasty.RESULTS),
    (dirt.leave, dirt.DIRT),
    (dirt.leave_async, dirt.DIRT),
]
