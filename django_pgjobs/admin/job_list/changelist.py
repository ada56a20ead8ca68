"""The list of jobs: which rows, how far it looks for them, and the links to more.

What no index finds is looked for among the next 50,000 jobs of the tab; the page then says how
far it looked, and leads on from there. So each page is quick, however many jobs there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, SEARCH_VAR, ChangeList
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import OLDEST, SORT
from django_pgjobs.admin.job_list.batches import AskedBatches
from django_pgjobs.admin.job_list.columns import find_pauses, with_columns
from django_pgjobs.admin.job_list.filters import JobFilter, TextFilter
from django_pgjobs.admin.job_list.links import (
    AFTER,
    BEFORE,
    COUNT_AFTER,
    PAGE_SIZE,
    PAGE_SIZES,
    TAB,
    ListLinks,
    Rows,
)
from django_pgjobs.admin.job_list.paging import LAST_ID, Order, PageStart
from django_pgjobs.admin.job_list.search import Condition, Reach, parse_search
from django_pgjobs.admin.job_list.suggestions import list_names
from django_pgjobs.admin.job_list.tabs import (
    TABS,
    Count,
    Tab,
    count_tabs,
    draw_count,
    exceeds_index,
    find_tab,
)
from django_pgjobs.bulk.lookups import InvalidLookup, conditions, names_masked
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, is_narrowed, may, narrow
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.job_list import find_job_at
from django_pgjobs.status import UNFINISHED, JobStatus
from django_pgjobs.values.moments import now_aware

# How many jobs of a tab one page looks through, by the cost of its conditions; and of those
# whose status is rare, because then almost each is on another page of the table.
LOOK_THROUGH = {Reach.PLAIN: 50_000, Reach.SLOW: 20_000}
LOOK_THROUGH_RARE = {Reach.PLAIN: 10_000, Reach.SLOW: 10_000}
# Seconds that the numbers on the tabs may take where the project narrows what is seen.
COUNT_SECONDS = 0.5
# New jobs that are counted while one reads.
MAX_NEW = 100
RARE = (JobStatus.FAILED, JobStatus.CANCELLED)
# So far apart may the times of two jobs be that come in the other order by id.
OUT_OF_ORDER = timedelta(minutes=10)


class Refused(Exception):
    """What the list shows cannot be changed as a whole; the text says why."""


class TabLink(NamedTuple):
    """A tab as it is drawn."""

    tab: Tab
    url: str
    count: Any
    is_current: bool


def lookups_of(changelist: Any) -> dict[str, Any]:
    """Return the lookups of all jobs that a JobChangeList stands for, on this page and others.

    Raise Refused if one of its filters is filled in wrongly, or is none of ours.
    """
    if changelist.problems:
        raise Refused(" ".join(map(str, changelist.problems)))
    if changelist.has_foreign_filters:
        raise Refused(
            _("One of the filters cannot be used for all jobs that match. Tick the jobs instead.")
        )
    return dict(changelist.lookups)


class JobChangeList(ListLinks, ChangeList):
    """Django's list with tabs, places instead of page numbers, and no count of anything."""

    lookups: Mapping[str, Any]

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.tab = find_tab(request.GET.get(TAB))
        self.problems: list[Any] = []
        self.notices: list[Any] = []
        self.parts: list[Condition] = []
        self.has_foreign_filters = False
        self.is_onward = BEFORE not in request.GET
        searched = parse_search(request.GET.get(SEARCH_VAR, ""), may_reveal=False).parts
        self.batches = AskedBatches(searched, self.tab)
        self.order = self._choose_order(oldest_first=request.GET.get(SORT) == OLDEST)
        self.place = self._read_place(request)
        if ERROR_FLAG in request.GET:
            self.notices.append(_("A part of the address was left out: it is no filter of jobs."))
        self.user = request.user
        super().__init__(request, *args, **kwargs)
        # Links and forms of the page begin at its first row again.
        for name in (AFTER, BEFORE, COUNT_AFTER):
            self.params.pop(name, None)

    def _choose_order(self, *, oldest_first: bool) -> Order:
        """Return the order: finished jobs by their end, the oldest of those that run by start."""
        if self.tab.is_finished and not self.batches.are_by_id:
            return Order("finished_at", oldest_first)
        if oldest_first and self.tab.key == "running" and self.is_few:
            return Order("last_attempted_at", oldest_first)
        return Order("", oldest_first)

    def _read_place(self, request: HttpRequest) -> PageStart | None:
        text = request.GET.get(AFTER if self.is_onward else BEFORE)
        place = self.order.parse(text) if text else None
        if text and place is None:
            self.is_onward = True
            self.notices.append(_("This address names no page of the list. Here is the first one."))
        return place

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = super().get_filters_params(params)
        for name in (TAB, SORT, PAGE_SIZE, AFTER, BEFORE, COUNT_AFTER):
            found.pop(name, None)
        return found

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        text: str = super().get_query_string(
            {AFTER: None, BEFORE: None, COUNT_AFTER: None, **(new_params or {})}, remove
        )
        return text

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Return all jobs of the tab that match, on whatever page; none if nobody can say."""
        (self.filter_specs, self.has_filters, others, _duplicates, self.has_active_filters) = (
            self.get_filters(request)
        )
        self.problems = []
        self.parts = self._read_plain(others) + self._read_search(request)
        jobs: QuerySet[Any] = self.root_queryset
        for spec in self.filter_specs:
            if isinstance(spec, JobFilter):
                self.problems += [spec.problem] if spec.problem else []
                self.parts += spec.parts()
            else:
                found = spec.queryset(request, jobs)
                is_used = bool(getattr(spec, "used_parameters", None))
                self.has_foreign_filters = self.has_foreign_filters or is_used
                jobs = jobs if found is None else found
        self.is_filtered = bool(self.parts or self.problems or self.has_foreign_filters)
        parts = [dict(part.lookups) for part in self.parts]
        self.lookups = {**self.tab.lookups, **({"all_of": parts} if parts else {})}
        as_read = {**self.lookups, **({"all_of": self.batches.as_read(parts)} if parts else {})}
        self.clear_all_filters_qs = self.get_query_string(
            remove=[name for spec in self.filter_specs for name in spec.expected_parameters()]
        )
        try:
            jobs = jobs.filter(conditions(as_read))
        except InvalidLookup:
            self.problems.append(_("A filter is too long, or holds text that no job can have."))
        jobs = self._of_masked(jobs)
        if self.problems:
            jobs = jobs.none()
        return jobs.order_by(*self.order.fields(is_onward=True))

    def _of_masked(self, jobs: QuerySet[Any]) -> QuerySet[Any]:
        """Return *jobs*; if a masked value is asked for, those where one may see it."""
        if not names_masked(self.lookups):
            return jobs
        if is_narrowed(self.user, Verb.REVEAL):
            self.notices.append(
                _("A masked value is looked for only in jobs whose masked values you may see.")
            )
        return narrow(self.user, Verb.REVEAL, jobs)

    def _read_plain(self, others: Mapping[str, Any]) -> list[Condition]:
        """Return what Django's own filter by status asked for; no other field is one."""
        parts = []
        for name, values in others.items():
            if name not in ("status", "status__exact"):
                raise IncorrectLookupParameters(name)
            parts += [Condition({"status": value}) for value in values]
        return parts

    def _read_search(self, request: HttpRequest) -> list[Condition]:
        search = parse_search(self.query, may_reveal=may(request.user, Verb.REVEAL))
        self.problems += search.problems
        return search.parts

    def get_results(self, request: HttpRequest) -> None:
        """Read one page; what a form chose and the number of new jobs need none."""
        self.rows = Rows([], False, None)
        self.page_size = self._read_page_size(request)
        self.tabs: list[TabLink] = []
        if request.method != "POST" and COUNT_AFTER not in request.GET:
            self.rows = self._read_rows()
            find_pauses(self.rows.jobs)
            self._draw_tabs()
            self._suggest(request)
        self.result_list = self.rows.jobs
        # Nothing is counted; the templates of the list show no number.
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = bool(self.result_list)

    def _read_page_size(self, request: HttpRequest) -> int:
        given = request.GET.get(PAGE_SIZE)
        return next((size for size in PAGE_SIZES if str(size) == given), self.list_per_page)

    def _read_rows(self) -> Rows:
        if self.problems:
            return Rows([], False, None)
        if self.place is None:
            self._begin_in_time()
        rows = self._read_direction()
        if not self.is_onward and len(rows.jobs) < self.page_size and rows.edge is None:
            # The first page is a full one, also for who comes back to it.
            self.place, self.is_onward = None, True
            rows = self._read_direction()
        return rows

    def _begin_in_time(self) -> None:
        """Begin where the ids are of the time that a filter ends at, as far as they tell it."""
        if self.order.oldest_first:
            return
        name = "enqueued_at__lte"
        ends = [part.lookups[name] for part in self.parts if name in part.lookups]
        if self.order.column:
            # When a job was enqueued does not say when it ended.
            ends = []
        ends += self.batches.ends_of_large_tree()
        if self.is_few or not ends or min(ends) >= now_aware():
            return
        if self.order.column:
            self.place = PageStart(LAST_ID, min(ends) + OUT_OF_ORDER)
            return
        with connections[self.queryset.db].cursor() as cursor:
            job_id = find_job_at(cursor, min(ends) + OUT_OF_ORDER)
        if job_id is not None:
            self.place = PageStart(job_id + 1)

    def _read_direction(self) -> Rows:
        """Read a page of the rows after, or before, the place."""
        jobs, order, is_onward = self.queryset, self.order, self.is_onward
        jobs = jobs.filter(*self.batches.ends())
        edge = self._find_edge()
        if self.place is not None:
            jobs = jobs.filter(order.beyond(self.place, is_onward=is_onward))
        if edge is not None:
            jobs = jobs.filter(order.within(edge, is_onward=is_onward))
        if self.is_few:
            # By their own index, sorted; only then is anything of a row unpacked.
            ids = jobs.order_by(*replace(order, is_sorted=True).fields(is_onward=is_onward))
            jobs = self.root_queryset.filter(pk__in=ids.values("pk")[: self.page_size + 1])
        found = list(
            with_columns(jobs).order_by(*order.fields(is_onward=is_onward))[: self.page_size + 1]
        )
        if edge is None and self.place is not None and not order.descends(is_onward=is_onward):
            found += self._read_endless(self.page_size + 1 - len(found))
        has_more = len(found) > self.page_size
        shown = found[: self.page_size]
        return Rows(shown if is_onward else shown[::-1], has_more, None if has_more else edge)

    def _read_endless(self, count: int) -> list[Any]:
        """Return the first jobs without the time of the order: newer than all that have one."""
        if count <= 0 or not self.order.column or self.place is None or not self.place.moment:
            return []
        jobs = self.queryset.filter(self.order.is_unknown)
        return list(with_columns(jobs).order_by("id")[:count])

    def count_new(self, text: str) -> int:
        """Return how many jobs have come since the page was drawn that begins at a place."""
        place = self.order.parse(text)
        if place is None:
            return 0
        self.place, self.is_onward = place, False
        jobs = self.queryset.filter(self.order.beyond(place, is_onward=False))
        edge = self._find_edge()
        if edge is not None:
            jobs = jobs.filter(self.order.within(edge, is_onward=False))
        order = replace(self.order, is_sorted=self.is_few)
        return int(jobs.order_by(*order.fields(is_onward=False))[: MAX_NEW + 1].count())

    @cached_property
    def is_narrowed(self) -> bool:
        """Does the project let this person see some jobs only?"""
        return is_narrowed(self.user)

    @cached_property
    def is_few(self) -> bool:
        """Are the jobs few enough for an index of their own, however many others there are?"""
        if self.batches.has_small_tree:
            return True
        return bool(self.tab.index_column) and not exceeds_index(self.tab)

    def _find_edge(self) -> PageStart | None:
        """Return how far to look, None if an index leads to the rows, or there are not more."""
        is_indexed = any(part.reach is Reach.INDEXED for part in self.parts)
        if is_indexed or self.is_few or not self._has_sparse_rows():
            return None
        jobs = Job.objects.filter(conditions(self._bounds()))
        if self.place is not None:
            jobs = jobs.filter(self.order.beyond(self.place, is_onward=self.is_onward))
        return self.order.find_edge(jobs, self.distance, is_onward=self.is_onward)

    def _has_sparse_rows(self) -> bool:
        """May most of the jobs that the order leads to be others than those of the list?"""
        # Jobs that have not ended share their order with those of the other tabs.
        has_own_order = self.tab.is_finished or not self.tab.lookups
        return (
            not has_own_order
            or self.is_narrowed
            or self.has_foreign_filters
            or not all(map(self._is_bound, self.parts))
        )

    def _is_bound(self, part: Condition) -> bool:
        """Is it a condition on what the jobs are ordered by?"""
        ends = self.order.column == "finished_at"
        return ends and part.lookups.keys() <= {"finished_at__gte", "finished_at__lte"}

    def _bounds(self) -> dict[str, Any]:
        """Return the lookups that the order's index finds by itself."""
        status = self.tab.lookups.get("status")
        statuses = [status] if self.tab.is_finished else sorted(UNFINISHED)
        bounds: dict[str, Any] = {"status__in": statuses} if self.tab.lookups else {}
        parts = [dict(part.lookups) for part in self.parts if self._is_bound(part)]
        return {**bounds, "all_of": parts} if parts else bounds

    @property
    def distance(self) -> int:
        """How many jobs one page looks through at most."""
        reaches = (part.reach for part in self.parts if not self._is_bound(part))
        is_rare = self.tab.lookups.get("status") in RARE
        distances = LOOK_THROUGH_RARE if is_rare else LOOK_THROUGH
        return distances[max(reaches, default=Reach.PLAIN)]

    @property
    def looked_through(self) -> int:
        """How many jobs this page looked through without filling itself; 0: all of them."""
        return self.distance if self.rows.edge else 0

    def _draw_tabs(self) -> None:
        counts = self._count_tabs()
        for tab in TABS:
            url = self.get_query_string({TAB: None if tab is TABS[0] else tab.key})
            self.tabs.append(TabLink(tab, url, draw_count(counts.get(tab.key)), tab is self.tab))

    def _count_tabs(self) -> dict[str, Count]:
        if not self.is_narrowed:
            return count_tabs(self.root_queryset)
        # Nobody knows what a condition of the project costs; the list goes without numbers.
        try:
            with time_budget(self.root_queryset.db, COUNT_SECONDS):
                return count_tabs(self.root_queryset)
        except TooSlow:
            return {}

    def _suggest(self, request: HttpRequest) -> None:
        texts = [spec for spec in self.filter_specs if isinstance(spec, TextFilter)]
        names = list_names(self.root_queryset, self.is_narrowed) if texts else {}
        for spec in texts:
            spec.suggest(names.get(spec.parameter_name, ()))
