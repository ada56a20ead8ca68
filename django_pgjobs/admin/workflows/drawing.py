"""How batches are drawn: their bars, and where they lead."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import search_address
from django_pgjobs.admin.pages import PageAdmin


class JobNumbers(Protocol):
    """Numbers of jobs, of a batch or of a whole tree."""

    @property
    def jobs(self) -> int: ...
    @property
    def successful(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def cancelled(self) -> int: ...


class BarPart(NamedTuple):
    """A piece of a bar that is a hundred wide, as SVG has it."""

    status: str
    x: str
    width: str


class ProgressBar(NamedTuple):
    """How far jobs are: its pieces, and the same in words."""

    parts: list[BarPart]
    label: str


class BatchJobLinks(NamedTuple):
    """Where the jobs of a batch are listed: all of them, and by how they ended."""

    all: str
    successful: str
    failed: str
    cancelled: str


def bar_of(numbers: JobNumbers) -> ProgressBar:
    """Return the bar of some numbers; what nobody can have counted is left out."""
    ended = {
        "successful": max(0, numbers.successful),
        "failed": max(0, numbers.failed),
        "cancelled": max(0, numbers.cancelled),
    }
    jobs = max(numbers.jobs, sum(ended.values()), 0)
    parts, x = [], 0.0
    for status, count in ended.items():
        if count:
            width = 100 * count / jobs
            parts.append(BarPart(status, f"{x:.2f}", f"{width:.2f}"))
            x += width
    numbered = ended | {"jobs": jobs, "unfinished": jobs - sum(ended.values())}
    values = {name: number_format(count, force_grouping=True) for name, count in numbered.items()}
    label = _(
        "%(jobs)s jobs: %(successful)s successful, %(failed)s failed, %(cancelled)s cancelled, "
        "%(unfinished)s unfinished"
    )
    return ProgressBar(parts, label % values)


def job_links(model_admin: PageAdmin, batch_id: int, *, of_tree: bool = False) -> BatchJobLinks:
    """Return where the jobs of a batch are listed, with *of_tree* of all below it as well."""
    term = "tree" if of_tree else "batch"
    listed = search_address(model_admin.url("pgjobs_job_changelist"), term, str(batch_id))
    tabs = (f"{listed}&tab={tab}" for tab in BatchJobLinks._fields[1:])
    return BatchJobLinks(listed, *tabs)
