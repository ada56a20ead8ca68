"""The list of workflows: newest first, in pages by place, each of which looks only so far."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from django import forms
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.job_list.filters import MomentField
from django_pgjobs.admin.job_list.links import AFTER, BEFORE, TAB, Rows
from django_pgjobs.admin.job_list.paging import Order, PageStart
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.workflows.drawing import ProgressBar, bar_of
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import LARGE_FIELDS, all_workflows, with_states
from django_pgjobs.permissions import Verb, is_narrowed, whole_workflows
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.workflow_pages import MAX_SUMMED, TreeSum, summarise_trees
from django_pgjobs.status import BatchState
from django_pgjobs.values.payload import is_storable

PAGE_SIZE = 25
# Workflows that one page looks through for those that match, and for those of a narrowed person,
# whose jobs are asked one by one.
LOOK_THROUGH = 5_000
LOOK_THROUGH_NARROWED = 50
MAX_TEXT = 512
NUMBER = re.compile(r"#?([0-9]{1,18})", re.ASCII)
KEY = "key:"


class WorkflowTab(NamedTuple):
    """One of the lists, and the condition of what it shows."""

    key: str
    label: Any
    condition: Q


TABS = (
    WorkflowTab("all", gettext_lazy("All"), Q()),
    WorkflowTab("unfinished", gettext_lazy("Unfinished"), Q(tree_completed_at=None)),
    WorkflowTab("broken", gettext_lazy("Broken"), Q(state=BatchState.BROKEN)),
    WorkflowTab("failed", gettext_lazy("Failed"), Q(state=BatchState.FAILED)),
    WorkflowTab("cancelled", gettext_lazy("Cancelled"), Q(state=BatchState.CANCELLED)),
    WorkflowTab("successful", gettext_lazy("Successful"), Q(state=BatchState.SUCCESSFUL)),
)


class WorkflowForm(forms.Form):
    """What the list is searched for."""

    q = forms.CharField(
        label=gettext_lazy("Search"),
        required=False,
        max_length=MAX_TEXT,
        help_text=gettext_lazy(
            "Part of a name, the number of a workflow or of any batch, or key: with a dedupe key."
        ),
    )
    since = MomentField(label=gettext_lazy("from"), title=gettext_lazy("Opened"), is_end=False)
    until = MomentField(label=gettext_lazy("to"), title=gettext_lazy("Opened"), is_end=True)

    def clean_q(self) -> str:
        """Refuse what no column can hold."""
        text: str = self.cleaned_data["q"]
        if not is_storable(text):
            raise forms.ValidationError(_("No workflow has such a name."))
        return text

    @property
    def number(self) -> re.Match[str] | None:
        """The number of a batch, to which an index leads, if that is what is searched for."""
        return NUMBER.fullmatch(self.cleaned_data["q"])

    def condition(self) -> Q:
        """Return what the workflows have to be like."""
        text, found, number = self.cleaned_data["q"], Q(), self.number
        if number:
            found = Q(pk__in=Batch.objects.filter(pk=int(number[1])).values("root_id"))
        elif text.startswith(KEY):
            found = Q(dedupe_key=text.removeprefix(KEY).strip())
        elif text:
            found = Q(name__icontains=text)
        if self.cleaned_data["since"]:
            found &= Q(created_at__gte=self.cleaned_data["since"])
        if self.cleaned_data["until"]:
            found &= Q(created_at__lte=self.cleaned_data["until"])
        return found


class WorkflowLine(NamedTuple):
    """A workflow of the list."""

    batch: Any
    url: str
    sum: TreeSum
    bar: ProgressBar


class WorkflowList:
    """One page of the list, as the query of an address asks for it."""

    def __init__(self, request: HttpRequest) -> None:
        self.query = request.GET
        self.user = request.user
        self.form = WorkflowForm(request.GET, label_suffix="")
        self.tab = next((tab for tab in TABS if tab.key == request.GET.get(TAB)), TABS[0])
        self.is_older = BEFORE not in request.GET
        self.order = Order()
        self.place = self.order.parse(request.GET.get(AFTER if self.is_older else BEFORE, ""))
        self.is_older = self.is_older or self.place is None
        self.is_narrowed = is_narrowed(self.user)
        condition = self.form.condition() if self.form.is_valid() else Q()
        self.is_filtered = bool(condition)
        self.condition = self.tab.condition & condition
        self.rows = self._read() if self.form.is_valid() else Rows([], False, None)
        if not self.is_older and len(self.rows.jobs) < PAGE_SIZE and self.rows.edge is None:
            # The first page is a full one, also for who comes back to it.
            self.place, self.is_older = None, True
            self.rows = self._read()

    @property
    def distance(self) -> int:
        """How many workflows a page looks through."""
        return LOOK_THROUGH_NARROWED if self.is_narrowed else LOOK_THROUGH

    def _read(self) -> Rows:
        roots: QuerySet[Any] = all_workflows()
        edge = None
        if self.place is not None:
            roots = roots.filter(self.order.beyond(self.place, is_onward=self.is_older))
        if (self.condition or self.is_narrowed) and not self.form.number:
            edge = self.order.find_edge(roots, self.distance, is_onward=self.is_older)
        if edge is not None:
            roots = roots.filter(self.order.within(edge, is_onward=self.is_older))
        wanted = with_states(roots.defer(*LARGE_FIELDS)).filter(self.condition)
        most = self.distance + 1 if self.is_narrowed else PAGE_SIZE + 1
        found = list(wanted.order_by(*self.order.fields(is_onward=self.is_older))[:most])
        if self.is_narrowed:
            whole = whole_workflows(self.user, Verb.VIEW, [batch.pk for batch in found])
            found = [batch for batch in found if batch.pk in whole]
        has_more = len(found) > PAGE_SIZE
        shown = found[:PAGE_SIZE]
        return Rows(shown if self.is_older else shown[::-1], has_more, None if has_more else edge)

    @property
    def older_url(self) -> str:
        """The address of the page of older workflows, "" if this is the last one."""
        batches = self.rows.jobs
        if self.is_older and self.rows.edge is not None:
            return self._url(AFTER, self.rows.edge)
        if batches and (self.rows.has_more or not self.is_older):
            return self._url(AFTER, self.order.place_of(batches[-1]))
        return self._url(AFTER, self.place) if self.place and not self.is_older else ""

    @property
    def newer_url(self) -> str:
        """The address of the page of newer workflows, "" if this is the first one."""
        batches = self.rows.jobs
        if not self.is_older and self.rows.edge is not None:
            return self._url(BEFORE, self.rows.edge)
        if self.place is None or (not self.is_older and not self.rows.has_more):
            return ""
        return self._url(BEFORE, self.order.place_of(batches[0])) if batches else self._url()

    @property
    def further_url(self) -> str:
        """The address of the page that goes on where this one stopped looking, "" if it did not."""
        if self.rows.edge is None:
            return ""
        return self.older_url if self.is_older else self.newer_url

    def tab_links(self) -> list[tuple[Any, str, bool]]:
        """Return label and address of each tab, and whether it is this one."""
        return [
            (tab.label, self._url(TAB, None if tab is TABS[0] else tab.key), tab is self.tab)
            for tab in TABS
        ]

    def _url(self, name: str = "", value: PageStart | str | None = None) -> str:
        query = QueryDict(mutable=True)
        query.update(self.query)
        for other in (AFTER, BEFORE, name):
            query.pop(other, None)
        if value is not None:
            query[name] = self.order.format(value) if isinstance(value, PageStart) else value
        return f"?{query.urlencode()}"


def draw_workflows(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page with the list of workflows."""
    found = WorkflowList(request)
    with job_cursor() as cursor:
        sums = summarise_trees(cursor, [batch.pk for batch in found.rows.jobs])
    lines = [
        WorkflowLine(
            batch,
            model_admin.url("pgjobs_batch_change", batch.pk),
            sums[batch.pk],
            bar_of(sums[batch.pk]),
        )
        for batch in found.rows.jobs
        if batch.pk in sums
    ]
    context = {
        "title": _("Workflows"),
        "list": found,
        "lines": lines,
        "max_summed": MAX_SUMMED,
    }
    return model_admin.render_page(request, "workflows.html", context)
