"""The forms of schedules; the task and its signature are looked at when a form is sent."""

from __future__ import annotations

import json
from copy import copy
from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst, format_lazy
from django.utils.timezone import get_default_timezone_name
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.job_page.copy_form import unmask
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.redaction import redact
from django_pgjobs.declaring.registry import discover_tasks_once, find_task
from django_pgjobs.declaring.schedule_mistakes import find_mistakes
from django_pgjobs.declaring.schedules import (
    LONGEST_JITTER,
    MISSED,
    OVERLAPS,
    check_arguments,
    declared_schedules,
    schedulable_paths,
)
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.exceptions import UnknownTask
from django_pgjobs.limits import LineField
from django_pgjobs.models import Schedule
from django_pgjobs.occurrences.cron import MAX_LENGTH
from django_pgjobs.occurrences.rule import (
    LONGEST_EVERY,
    REPEATED_TIMES,
    SHORTEST_EVERY,
    SKIPPED_TIMES,
)
from django_pgjobs.schedules.plans import policies_of, rule_of
from django_pgjobs.schedules.syncing import OF_CODE
from django_pgjobs.schedules.words import POLICIES
from django_pgjobs.values.bounds import MAX_SCHEDULE_NAME_BYTES, MAX_TASK_PATH_BYTES
from django_pgjobs.values.moments import aware, now_aware
from django_pgjobs.values.payload import decode_value, is_storable

# All that a form may write.
COLUMNS = (
    *OF_CODE,
    *("cron", "every", "timezone", "skipped_time", "repeated_time", "starts_at", "ends_at"),
    *("except_dates", "max_runs", "missed", "grace", "overlap", "jitter"),
)
# What a person types as seconds: the least and the most.
SECONDS: dict[str, tuple[float, float | None]] = {
    "every": (SHORTEST_EVERY.total_seconds(), LONGEST_EVERY.total_seconds()),
    "jitter": (0, LONGEST_JITTER.total_seconds()),
    "grace": (0, None),
}
JSON_WIDGET = forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "dir": "ltr"})


FIELDS: dict[str, Any] = {field.name: field for field in Schedule._meta.fields}


def _label(name: str) -> Any:
    return capfirst(FIELDS[name].verbose_name)


def _choice(name: str, allowed: tuple[str, ...], *, is_needed: bool) -> forms.TypedChoiceField:
    """Return the field of a policy."""
    choices = [(each, POLICIES[each]) for each in allowed]
    return forms.TypedChoiceField(
        label=_label(name),
        choices=choices if is_needed else [("", "–"), *choices],
        required=is_needed,
        empty_value=None,
        help_text="" if is_needed else gettext_lazy("Empty: as the expression is."),
    )


def _args_field(**options: Any) -> forms.CharField:
    help_text = gettext_lazy("A JSON list.")
    return forms.CharField(
        label=_label("args"), required=False, widget=JSON_WIDGET, help_text=help_text, **options
    )


def _kwargs_field(**options: Any) -> forms.CharField:
    help_text = gettext_lazy("A JSON object.")
    return forms.CharField(
        label=_label("kwargs"), required=False, widget=JSON_WIDGET, help_text=help_text, **options
    )


def shown_arguments(row: Schedule) -> dict[str, str]:
    """Return the arguments of a row as a form shows them: masked."""
    return {name: _json_of(redact(getattr(row, name))) for name in ("args", "kwargs")}


