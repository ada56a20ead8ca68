"""The steps of breadcrumbs that lead to a page."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from django_pgjobs.admin.pages import PageAdmin


def step(model_admin: PageAdmin, label: str, url_name: str) -> dict[str, str]:
    """Return a step of the breadcrumbs."""
    return {"label": label, "url": model_admin.url(url_name)}


def jobs_step(model_admin: PageAdmin) -> dict[str, str]:
    """Return the step to the list of jobs."""
    return step(model_admin, _("Jobs"), "pgjobs_job_changelist")


def batch_steps(model_admin: PageAdmin, *batches: Any) -> list[dict[str, str]]:
    """Return the steps to a batch: the list of workflows, and the batches that own it."""
    listed = step(model_admin, _("Workflows"), "pgjobs_batch_changelist")
    owners = [
        {"label": str(batch), "url": model_admin.url("pgjobs_batch_change", batch.pk)}
        for batch in batches
    ]
    return [listed, *owners]
