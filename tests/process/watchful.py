"""A worker that imports this soon loses patience with what stands still; see `impatient`."""

from __future__ import annotations

from django_pgjobs.worker.process import supervisor, vitals

vitals.STILL_SECONDS = 3.0
supervisor.SILENT_SECONDS = 2.0
