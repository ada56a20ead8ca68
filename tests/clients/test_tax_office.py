"""The example's programs of the tax office: the one in Node.js, and that of machines without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from django_pgjobs.models import Job
from example_project.payroll.demo.web import OFFICE
from example_project.payroll.paying import deduct_taxes
from tests.clients.server import Server
from tests.clients.support import command_of
from tests.factories import make_token
from tests.helpers import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("language", "suffix"), [("python", ".py"), ("node", ".mjs")])
def test_it_deducts_what_the_stand_in_of_tests_does(
    server: Server, language: str, suffix: str
) -> None:
    pay = {"employee": 7, "amount": 1_001}
    job = deduct_taxes.enqueue(pay)
    wrong = deduct_taxes.enqueue({"employee": 8, "amount": "a lot"})
    program = subprocess.Popen(
        [command_of(language)[0], f"{OFFICE}{suffix}"],
        env=os.environ
        | {
            "URL": f"http://{server.backend}/pgjobs/api/",
            "TOKEN": make_token(verbs=["work"], queues=["taxes"]),
        },
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        start_new_session=True,
    )
    try:
        wait_until(lambda: Job.objects.get(pk=job.id).status == "successful")
        assert Job.objects.get(pk=job.id).result == deduct_taxes.func(pay)
        wait_until(lambda: Job.objects.get(pk=wrong.id).status == "failed")
        program.send_signal(signal.SIGTERM)
        assert program.wait(WAIT_SECONDS) == 0
    finally:
        program.kill()
        program.wait()