def _json_of(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Half a character, which a row may hold and no page.
    return text if is_storable(text) else json.dumps(value)


def read_args(text: str, stored: Any) -> list[Any]:
    """Read a list, in which masks stand for what is stored; raise ValidationError."""
    return _read(text, list, stored, _("Expected a JSON list, such as [1, 2]."))  # type: ignore[no-any-return]


def read_kwargs(text: str, stored: Any) -> dict[str, Any]:
    """Read a dict, in which masks stand for what is stored; raise ValidationError."""
    return _read(text, dict, stored, _('Expected a JSON object, such as {"id": 1}.'))  # type: ignore[no-any-return]


def read_dates(text: str) -> list[str]:
    """Read dates with spaces or commas between them; raise ValidationError."""
    try:
        return [date.fromisoformat(word).isoformat() for word in text.replace(",", " ").split()]
    except ValueError:
        expected = _("Expected dates such as 2030-12-31, got “%(text)s”.")
        raise ValidationError(expected % {"text": text[:100]}) from None


def _read(text: str, kind: type, stored: Any, expected: str) -> Any:
    try:
        value = decode_value(text or json.dumps(kind()))
    except ValueError as error:
        raise ValidationError(f"{expected} {in_words(error)}") from None
    if not isinstance(value, kind):
        raise ValidationError(expected)
    try:
        return unmask(value, stored, redact(stored))
    except ValueError as error:
        raise ValidationError(in_words(error)) from None


class TaskPathInput(forms.TextInput):
    """A line that offers the tasks which people may schedule, of those that are loaded."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        offered = f"{name}-offered"
        line = super().render(name, value, {**(attrs or {}), "list": offered}, renderer)
        paths = [(path,) for path in schedulable_paths()]
        options = format_html_join("", '<option value="{}"></option>', paths)
        return format_html('{}<datalist id="{}">{}</datalist>', line, offered, options)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """A schedule that a person makes, or what a person changes on one.

    A form that changes one carries what it showed at first, and only what is other than that
    counts: it may be older than the last deploy.
    """

    name = LineField(label=_label("name"), max_bytes=MAX_SCHEDULE_NAME_BYTES, strip=True)
    task_path = LineField(
        label=_label("task_path"),
        max_bytes=MAX_TASK_PATH_BYTES,
        strip=True,
        help_text=gettext_lazy("Its path; of a task that is declared with schedulable=True."),
    )
    args = _args_field(initial="[]")
    kwargs = _kwargs_field(initial="{}")
    cron = LineField(
        label=_label("cron"),
        max_bytes=MAX_LENGTH,
        required=False,
        strip=True,
        empty_value=None,
        help_text=gettext_lazy("Five fields, or six with the seconds first. Or else:"),
    )
    timezone = LineField(
        label=_label("timezone"),
        max_bytes=MAX_SCHEDULE_NAME_BYTES,
        strip=True,
        initial=get_default_timezone_name,
    )
    skipped_time = _choice("skipped_time", SKIPPED_TIMES, is_needed=False)
    repeated_time = _choice("repeated_time", REPEATED_TIMES, is_needed=False)
    except_dates = forms.CharField(
        label=_label("except_dates"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Dates such as 2026-12-24, with spaces between them."),
    )
    missed = _choice("missed", MISSED, is_needed=True)
    overlap = _choice("overlap", OVERLAPS, is_needed=True)

    class Meta:
        model = Schedule
        fields = ("name", *COLUMNS)
        # Not the schedule's own, in which its cron is read.
        help_texts: ClassVar[dict[str, Any]] = {
            "starts_at": CURRENT_ZONE,
            "ends_at": CURRENT_ZONE,
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (least, most) in SECONDS.items():
            field = self.fields[name]
            field.validators.append(MinValueValidator(least))
            if most is not None:
                field.validators.append(MaxValueValidator(most))
        if self.instance._state.adding:
            self.fields["task_path"].widget = TaskPathInput(attrs={"class": "vTextField"})
            return
        if self.instance.declared is not None:
            # Fields of a class stay, whatever the admin leaves out.
            for name in OF_CODE:
                self.fields.pop(name, None)
        # A form that is sent without having been drawn is about the row as it is now.
        is_drawn = not self.is_bound or self.add_initial_prefix("timezone") in self.data
        for field in self.fields.values():
            field.show_hidden_initial = is_drawn
        self.initial.update(shown_arguments(self.instance))
        # Not "86400.0".
        self.initial.update(
            {
                name: int(value)
                for name in SECONDS
                if isinstance(value := self.initial.get(name), float) and value.is_integer()
            }
        )
        self.initial["except_dates"] = " ".join(map(str, self.instance.except_dates))

    def clean_args(self) -> list[Any]:
        """Read a list, in which masks stand for what is stored."""
        return read_args(self.cleaned_data["args"], self.instance.args)

    def clean_kwargs(self) -> dict[str, Any]:
        """Read a dict, in which masks stand for what is stored."""
        return read_kwargs(self.cleaned_data["kwargs"], self.instance.kwargs)

    def clean_except_dates(self) -> list[str]:
        """Read dates, as the column has them."""
        return read_dates(self.cleaned_data["except_dates"])

    def clean(self) -> dict[str, Any]:
        """Check the whole as a declaration in code is checked."""
        data: dict[str, Any] = super().clean() or {}
        if self.errors:
            return data
        row = copy(self.instance)
        if not row._state.adding:
            as_before = data.keys() - set(self.changed_data)
            data |= {name: getattr(row, name) for name in as_before}
        for name, value in data.items():
            setattr(row, name, value)
        try:
            task = self._find(row)
            self._check_new(row)
            rule_of(row)
            policies_of(row, task)
            if row.declared is None and task is not None:
                check_arguments(task, row.args, row.kwargs)
        except (TypeError, ValueError) as error:
            self.add_error(_field_of(str(error), data), in_words(error))
        return data

    def _check_new(self, row: Schedule) -> None:
        """Refuse what could be stored and is meant otherwise."""
        is_new = row._state.adding
        changed = {name: getattr(row, name) for name in ("name", "cron")}
        for problem in find_mistakes(changed if is_new else {"cron": row.cron}):
            raise ValueError(problem)
        if is_new and row.name in declared_schedules():
            self.add_error("name", _("The code declares a schedule of this name."))
        ends = row.ends_at if "ends_at" in self.changed_data else None
        if ends and aware(ends) <= now_aware():
            self.add_error("ends_at", _("That is past: it would never be due."))

    def _find(self, row: Schedule) -> AnyTask | None:
        """Return the task; None if it is not here and need not be. Raise ValueError."""
        # From the settings, not from the row; drawing the page loads nothing.
        discover_tasks_once()
        try:
            task = find_task(row.task_path)
        except UnknownTask as error:
            if row.declared is not None:
                return None
            raise ValueError(f"task_path: {error}") from None
        # One that somebody made by SQL is; when it runs may be changed, and not what.
        is_made = not row._state.adding and not set(OF_CODE).intersection(self.changed_data)
        if row.declared is None and not is_made and not getattr(task, "schedulable", False):
            raise ValueError(
                f"task_path: {row.task_path} does not allow schedules that people make. Declare it "
                "with @task(schedulable=True)."
            )
        return task


def _field_of(problem: str, data: dict[str, Any]) -> str | None:
    """Return the field that a message of a check is about, None if it does not say."""
    columns = {"starts": "starts_at", "ends": "ends_at"}
    words = problem.replace(":", "").split()
    found = words[1] if words[:1] == ["expected"] and len(words) > 1 else words[0]
    name = columns.get(found, found)
    return name if name in data else None


class RunForm(forms.Form):
    """Other arguments for one run."""

    args = _args_field()
    kwargs = _kwargs_field()

    def __init__(self, row: Schedule, data: Any = None) -> None:
        super().__init__(data, initial=shown_arguments(row))
        self.row = row

    def clean_args(self) -> list[Any]:
        return read_args(self.cleaned_data["args"], self.row.args)

    def clean_kwargs(self) -> dict[str, Any]:
        return read_kwargs(self.cleaned_data["kwargs"], self.row.kwargs)


class AwareField(forms.DateTimeField):
    """An instant with its time zone, also with USE_TZ = False."""

    def to_python(self, value: Any) -> datetime | None:
        instant = super().to_python(value)
        return instant and aware(instant)


class BackfillForm(forms.Form):
    """Which past occurrences to enqueue."""

    begin = AwareField(
        label=gettext_lazy("From"),
        # No schedule is due before; and there is no instant before the year 1.
        validators=[MinValueValidator(datetime(1970, 1, 1, tzinfo=UTC))],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )
    end = AwareField(
        label=gettext_lazy("Until"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
        help_text=format_lazy("{} {}", gettext_lazy("Both included."), CURRENT_ZONE),
    )

    def clean(self) -> dict[str, Any]:
        """Refuse what the enqueue would, in the reader's language."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        begin, end = cleaned.get("begin"), cleaned.get("end")
        if begin and end and end < begin:
            self.add_error("end", _("Expected an end after the beginning."))
        elif end and end > now_aware():
            said = _("Expected an end that is past: later occurrences come by themselves.")
            self.add_error("end", said)
        return cleaned
