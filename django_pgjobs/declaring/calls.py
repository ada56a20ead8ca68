"""A task with arguments, which is not enqueued yet: `task.s(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.option_names import CallNames


@dataclass(frozen=True, slots=True)
class Call(CallNames):
    """What a batch is given: a task, with its options, and arguments.

    Whether these are complete depends on where it is placed: a call that follows results gets each
    as its first argument.
    """

    task: AnyTask
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __repr__(self) -> str:
        """Name the task; arguments may be long, or secret."""
        return f"{self.task.name}.s(...)"
