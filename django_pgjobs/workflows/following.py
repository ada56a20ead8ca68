"""What follows batches: jobs made of their results, or of their end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Generic, Literal, get_args

from django_pgjobs.declaring.calls import Call
from django_pgjobs.status import Follows
from django_pgjobs.values.given import flag
from django_pgjobs.workflows.adding import columns_of_batch, open_below
from django_pgjobs.workflows.blocks import B, Policy, batch_model, id_of, is_in_block
from django_pgjobs.workflows.steps import make_step, name_of, refuse_keys_of_arguments

AfterFailureOfStep = Literal["cancel", "run"]


def runs(after_failure: str) -> bool:
    """Is a step to run though something before it has failed?"""
    if after_failure not in get_args(AfterFailureOfStep):
        raise ValueError(f"expected after_failure to be 'cancel' or 'run', got {after_failure!r}.")
    return after_failure == "run"


def open_follower(
    owner: B,
    waits_for: Sequence[B],
    follows: Follows,
    call: Call,
    *,
    skips_none: bool = False,
    runs_after_failure: bool = False,
    on_failed_job: str | None = None,
) -> B:
    """Open a batch below *owner* whose jobs are made of what the batches *waits_for* come to.

    Raise RuntimeError if some of their results may be there already and would be missed,
    BatchSealed if one of them is sealed, and ValueError if one neither belongs to the owner's flow
    nor is right below the owner.
    """
    flag(skips_none, name="skip_none")
    streams = follows in (Follows.EACH, Follows.EACH_ITEM)
    if streams and not all(is_in_block(batch) for batch in waits_for):
        raise RuntimeError(
            "expected each() and each_item() in the block that opens the batch, before its jobs "
            "can run: later they would miss results."
        )
    leading = {Follows.COMPLETION: 0, Follows.GATHER: len(waits_for)}.get(follows, 1)
    row = columns_of_batch(name=name_of(call), metadata=None, on_failed_job=on_failed_job)
    row["follows"] = follows.value
    row["step"] = json.dumps(make_step(call, leading=leading))
    if follows is Follows.GATHER:
        refuse_keys_of_arguments(call.task, leading)
    row["skips_none"], row["runs_after_failure"] = skips_none, runs_after_failure
    made, _ = open_below(owner, row, waits_for=[id_of(batch) for batch in waits_for])
    made.block = owner.block
    return made


class Followed(Generic[B]):
    """What jobs can follow: a batch, or several of them together."""

    def each(
        self, call: Call, *, skip_none: bool = False, on_failed_job: Policy | None = None
    ) -> B:
        """Run a call for each result, which is its first argument, as soon as it is there.

        Return the batch of these jobs. With *skip_none* a result of None makes no job.
        """
        return self._open_follower(
            Follows.EACH, call, skips_none=skip_none, on_failed_job=on_failed_job
        )

    def each_item(
        self, call: Call, *, skip_none: bool = False, on_failed_job: Policy | None = None
    ) -> B:
        """Run a call for each element of each result that is a list, and for any other result.

        None makes no job, with *skip_none* neither where it is an element.
        """
        return self._open_follower(
            Follows.EACH_ITEM, call, skips_none=skip_none, on_failed_job=on_failed_job
        )

    def gather(self, call: Call, *, after_failure: AfterFailureOfStep = "cancel") -> B:
        """Run one call when all is complete, with the list of all results as first argument.

        Of several batches: with a list for each of them, in the order given. It is not run if
        anything has failed or was cancelled, unless *after_failure* is "run".
        """
        return self._open_follower(Follows.GATHER, call, runs_after_failure=runs(after_failure))

    def then(self, call: Call, *, after_failure: AfterFailureOfStep = "cancel") -> B:
        """Run one call when all is complete, with its own arguments only.

        It is not run if anything has failed or was cancelled, unless *after_failure* is "run".
        """
        return self._open_follower(Follows.COMPLETION, call, runs_after_failure=runs(after_failure))

    def _open_follower(self, follows: Follows, call: Call, **options: Any) -> B:
        owner, waits_for = self._owner_and_followed()
        return open_follower(owner, waits_for, follows, call, **options)

    def _owner_and_followed(self) -> tuple[B, Sequence[B]]:
        """Return the batch below which a follower is opened, and the batches that it follows."""
        raise NotImplementedError


class Join(Followed[B]):
    """Several batches that something follows together."""

    def __init__(self, owner: B, batches: Sequence[B]) -> None:
        if not batches:
            raise ValueError("join() expected at least one batch, got none.")
        for each in batches:
            if not isinstance(each, batch_model()):
                raise TypeError(f"join() expected batches, got {each!r:.80}.")
        if len({batch.pk for batch in batches}) < len(batches):
            raise ValueError("join() expected each batch once, got one of them twice.")
        self._owner = owner
        self._batches = batches

    def _owner_and_followed(self) -> tuple[B, Sequence[B]]:
        return self._owner, self._batches
