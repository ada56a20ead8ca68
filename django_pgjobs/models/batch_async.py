"""What a batch does in async code: its methods, each in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import timedelta
from itertools import islice
from typing import Any, Unpack

from asgiref.sync import sync_to_async

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.calls import Call
from django_pgjobs.enqueueing.columns import Item
from django_pgjobs.workflows import reading
from django_pgjobs.workflows.blocks import B
from django_pgjobs.workflows.explaining import BatchExplanation
from django_pgjobs.workflows.inserting import OnceOptions
from django_pgjobs.workflows.reading import Counts


class AsyncBatch:
    """The async twins of the methods of `Batch`, with the same arguments and exceptions."""

    def _in_thread(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return sync_to_async(getattr(self, name), thread_sensitive=True)

    async def aadd(self, *calls: Call, **once: Unpack[OnceOptions]) -> list[str]:
        """See `Batch.add`."""
        ids: list[str] = await self._in_thread("add")(*calls, **once)
        return ids

    async def aadd_many(
        self, task: AnyTask, arguments: Iterable[Item], **once: Unpack[OnceOptions]
    ) -> list[str]:
        """See `Batch.add_many`."""
        ids: list[str] = await self._in_thread("add_many")(task, arguments, **once)
        return ids

    async def aseal(self) -> None:
        """See `Batch.seal`."""
        await self._in_thread("seal")()

    async def acounts(self, *, tree: bool = False) -> Counts:
        """See `Batch.counts`."""
        counts: Counts = await self._in_thread("counts")(tree=tree)
        return counts

    async def aresults(self) -> AsyncIterator[Any]:
        """See `Batch.results`."""
        results = await self._in_thread("results")()
        read = sync_to_async(lambda: list(islice(results, reading.PAGE)), thread_sensitive=True)
        while page := await read():
            for result in page:
                yield result

    async def aexplain(self) -> BatchExplanation:
        """See `Batch.explain`."""
        explanation: BatchExplanation = await self._in_thread("explain")()
        return explanation

    async def aretry(self, *, cancelled: bool = False) -> int:
        """See `Batch.retry`."""
        count: int = await self._in_thread("retry")(cancelled=cancelled)
        return count

    async def acancel(self) -> bool:
        """See `Batch.cancel`."""
        is_news: bool = await self._in_thread("cancel")()
        return is_news

    async def async_wait(self: B, timeout: float | timedelta | None = None) -> B:
        """See `Batch.wait`."""
        return await reading.async_wait(self, timeout)
