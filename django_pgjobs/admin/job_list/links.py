"""What the templates of the list of jobs ask it: links to more, its forms, why it is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from django.contrib.admin.views.main import SEARCH_VAR
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import OLDEST, SORT
from django_pgjobs.admin.job_list.filters import JobFilter
from django_pgjobs.admin.job_list.paging import Order, PageStart
from django_pgjobs.admin.job_list.search import look_elsewhere
from django_pgjobs.admin.job_list.tabs import Tab, kept_text

# More rows than the last are more than 150 kB.
PAGE_SIZES = (25, 50, 100)
TAB, PAGE_SIZE, AFTER, BEFORE, COUNT_AFTER = "tab", "per", "after", "before", "count_after"


class Rows(NamedTuple):
    """A page of the list; *edge* is how far was looked, None: to the end."""

    jobs: list[Any]
    has_more: bool
    edge: PageStart | None


class PageSize(NamedTuple):
    """A number of jobs that a page may show, and the address of such a page."""

    size: int
    url: str
    is_current: bool


class Elsewhere(NamedTuple):
    """A search for the same words elsewhere, and its address."""

    query: str
    url: str


class ListLinks:
    """Base of the list, for its templates; the list reads what is named here."""

    rows: Rows
    tab: Tab
    order: Order
    place: PageStart | None
    is_onward: bool
    is_filtered: bool
    page_size: int
    params: dict[str, Any]
    query: str
    filter_specs: list[Any]
    get_query_string: Callable[..., str]

    @property
    def further_url(self) -> str:
        """The address of the page that goes on where this one stopped looking."""
        return self.next_url if self.is_onward else self.previous_url

    @property
    def empty_text(self) -> str:
        """Why there is nothing to see."""
        if self.is_filtered:
            return _("No job of this tab matches.")
        return f"{self.tab.empty} {kept_text(self.tab)}"

    @property
    def unsearched_url(self) -> str:
        """The same list without what was searched for, "" if nothing was."""
        return self.get_query_string(remove=[SEARCH_VAR]) if self.query else ""

    @property
    def elsewhere(self) -> list[Elsewhere]:
        """Where else the words may be found that no task's path has."""
        return [
            Elsewhere(query, self.get_query_string({SEARCH_VAR: query}))
            for query in look_elsewhere(self.query)
        ]

    @property
    def form_parameters(self) -> list[tuple[str, Any]]:
        """Name and value of what the form of the filters leaves as it is."""
        own = {name for spec in self.form_filters for name in spec.expected_parameters()}
        return [(name, value) for name, value in self.params.items() if name not in own]

    @property
    def form_filters(self) -> list[JobFilter]:
        """The filters that share one form."""
        specs: list[Any] = self.filter_specs
        return [spec for spec in specs if isinstance(spec, JobFilter)]

    @property
    def filters_in_words(self) -> str:
        """What the filters that share one form were filled in with."""
        return " · ".join(spec.words for spec in self.form_filters if spec.words)

    @property
    def foreign_filters(self) -> list[Any]:
        """The filters of a subclass of the project, which draw themselves."""
        return [spec for spec in self.filter_specs if not isinstance(spec, JobFilter)]

    @property
    def next_url(self) -> str:
        """The address of the next page, nothing if this is the last one."""
        jobs = self.rows.jobs
        if self.is_onward and self.rows.edge is not None:
            return self._url(AFTER, self.rows.edge)
        if jobs and (self.rows.has_more or not self.is_onward):
            return self._url(AFTER, self.order.place_of(jobs[-1]))
        return self._url(AFTER, self.place) if self.place and not self.is_onward else ""

    @property
    def previous_url(self) -> str:
        """The address of the page before, nothing if this is the first one."""
        jobs = self.rows.jobs
        if not self.is_onward and self.rows.edge is not None:
            return self._url(BEFORE, self.rows.edge)
        if self.place is None or (not self.is_onward and not self.rows.has_more):
            return ""
        return self._url(BEFORE, self.order.place_of(jobs[0])) if jobs else self.get_query_string()

    @property
    def may_hold_more(self) -> bool:
        """May more jobs match than this page shows?"""
        return bool(self.next_url or self.previous_url)

    @property
    def page_sizes(self) -> list[PageSize]:
        """The sizes of a page, as links."""
        return [
            PageSize(size, self.get_query_string({PAGE_SIZE: size}), size == self.page_size)
            for size in PAGE_SIZES
        ]

    @property
    def other_order_url(self) -> str:
        """The address of the first page in the other order."""
        return self.get_query_string({SORT: None if self.order.oldest_first else OLDEST})

    def _url(self, name: str, place: PageStart) -> str:
        return self.get_query_string({name: self.order.format(place)})

    @property
    def new_source(self) -> str:
        """The address that says how many new jobs there are, on a first page they come to."""
        is_first = not self.previous_url and not self.order.oldest_first
        if self.tab.sample or self.tab.index_column or not is_first or not self.rows.jobs:
            return ""
        return self._url(COUNT_AFTER, self.order.place_of(self.rows.jobs[0]))

    @property
    def first_url(self) -> str:
        """The address of the first page."""
        return self.get_query_string()
