"""The filters of the list of jobs: forms that need no script and no style of their own.

What they accept they say as lookups (`bulk.lookups`), so that an action on all jobs that match
means what the list shows. One that is filled in wrongly shows no jobs, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, time
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format, localize
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rangefilter.filters import DateTimeRangeFilter, NumericRangeFilter

from django_pgjobs.admin.job_list.search import Condition
from django_pgjobs.bulk.lookups import conditions
from django_pgjobs.values.bounds import MAX_INTEGER
from django_pgjobs.values.moments import aware

LAST_MOMENT = time(23, 59, 59, 999_999)
# Of a length of time that somebody filters by: thirty years.
MAX_DURATION_SECONDS = 10**9
MAX_NAME = 512


class JobFilter:
    """What the filters below have in common: *form* is bound as soon as anything is given.

    Their template draws them one by one, each with a form, where another theme of the admin
    draws the list; ours has one form for all.
    """

    template = "admin/pgjobs/job/filter.html"
    form: forms.BaseForm
    title: Any
    is_range = False
    expected_parameters: Callable[[], Any]

    @property
    def problem(self) -> str:
        """What is wrong with what was filled in, in words; nothing if all is well."""
        if not self.form.is_bound or self.form.is_valid():
            return ""
        texts = [text for errors in self.form.errors.values() for text in errors]
        return f"{self.title}: {' '.join(map(str, texts))}"

    @property
    def given(self) -> dict[str, Any]:
        """What was filled in, by the name of the field."""
        if not self.form.is_bound or not self.form.is_valid():
            return {}
        values = self.form.cleaned_data
        return {name: value for name, value in values.items() if value not in (None, "")}

    @property
    def words(self) -> str:
        """What was filled in, as it is said where the form is folded; nothing if nothing was."""
        said = [
            f"{self.form.fields[name].label} {_said(value)}" if self.is_range else _said(value)
            for name, value in self.given.items()
        ]
        return f"{self.title}: {', '.join(said)}" if said else ""

    def parts(self) -> list[Condition]:
        """Return what the jobs have to be like; nothing if nothing was filled in."""
        raise NotImplementedError

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.problem:
            return queryset.none()
        for part in self.parts():
            queryset = queryset.filter(conditions(part.lookups))
        return queryset

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        """Yield name and value of the other parameters of the page, for a form of its own."""
        own = set(self.expected_parameters())
        for name, values in changelist.filter_params.items():
            for value in values if name not in own else ():
                yield {"name": name, "value": value}

    def get_facet_counts(self, pk_attname: str, filtered_qs: QuerySet[Any]) -> dict[str, Any]:
        return {}


def _said(value: Any) -> str:
    if isinstance(value, datetime):
        return date_format(timezone.localtime(aware(value)), "SHORT_DATETIME_FORMAT")
    return str(localize(value))


class TextFilter(JobFilter, admin.ListFilter):
    """Jobs whose *lookup* is the text that is typed; `suggest` offers some."""

    parameter_name = ""
    lookup = ""

    def __init__(
        self, request: HttpRequest, params: dict[str, list[str]], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        if self.parameter_name in params:
            self.used_parameters[self.parameter_name] = params.pop(self.parameter_name)[-1]
        self.suggestions: list[str] = []
        field = forms.CharField(
            label=self.title,
            required=False,
            max_length=MAX_NAME,
            widget=forms.TextInput(
                attrs={"list": f"pgjobs-names-{self.parameter_name}", "autocomplete": "off"}
            ),
        )
        form = type("TextForm", (forms.BaseForm,), {"base_fields": {self.parameter_name: field}})
        self.form = form(self.used_parameters or None)

    def expected_parameters(self) -> list[str | None]:
        return [self.parameter_name]

    def suggest(self, names: Iterable[str]) -> None:
        """Offer *names* to choose from."""
        self.suggestions = list(names)

    def parts(self) -> list[Condition]:
        return [Condition({self.lookup: text}) for text in self.given.values()]


class QueueFilter(TextFilter):
    """Jobs of one queue."""

    title = gettext_lazy("Queue")
    parameter_name = "queue"
    lookup = "queue_name"


class TaskFilter(TextFilter):
    """Jobs of one task, by its whole path."""

    title = gettext_lazy("Task")
    parameter_name = "task"
    lookup = "task_path"


class WorkerFilter(TextFilter):
    """Jobs that one worker ran, or runs."""

    title = gettext_lazy("Worker")
    parameter_name = "worker"
    lookup = "worker"


class RangeFilter(JobFilter):
    """From one value to another, each of which may be left out."""

    lookup_kwarg_gte: str
    lookup_kwarg_lte: str
    used_parameters: dict[str, Any]
    is_range = True
    name = ""

    def get_form(self, request: HttpRequest) -> forms.BaseForm:
        last = {
            name: value[-1] if isinstance(value, list) else value
            for name, value in self.used_parameters.items()
        }
        fields = self._get_form_fields()
        names = (self.lookup_kwarg_gte, self.lookup_kwarg_lte)

        def clean(form: forms.BaseForm) -> dict[str, Any]:
            least, most = (form.cleaned_data.get(name) for name in names)
            if least is not None and most is not None and least > most:
                raise ValidationError(_("The first value is beyond the second."))
            return form.cleaned_data

        made = type("RangeForm", (forms.BaseForm,), {"base_fields": fields, "clean": clean})
        form: forms.BaseForm = made(last or None)
        return form

    def _get_form_fields(self) -> dict[str, forms.Field]:
        raise NotImplementedError

    def parts(self) -> list[Condition]:
        ends = {self.lookup_kwarg_gte: "gte", self.lookup_kwarg_lte: "lte"}
        lookups = {f"{self.name}__{ends[name]}": value for name, value in self.given.items()}
        return [Condition(lookups)] if lookups else []


class MomentWidget(forms.SplitDateTimeWidget):
    """A date and a time as the browser asks for them: no script, any language, any keyboard."""

    def __init__(self, label: Any) -> None:
        date_input, time_input = forms.DateInput(format="%Y-%m-%d"), forms.TimeInput()
        date_input.input_type, time_input.input_type = "date", "time"
        date_input.attrs = {"aria-label": gettext_lazy("date")}
        time_input.attrs = {"aria-label": gettext_lazy("time"), "step": "1"}
        self.label = label
        forms.MultiWidget.__init__(self, (date_input, time_input))

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        for part in context["widget"]["subwidgets"]:
            own = part["attrs"]["aria-label"]
            part["attrs"] = {**part["attrs"], "aria-label": f"{self.label}: {own}"}
        return context


class MomentField(forms.SplitDateTimeField):
    """A moment, in the current time zone, whose time may be left out.

    It is then the begin of the day, or its end for the end of a range; a time that is the end
    of a range takes its whole second in.
    """

    def __init__(self, *, label: Any, title: Any, is_end: bool) -> None:
        self.is_end = is_end
        super().__init__(
            label=label,
            required=False,
            widget=MomentWidget(f"{title}, {label}"),
            input_date_formats=["%Y-%m-%d"],
            input_time_formats=["%H:%M:%S", "%H:%M", "%H:%M:%S.%f"],
            error_messages={
                "invalid_date": gettext_lazy("Expected a date such as 2026-01-31."),
                "invalid_time": gettext_lazy("Expected a time such as 14:30 or 14:30:00."),
            },
        )

    def compress(self, data_list: Any) -> datetime | None:
        day, moment = data_list or (None, None)
        if day is None:
            if moment is not None:
                raise ValidationError(_("A time needs a date."))
            return None
        if moment is None:
            moment = LAST_MOMENT if self.is_end else time.min
        elif self.is_end and not moment.microsecond:
            moment = moment.replace(microsecond=999_999)
        # Of an hour that comes twice, the first begins a range and the second ends it.
        naive = datetime.combine(day, moment.replace(fold=int(self.is_end)))
        return timezone.make_aware(naive)


class MomentRangeFilter(RangeFilter, DateTimeRangeFilter):  # type: ignore[misc]
    """Jobs with a time from one moment to another.

    Of django-admin-rangefilter this keeps the parameters, so that its addresses keep their
    meaning; its form takes a half-typed range for none, and needs scripts in the page.
    """

    def __init__(
        self,
        field: Any,
        request: HttpRequest,
        params: Mapping[str, Any],
        model: Any,
        model_admin: Any,
        field_path: str,
    ) -> None:
        self.name = field_path
        self.heading = TITLES.get(field_path, field.verbose_name)
        super().__init__(field, request, params, model, model_admin, field_path)
        self.title = self.heading

    def _get_form_fields(self) -> dict[str, forms.Field]:
        title = self.heading
        return {
            self.lookup_kwarg_gte: MomentField(label=_("from"), title=title, is_end=False),
            self.lookup_kwarg_lte: MomentField(label=_("to"), title=title, is_end=True),
        }


class NumberRangeFilter(RangeFilter, NumericRangeFilter):  # type: ignore[misc]
    """Jobs with a whole number from one to another."""

    def __init__(
        self,
        field: Any,
        request: HttpRequest,
        params: Mapping[str, Any],
        model: Any,
        model_admin: Any,
        field_path: str,
    ) -> None:
        self.name = self.name or field_path
        super().__init__(field, request, params, model, model_admin, self.name)
        self.title = TITLES.get(self.name, field.verbose_name)

    def _get_form_fields(self) -> dict[str, forms.Field]:
        limits = [MinValueValidator(0), MaxValueValidator(MAX_INTEGER)]
        return {
            name: forms.IntegerField(
                label=label,
                required=False,
                validators=limits,
                widget=forms.NumberInput(attrs={"min": "0"}),
            )
            for name, label in (
                (self.lookup_kwarg_gte, _("from")),
                (self.lookup_kwarg_lte, _("to")),
            )
        }


class DurationFilter(NumberRangeFilter):
    """Finished jobs whose last attempt took so many seconds; it hangs on their end."""

    name = "duration"

    def _get_form_fields(self) -> dict[str, forms.Field]:
        limits = [MinValueValidator(0), MaxValueValidator(MAX_DURATION_SECONDS)]
        return {
            name: forms.FloatField(
                label=label,
                required=False,
                validators=limits,
                widget=forms.NumberInput(attrs={"min": "0", "step": "any"}),
            )
            for name, label in (
                (self.lookup_kwarg_gte, _("from")),
                (self.lookup_kwarg_lte, _("to")),
            )
        }


TITLES = {
    "enqueued_at": gettext_lazy("Enqueued"),
    "finished_at": gettext_lazy("Finished"),
    "attempts": gettext_lazy("Attempts"),
    "duration": gettext_lazy("Duration in seconds"),
}
LIST_FILTER = (
    QueueFilter,
    TaskFilter,
    WorkerFilter,
    ("enqueued_at", MomentRangeFilter),
    ("finished_at", MomentRangeFilter),
    ("attempts", NumberRangeFilter),
    ("finished_at", DurationFilter),
)
