"""The pages of the integration service, for the customers of it."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from example_project.integrations import limits
from example_project.integrations.models import Integration
from example_project.integrations.status import status_of, unfinished_by_key
from example_project.integrations.syncing import resync

LISTED = 60


@require_safe
def integration_list(request: HttpRequest) -> HttpResponse:
    """Show the newest integrations and what each has left to do."""
    newest = Integration.objects.annotate(size=Count("products")).order_by("-pk")[:LISTED]
    left = unfinished_by_key()
    rows = [(integration, left[limits.concurrency_key(integration.pk)]) for integration in newest]
    context = {"rows": rows, "waiting": any(jobs for _, jobs in rows)}
    return render(request, "integrations/list.html", context)


@require_safe
def integration_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Show what was sent, what waits and what went wrong."""
    integration = get_object_or_404(Integration, pk=pk)
    context = {
        "integration": integration,
        "products": integration.products.count(),
        "calls_per_second": limits.calls_per_second(integration.plan),
        "status": status_of(integration),
    }
    return render(request, "integrations/integration.html", context)


@require_POST
def start_resync(request: HttpRequest, pk: int) -> HttpResponse:
    """Send the whole catalogue again, as often as the customer likes."""
    integration = get_object_or_404(Integration, pk=pk)
    jobs = resync(integration.pk)
    messages.success(request, f"{jobs} products will be sent again.")
    return redirect(integration)
