"""A worker that imports this keeps claimed jobs for ever that no slot has begun to run."""

from __future__ import annotations

from django_pgjobs.worker.claiming import pump

pump.HOARD_SECONDS = 3600.0
