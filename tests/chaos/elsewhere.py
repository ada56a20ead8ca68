"""A worker over HTTP as a program: `python -m tests.chaos.elsewhere URL TOKEN NAME`.

It runs the remote tasks of `tasks` and says so in the journal, as those of our own workers do.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients/python"))

import django
from pgjobs_worker import Job, Retry, Worker

TASKS = "tests.chaos.tasks."


def run(
    job: Job, token: str, seconds: float = 0.0, mishap: float = 0.0, key: str | None = None
) -> str:
    """Take *seconds*, and fail with the probability *mishap*."""
    from tests.chaos.journal import BEGIN, END, Journal

    journal = Journal()
    facts = {"token": token, "job": int(job.fields["job"]), "process": os.getpid()}
    facts["what"] = job.fields["assignment"]
    journal.write(BEGIN, **facts)
    job.sleep(seconds)
    if random.random() < mishap:
        raise Retry(token, after=0.1)
    job.check()
    journal.write(END, **facts)
    return token


def main() -> None:
    """Work until it is told to stop."""
    django.setup()  # for the models that tests.tasks names
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    url, token, name = sys.argv[1:]
    worker = Worker(url, token, name=name, slots=3, grace=3)
    for task in ("elsewhere", "elsewhere_in_order", "elsewhere_beside"):
        worker.task(TASKS + task)(run)
    worker.run()


if __name__ == "__main__":
    main()
