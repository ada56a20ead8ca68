"""What the pruner does for batches: deletes old trees, and counts again what does not end.

A batch is counted by what is noted of its jobs, and of the batches around it. Plain SQL that
deletes or changes some of these notes nothing: then the batch would wait for ever for what is not
there. The leader looks for such batches once a minute.

A tree goes as a whole, when it has been complete for as long as a job that ended like it is kept.
Before that, `workflow_expiring` is sent.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import psycopg

from django_pgjobs.queries import batch_care, batches
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.signals import workflow_expiring
from django_pgjobs.values.words import counted
from django_pgjobs.worker.running.forks import leave_if_forked
from django_pgjobs.worker.running.housekeeping import close_connections, in_transaction_of_others
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.workflows.blocks import rows

logger = get_logger(__name__)

PAGE = 500
# Jobs of trees that one statement deletes.
JOB_PAGE = 2_000


class BatchCare:
    """Looks after batches, a page at a time."""

    def __init__(
        self,
        connection: OwnConnection,
        kept: TreeRetention,
        deleted: Counter[str],
        *,
        is_stopped: Callable[[], bool],
        code_of_project: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._connection = connection
        self._kept = kept
        self._deleted = deleted
        self._is_stopped = is_stopped
        self._code_of_project = code_of_project

    def tell(self) -> None:
        """Send `workflow_expiring` for trees to be deleted; a tree whose receiver raises stays.

        It is sent again in the next pass.
        """
        for roots in self._ended_trees(is_told=False):
            told = [root_id for root_id in roots if self._tell_of(root_id)]
            with self._connection.cursor() as cursor:
                batch_care.note_told(cursor, told)

    def _tell_of(self, root_id: int) -> bool:
        if not workflow_expiring.receivers:
            return True
        is_nested = bool(in_transaction_of_others())  # where somebody prunes by hand
        errors: list[BaseException]
        try:
            answers = self._send(rows().get(pk=root_id))
            errors = [answer for _, answer in answers if isinstance(answer, Exception)]
        except KeyboardInterrupt:  # of whoever prunes by hand
            raise
        except BaseException as trouble:  # a receiver may exit
            errors = [trouble]
        if not is_nested:
            close_connections()
        for error in errors:
            logger.log(
                logging.ERROR,
                "batch=%d is not deleted: its owner could not be told: %r",
                root_id,
                error,
                exc_info=error,
            )
        return not errors

    def _send(self, flow: Any) -> Any:
        process = os.getpid()
        try:
            with self._code_of_project():
                return workflow_expiring.send_robust(sender=type(flow), batch=flow)
        finally:
            leave_if_forked(process)

    def prune(self) -> None:
        """Delete the trees that were announced, with their jobs."""
        for roots in self._ended_trees(is_told=True):
            self._delete(roots)

    def _delete(self, roots: list[int]) -> None:
        """Delete jobs until there are none, then batches, from those below to the roots."""
        gone = 0
        with self._connection.transaction(), self._connection.cursor() as cursor:
            roots = batch_care.begin_deletion(cursor, roots)
        while roots and not self._is_stopped():
            with self._connection.cursor() as cursor:
                jobs = batch_care.delete_tree_jobs(cursor, roots, max_jobs=JOB_PAGE)
            self._deleted.update(jobs)
            if jobs:
                continue
            with self._connection.cursor() as cursor:
                page = batch_care.delete_batches(cursor, roots, max_batches=JOB_PAGE)
            if not page:
                break
            gone += sum(page)
        if gone:
            logger.info("pruned %s", counted(gone, "workflow"))
            self._deleted["workflows"] += gone

    def _ended_trees(self, *, is_told: bool) -> Iterator[list[int]]:
        behind: int | None = 0
        while behind is not None and not self._is_stopped():
            with self._connection.cursor() as cursor:
                roots = batch_care.list_ended_trees(
                    cursor, self._kept, is_told=is_told, behind=behind, max_trees=PAGE
                )
            if roots:
                yield roots
            behind = roots[-1] if len(roots) == PAGE else None

    def recount(self) -> None:
        """Correct the numbers of batches that wait for what is not there."""
        behind: int | None = 0
        while behind is not None and not self._is_stopped():
            with self._connection.cursor() as cursor:
                page = batch_care.list_open(cursor, behind=behind, max_batches=PAGE)
            for batch_id in (batch_id for batch_id, is_broken in page if is_broken):
                self._mend(batch_id)
            if page:
                with self._connection.cursor() as cursor:
                    wrong = batch_care.recount(cursor, [batch_id for batch_id, _ in page])
                if wrong:
                    self._tell_wrong(wrong)
            behind = page[-1][0] if len(page) == PAGE else None

    def _mend(self, batch_id: int) -> None:
        """Count a broken batch; if that raises again it stays so."""
        sends = [
            partial(batch_care.send_mending, batch_id=batch_id),
            partial(batches.send_settlement, ids=[batch_id], levels=1),
        ]
        try:
            self._connection.round_trip(sends)
        except psycopg.Error as error:
            if trouble_of(error) is not Trouble.REFUSED:
                raise
        else:
            logger.log(logging.INFO, "batch=%d is counted again", batch_id)

    def _tell_wrong(self, wrong: list[int]) -> None:
        for batch_id in wrong:
            logger.warning(
                "batch=%d had other numbers than there are jobs and batches: somebody has deleted "
                "or changed some by SQL; it was counted again",
                batch_id,
            )
        with self._connection.cursor() as cursor:
            batches.settle(cursor, wrong)
