"""`manage.py runjobs`."""
from __future__ import annotations
from django.core.management.base import BaseCommand
import logging, sys
from django_pgjobs import client
from django_pgjobs.conf import automatic_concurrency, get_conf
from django_pgjobs.registry import discover_tasks
from django_pgjobs.worker.runner import Runner
from django_pgjobs.worker.shutdown import SignalPipe
from django_pgjobs.worker.state import Options
from django_pgjobs.worker.log import TextFormatter

class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("-c","--concurrency",type=int)
        parser.add_argument("--drain",action="store_true")
        parser.add_argument("--no-reload",action="store_true")
    def handle(self, **o):
        conf=get_conf(); discover_tasks()
        if o["verbosity"]>0:
            h=logging.StreamHandler(); h.setFormatter(TextFormatter()); l=logging.getLogger("django_pgjobs"); l.addHandler(h); l.setLevel(logging.INFO)
        opt=Options(database=client.job_database(), backends=("default",), concurrency=o["concurrency"] or automatic_concurrency(), async_concurrency=conf.ASYNC_CONCURRENCY, lease=conf.LEASE_SECONDS, poll_interval=conf.POLL_INTERVAL_SECONDS, shutdown_timeout=conf.SHUTDOWN_TIMEOUT_SECONDS, timeout_grace=conf.TIMEOUT_GRACE_SECONDS, retention=conf.RETENTION_SECONDS, failed_retention=conf.FAILED_RETENTION_SECONDS, max_attempts=conf.MAX_ATTEMPTS, max_payload_bytes=conf.MAX_PAYLOAD_BYTES, listen=conf.LISTEN, unknown_fails=conf.UNKNOWN_TASK=="fail", drain=o["drain"])
        pipe=SignalPipe()
        with pipe.installed():
            code=Runner(opt,pipe).run()
        sys.exit(code)
