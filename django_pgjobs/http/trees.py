"""Trees of batches as bodies describe them: read as a whole, then opened in one transaction.

    {"name": "payroll",
     "jobs": [{"task": "shop.tasks.calculate", "args": [7]}],
     "parts": [{"name": "bonuses", "jobs": [...], "label": "bonuses"}],
     "followers": [{"each": {"task": "shop.tasks.pay"}, "label": "paid", "followers": [...]}],
     "joins": [{"of": ["bonuses", "paid"], "then": {"task": "shop.tasks.report"}}],
     "callbacks": [{"on": "complete", "url": "https://example.com/hook"}]}

What follows is opened before any job is added, so nothing misses a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from django_pgjobs.declaring.calls import Call
from django_pgjobs.http.access import Access
from django_pgjobs.http.calls import (
    MAX_METADATA,
    CallAtEnd,
    NewJob,
    blamed_on,
    read_callbacks,
    read_job,
    read_step,
)
from django_pgjobs.http.fields import Fields
from django_pgjobs.models import Batch
from django_pgjobs.status import OnFailedJob
from django_pgjobs.values.bounds import MAX_BATCH_NAME_BYTES
from django_pgjobs.workflows.following import AfterFailureOfStep, Join

MAX_JOBS = 1_000
MAX_BATCHES = 100
MAX_LABEL = 100
# The ways to follow, and whether a result, or a list of them, comes before a call's own arguments.
WAYS = {"each": True, "each_item": True, "gather": True, "then": False}
STREAMING = ("each", "each_item")


@dataclass
class Node:
    """A batch that is to be opened; its mistakes belong to *fields*."""

    fields: Fields
    label: str | None
    followers: list[Follower] = field(default_factory=list)
    callbacks: list[CallAtEnd] = field(default_factory=list)


@dataclass
class TreePart(Node):
    """One that jobs are added to."""

    name: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    is_sealed: bool = True
    jobs: list[NewJob] = field(default_factory=list)
    parts: list[TreePart] = field(default_factory=list)
    joins: list[Follower] = field(default_factory=list)


@dataclass
class Follower(Node):
    """One whose jobs are made of what those before it come to; *of* are the labels of a join."""

    way: str = ""
    call: Call | None = None
    options: dict[str, Any] = field(default_factory=dict)
    of: list[str] = field(default_factory=list)


class TreeReader:
    """Reads one body; it knows how much there is in all, and which labels."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._labels: set[str] = set()
        self._joined: list[tuple[Fields, list[str]]] = []
        self._jobs = 0
        self._batches = 0

    def read(self, fields: Fields) -> TreePart:
        """Return the tree; what is wrong with it is noted in its fields."""
        root = self._read_part(fields)
        if self._jobs > MAX_JOBS:
            fields.refuse_all(f"expected at most {MAX_JOBS} jobs; add more to the open batch")
        if self._batches > MAX_BATCHES:
            fields.refuse_all(f"expected at most {MAX_BATCHES} batches")
        for join, labels in self._joined:
            for label in labels:
                if label not in self._labels:
                    join.refuse("of", f"there is no batch with the label {label!r:.100}")
        return root

    def _read_part(self, fields: Fields) -> TreePart:
        part = TreePart(fields, self._read_label(fields))
        part.name = fields.text("name", default="", min_length=0, max_length=MAX_BATCH_NAME_BYTES)
        part.options = {
            "metadata": fields.mapping("metadata", default=None, max_items=MAX_METADATA),
            "on_failed_job": _policy(fields),
        }
        part.is_sealed = fields.flag("seal", default=True)
        given = fields.objects("jobs", default=[], max_items=MAX_JOBS)
        self._jobs += len(given)
        part.jobs = list(filter(None, (read_job(each, self._access) for each in given)))
        part.parts = [self._read_part(each) for each in _several(fields, "parts")]
        part.joins = [self._read_join(each) for each in _several(fields, "joins")]
        self._read_ends(part)
        return part

    def _read_join(self, fields: Fields) -> Follower:
        labels = fields.texts("of", max_items=MAX_BATCHES, max_length=MAX_LABEL)
        self._joined.append((fields, labels))
        found = self._read_follower(fields, count=len(labels))
        found.of = labels
        return found

    def _read_follower(self, fields: Fields, *, count: int = 1) -> Follower:
        found = Follower(fields, self._read_label(fields))
        for way, has_results in WAYS.items():
            given = fields.object(way, default=None)
            if given is None:
                continue
            if found.way:
                fields.refuse_all(f"expected one of {', '.join(WAYS)}")
            leading = (count if way == "gather" else 1) if has_results else 0
            found.way, found.call = way, read_step(given, self._access, leading=leading)
        if not found.way:
            fields.refuse_all(f"expected one of {', '.join(WAYS)}")
        found.options = _options_of(fields, found.way)
        self._read_ends(found)
        return found

    def _read_ends(self, node: Node) -> None:
        node.followers = [self._read_follower(each) for each in _several(node.fields, "followers")]
        node.callbacks = read_callbacks(node.fields, self._access)

    def _read_label(self, fields: Fields) -> str | None:
        self._batches += 1
        label = fields.text("label", default=None, max_length=MAX_LABEL)
        if label in self._labels:
            fields.refuse("label", "another batch of this tree has it")
        if label is not None:
            self._labels.add(label)
        return label


