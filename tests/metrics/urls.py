"""The address of the metrics, as docs/metrics.md has it."""

from __future__ import annotations

from django.urls import path

from django_pgjobs.metrics.views import metrics

urlpatterns = [path("pgjobs/metrics/", metrics)]
