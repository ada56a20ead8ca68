"""A worker that imports this tells of what stands still long before it ends because of it."""

from __future__ import annotations

from django_pgjobs.worker.process import health

health.LIVE_SECONDS = 2.5