def _several(fields: Fields, name: str) -> list[Fields]:
    return fields.objects(name, default=[], max_items=MAX_BATCHES)


def _policy(fields: Fields) -> str | None:
    return fields.text("on_failed_job", default=None, max_length=20, choices=OnFailedJob.values)


def _options_of(fields: Fields, way: str) -> dict[str, Any]:
    """Return the options of a follower; note those that its way does not have."""
    streaming: Mapping[str, Any] = {
        "skip_none": fields.flag("skip_none", default=None),
        "on_failed_job": _policy(fields),
    }
    whole: Mapping[str, Any] = {
        "after_failure": fields.text(
            "after_failure", default=None, max_length=10, choices=get_args(AfterFailureOfStep)
        )
    }
    has, lacks = (streaming, whole) if way in STREAMING else (whole, streaming)
    for name, value in lacks.items():
        if value is not None and way:
            fields.refuse(name, f"{way} does not have it")
    return {name: value for name, value in has.items() if value is not None}


class TreeOpener:
    """Opens what was read, inside the block of the workflow at its root."""

    def __init__(self) -> None:
        self.batches: dict[str, Batch] = {}
        self._opened: list[tuple[TreePart, Batch]] = []

    def fill(self, root: TreePart, flow: Batch) -> None:
        """Open all below *flow*, then add the jobs, then seal the parts, the lowest first."""
        self._open(root, flow)
        self._join_all(root, [(join, batch) for part, batch in self._opened for join in part.joins])
        for part, batch in self._opened:
            add_jobs(batch, part.jobs)
        for part, batch in reversed(self._opened[1:]):
            if part.is_sealed:
                batch.seal()

    def _open(self, part: TreePart, batch: Batch) -> None:
        self._opened.append((part, batch))
        self._note(part, batch)
        for each in part.parts:
            with blamed_on(each.fields):
                made = batch.batch(each.name, **each.options)
            self._open(each, made)
        self._open_followers(part, batch)

    def _open_followers(self, node: Node, batch: Batch) -> None:
        for each in node.followers:
            self._follow(each, batch)

    def _join_all(self, root: TreePart, joins: Sequence[tuple[Follower, Batch]]) -> None:
        """Open each join once what it joins is open, in whatever order they are written."""
        while joins:
            later = []
            for join, owner in joins:
                if self.batches.keys() >= set(join.of):
                    self._join(join, owner)
                else:
                    later.append((join, owner))
            if len(later) == len(joins):
                for join, _ in later:
                    join.fields.refuse("of", "what it names waits for joins that wait for it")
                root.fields.check()
            joins = later

    def _join(self, join: Follower, owner: Batch) -> None:
        with blamed_on(join.fields):
            joined = owner.join(*(self.batches[label] for label in join.of))
        self._follow(join, joined)

    def _follow(self, follower: Follower, followed: Batch | Join[Batch]) -> None:
        with blamed_on(follower.fields):
            made = getattr(followed, follower.way)(follower.call, **follower.options)
        self._note(follower, made)
        self._open_followers(follower, made)

    def _note(self, node: Node, batch: Batch) -> None:
        if node.label is not None:
            self.batches[node.label] = batch
        for told in node.callbacks:
            with blamed_on(told.fields):
                getattr(batch, f"on_{told.on}")(told.call)


def add_jobs(batch: Batch, jobs: Sequence[NewJob], **options: Any) -> list[str]:
    """Add jobs to a batch; return their ids in order."""
    ids: list[str] = []
    if jobs:
        with blamed_on(jobs[0].fields):
            ids = batch.add(*(job.call for job in jobs), **options)
    return ids
