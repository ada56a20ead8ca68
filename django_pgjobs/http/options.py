"""What the parts of the engine are told of workers over HTTP."""

from __future__ import annotations

from collections.abc import Iterable

from django_pgjobs.backend import our_aliases
from django_pgjobs.conf import get_conf
from django_pgjobs.queries.database import job_database
from django_pgjobs.worker.state import Options


def make_options(
    queues: Iterable[str] | None = None, backends: Iterable[str] | None = None
) -> Options:
    """Return what the parts of the engine are told of a worker over HTTP."""
    conf = get_conf()
    return Options(
        database=conf.WORKER_DATABASE or job_database(),
        backends=tuple(our_aliases() if backends is None else backends),
        queues=None if queues is None else tuple(queues),
        concurrency=1,
        async_concurrency=1,
        lease=lease_seconds(),
        poll_interval=conf.POLL_INTERVAL_SECONDS,
        shutdown_timeout=0.0,
        timeout_grace=0.0,
        retention=None,
        failed_retention=None,
        max_attempts=conf.MAX_ATTEMPTS,
        max_losses=conf.MAX_LOSSES,
        max_payload_bytes=conf.MAX_PAYLOAD_BYTES,
        listen=conf.LISTEN,
        unknown_fails=False,
    )


def lease_seconds() -> float:
    """Return how long the lease of a worker over HTTP lasts: three heartbeats."""
    return 3 * get_conf().HTTP_HEARTBEAT_SECONDS
