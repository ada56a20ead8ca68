"""A database that Django's connections may only read: commands and workers say so, in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgjobs.models import Batch, Job, Token
from tests.factories import make_batch, make_job, make_token, make_worker
from tests.helpers import connect

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def read_only_session() -> Iterator[None]:
    """Let the session of the test write nothing from the first command on."""
    make_job(status="failed")
    make_job(queue_name="mail")
    make_worker()
    make_token()
    make_batch(name="open", sealed_at=None)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        yield
        cursor.execute("RESET default_transaction_read_only")


@pytest.fixture
def read_only_database() -> Iterator[None]:
    """Let new sessions write nothing, unless they switch that off as the worker's own do."""
    name = connection.settings_dict["NAME"]
    with connect() as other:
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        yield
        other.execute("SET default_transaction_read_only = off")
        other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


@pytest.mark.usefixtures("read_only_session")
@pytest.mark.parametrize(
    "words",
    [
        "requeue --queue default --yes",
        "cancel --queue mail --yes",
        "reschedule --queue mail --now --yes",
        "pause --queue mail",
        "resume --queue mail",
        "enqueue tests.tasks.add --args [1,2]",
        "limits rate shopify --count 20 --period 1",
        "limits key shop:* --max-running 2",
        "limits queue mail --max-running 2",
        "limits remove queue mail",
        "limits reset shopify:1",
        "mute unserved reports --for 2h --reason new",
        "unmute unserved reports",
        "tokens create node --may work",
        "schedules run nightly",
        "schedules pause nightly",
        "schedules skip nightly",
        "workers quiet all",
        "workers stop all",
        "workers forget all",
    ],
)
def test_a_command_that_may_not_write_ends_with_3_and_says_why(words: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("jobs", *words.split())
    assert str(caught.value).startswith("the database 'default' takes no writes: cannot execute ")
    assert "read-only transaction. Lead DATABASES" in str(caught.value)
    assert (caught.value.returncode, "\n" in str(caught.value)) == (3, False)


@pytest.mark.usefixtures("read_only_session")
@pytest.mark.parametrize(
    ("verb", "find"),
    [
        ("requeue", lambda: Job.objects.get(status="failed")),
        ("cancel", lambda: Job.objects.get(status="ready")),
        ("tokens revoke", Token.objects.get),
        ("tokens rotate", Token.objects.get),
        ("workflows cancel", Batch.objects.get),
        ("workflows seal", Batch.objects.get),
    ],
)
def test_a_row_that_may_not_be_changed_ends_with_3_too(verb: str, find: Callable[[], Any]) -> None:
    words = [*verb.split(), str(find().pk)]
    with pytest.raises(CommandError, match=r"^the database 'default' takes no writes: ") as caught:
        call_command("jobs", *words)
    assert caught.value.returncode == 3


@pytest.mark.usefixtures("read_only_database")
@pytest.mark.parametrize("flags", [("--check",), ("--drain",)], ids=" ".join)
def test_a_worker_whose_jobs_could_not_write_does_not_start(flags: tuple[str, ...]) -> None:
    """Its own connections can: they switch the default off."""
    with pytest.raises(CommandError, match=r"^the database 'default' takes no writes: ") as caught:
        call_command("runjobs", *flags)
    assert caught.value.returncode == 3
