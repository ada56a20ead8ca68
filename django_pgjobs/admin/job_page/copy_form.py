"""Enqueueing a copy of a job, with other arguments if one likes.

The person sees masked arguments. What is still masked when the form comes back stands for the
value of the job it is a copy of: the server puts it in, the browser never had it.
"""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin import audit
from django_pgjobs.admin.breadcrumbs import jobs_step
from django_pgjobs.admin.job_page.page import draw_missing, find_job, is_revealed
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.compat import AnyTask, InvalidTask, task_backends
from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.redaction import MASK, redact
from django_pgjobs.declaring.registry import discover_tasks_once, find_task
from django_pgjobs.declaring.signatures import check_signature, signature_of
from django_pgjobs.declaring.subjects import Subject
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.exceptions import DuplicateJob, JobError, UnknownTask
from django_pgjobs.models import Job
from django_pgjobs.models.fields import Undecodable
from django_pgjobs.permissions import Verb, may, narrow, require, visible_ids
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.values.bounds import MAX_PRIORITY, MIN_PRIORITY
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.payload import decode_value, encode_value

OUT_OF_REACH = gettext_lazy("You may not enqueue this job there.")


class StillMasked(ValueError):
    """A mask is at a place where the job has no masked value."""


class CopyForm(forms.Form):
    """The arguments and options of the copy, checked against the task's function."""

    args = forms.CharField(
        label=gettext_lazy("Positional arguments"),
        help_text=gettext_lazy("A JSON list."),
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "dir": "ltr"}),
    )
    kwargs = forms.CharField(
        label=gettext_lazy("Keyword arguments"),
        help_text=gettext_lazy("A JSON object."),
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false", "dir": "ltr"}),
    )
    queue_name = forms.CharField(label=gettext_lazy("Queue"), max_length=128)
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"),
        min_value=MIN_PRIORITY,
        max_value=MAX_PRIORITY,
        help_text=gettext_lazy("-100 to 100; higher runs first."),
    )
    run_after = forms.DateTimeField(
        label=gettext_lazy("Run after"),
        required=False,
        help_text=format_lazy("{} {}", gettext_lazy("Empty: now."), CURRENT_ZONE),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )

    def __init__(
        self, *args: Any, job: Job, task: AnyTask | None, by: str = "", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.job = job
        self.task = task
        self.by = by
        self.bound_task: AnyTask | None = None

    def clean_args(self) -> list[Any]:
        return self._value("args", list, _("Expected a JSON list, such as [1, 2]."))  # type: ignore[no-any-return]

    def clean_kwargs(self) -> dict[str, Any]:
        return self._value("kwargs", dict, _('Expected a JSON object, such as {"id": 1}.'))  # type: ignore[no-any-return]

    def _value(self, name: str, kind: type, expected: str) -> Any:
        try:
            value = decode_value(self.cleaned_data[name])
        except ValueError as error:
            raise forms.ValidationError(f"{expected} {in_words(error)}") from None
        if not isinstance(value, kind):
            raise forms.ValidationError(expected)
        stored = getattr(self.job, name)
        try:
            value = unmask(value, stored, redact(stored))
            encode_value(value, name=name, max_bytes=get_conf().MAX_PAYLOAD_BYTES)
        except (TypeError, ValueError) as error:
            raise forms.ValidationError(in_words(error)) from None
        return value

    def clean(self) -> dict[str, Any]:
        """Check the arguments against the task's function, and the options as `using` does."""
        data = self.cleaned_data
        if self.task is None:
            raise forms.ValidationError(
                _("The task is not declared in this deployment, so it cannot be enqueued here.")
            )
        if "args" in data and "kwargs" in data:
            try:
                check_signature(self.task, data["args"], data["kwargs"])
            except TypeError as error:
                field = "args" if data["args"] and not data["kwargs"] else "kwargs"
                self.add_error(field, in_words(error))
        if {"queue_name", "priority", "run_after"} <= data.keys():
            try:
                self.bound_task = copied_task(self.task, self.job, data, by=self.by)
            except (InvalidTask, TypeError, ValueError) as error:
                self.add_error(_field_of(str(error)), in_words(error))
        return data


def unmask(given: Any, stored: Any, masked: Any) -> Any:
    """Return *given* with the masks in it replaced by what *stored* has at the same place.

    *masked* is *stored* as the person saw it. Raise StillMasked if a mask stands for nothing, or
    nobody can tell for what: in a list that is longer or shorter now, an item with a mask must
    be as it was, and the only one that looks like that.
    """
    if not _has_mask(given):
        return given
    if isinstance(given, dict):
        stored, masked = (side if isinstance(side, dict) else {} for side in (stored, masked))
        return {
            name: unmask(item, stored.get(name), masked.get(name)) for name, item in given.items()
        }
    if isinstance(given, list):
        return _unmask_list(given, stored, masked)
    if masked != MASK:
        raise StillMasked(_("A masked value can stay where it was or be replaced, not moved."))
    return stored


def _unmask_list(given: list[Any], stored: Any, masked: Any) -> list[Any]:
    if not isinstance(stored, list) or not isinstance(masked, list):
        stored, masked = [], []
    shown = [_text(item) for item in masked]
    found: list[Any] = []
    for index, item in enumerate(given):
        if not _has_mask(item):
            found.append(item)
        elif shown.count(_text(item)) == 1:
            found.append(stored[shown.index(_text(item))])
        elif len(given) == len(masked):
            found.append(unmask(item, stored[index], masked[index]))
        else:
            raise StillMasked(_("Items with masked values can stay as they were, or be replaced."))
    return found


def _has_mask(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    return any(map(_has_mask, value)) if isinstance(value, list) else value == MASK


def _text(value: Any) -> str:
    # Not "==", for which 1, 1.0 and true are the same.
    return json.dumps(value, sort_keys=True)


def _field_of(problem: str) -> str | None:
    """Return the field of the form that the message about an option speaks of."""
    fields = {"queue": "queue_name", "priority": "priority", "run_after": "run_after"}
    return next((field for word, field in fields.items() if word in problem.lower()), None)


def copied_task(task: AnyTask, job: Job, data: dict[str, Any], *, by: str = "") -> AnyTask:
    """Return *task* with the options of *job*, but for those that *data* has.

    The metadata says who enqueued the copy, and of what. Raise InvalidTask for an option that
    cannot be.
    """
    options = {name: data[name] for name in ("queue_name", "priority", "run_after")}
    if job.backend in task_backends.settings:
        options["backend"] = job.backend
    if not isinstance(task, Task):
        return task.using(**options)
    metadata = job.metadata if isinstance(job.metadata, dict) else {}
    return task.using(
        **options,
        max_attempts=job.max_attempts,
        max_losses=job.max_losses,
        timeout=job.timeout,
        correlation_id=job.correlation_id,
        tags=[tag for tag in job.tags if isinstance(tag, str) and tag],
        metadata=metadata | {"enqueued_by": by, "copy_of": job.pk},
        subject=Subject(job.subject) if job.subject else None,
    )


def draw_copy(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page with the form, or enqueue what came back with it."""
    require(request, Verb.ENQUEUE)
    job = find_job(request, object_id)
    if job is None:
        return draw_missing(model_admin, request, object_id)
    require(request, Verb.ENQUEUE, job)
    if request.method == "POST":
        # From the settings, not from the row; drawing the page loads nothing.
        discover_tasks_once()
    task = _find(job.task_path)
    is_readable = not any(isinstance(value, Undecodable) for value in (job.args, job.kwargs))
    form = None
    if is_readable and request.method == "POST":
        form = CopyForm(request.POST, job=job, task=task, by=request.user.get_username())
        if form.is_valid() and form.bound_task is not None:
            response = _enqueue(model_admin, request, form, form.bound_task)
            if response is not None:
                return response
    elif is_readable:
        form = CopyForm(job=job, task=task, initial=_initial(job, reveal=is_revealed(request, job)))
    context = {
        "title": _("Enqueue a copy"),
        "subtitle": str(job),
        "steps": [
            jobs_step(model_admin),
            {"label": f"#{job.pk}", "url": model_admin.url("pgjobs_job_change", job.pk)},
        ],
        "job": job,
        "form": form,
        "signature": _signature(task),
        "is_masked": form is not None and not form.is_bound and MASK in str(form.initial),
        "may_reveal": may(request.user, Verb.REVEAL, job),
    }
    return model_admin.render_page(request, "job_copy.html", context)


def _require_reach(user: Any, job_id: int | None) -> None:
    """Raise ValueError if *user* may not enqueue such a job as this one, new or met by its key."""
    if job_id is None:
        return
    if not narrow(user, Verb.ENQUEUE, rows_of(Job).filter(pk=job_id)).exists():
        raise ValueError(OUT_OF_REACH)


def _find(path: str) -> AnyTask | None:
    try:
        return find_task(path)
    except UnknownTask:
        return None


def _signature(task: AnyTask | None) -> str:
    if task is None:
        return ""
    name = task.module_path.rpartition(".")[2]
    return f"{name}{signature_of(task.func, task.takes_context).text}"


def _initial(job: Job, *, reveal: bool) -> dict[str, Any]:
    def text(value: Any) -> str:
        shown = value if reveal else redact(value)
        return json.dumps(shown, indent=2, ensure_ascii=False)

    return {
        "args": text(job.args),
        "kwargs": text(job.kwargs),
        "queue_name": job.queue_name,
        "priority": job.priority,
    }


def _enqueue(
    model_admin: PageAdmin, request: HttpRequest, form: CopyForm, task: AnyTask
) -> HttpResponseRedirect | None:
    """Enqueue the copy and lead to its page; None, with an error in the form, if it cannot be."""
    data, job = form.cleaned_data, form.job
    newest = rows_of(Job).order_by("-pk").values_list("pk", flat=True).first() or 0
    try:
        with transaction.atomic(using=job_database()):
            result = task.enqueue(*data["args"], **data["kwargs"])
            copy_id = parse_job_id(result.id)
            _require_reach(request.user, copy_id)
    except DuplicateJob as error:
        is_seen = error.job_id is None or visible_ids(request.user, [error.job_id])
        form.add_error(None, str(error) if is_seen else OUT_OF_REACH)
        return None
    except (InvalidTask, JobError, TypeError, ValueError) as error:
        form.add_error(None, in_words(error))
        return None
    if copy_id is None:
        messages.success(request, _("Enqueued as %(id)s.") % {"id": result.id})
        return HttpResponseRedirect(model_admin.url("pgjobs_job_change", job.pk))
    if copy_id > newest:
        messages.success(request, _("Enqueued as job %(id)s.") % {"id": copy_id})
    else:
        text = _("No new job: this one has the unique key already, and stands for the copy.")
        messages.warning(request, text)
    copy = Job(pk=copy_id, task_path=job.task_path)
    audit.record(request.user, "enqueue", job=copy, target=f"copy of #{job.pk}", count=1)
    return HttpResponseRedirect(model_admin.url("pgjobs_job_change", copy_id))
