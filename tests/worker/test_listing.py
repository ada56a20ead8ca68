"""Where jobs are, and who hears that a key is free."""

from __future__ import annotations

import pytest

from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_job, make_worker
from tests.helpers import connect

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_list_of_lanes_names_the_lowest_priority_of_each(own: OwnConnection) -> None:
    make_job(priority=5)
    make_job(priority=-40)
    make_job(priority=-50, queue_name="other", concurrency_key="a")
    [listed] = own.round_trip([lambda cursor: claims.send_lane_listing(cursor, with_lowest=True)])
    assert sorted((row[1], row[2], row[4]) for row in listed) == [
        ("default", None, 40),
        ("other", 50, 50),
    ]


@pytest.mark.parametrize(
    ("listening", "key", "told"),
    [(True, "shop:1", ["other"]), (False, "shop:1", []), (True, "shop:2", [])],
)
def test_idle_workers_hear_of_a_key_that_others_wait_for(
    own: OwnConnection, listening: bool, key: str, told: list[str]
) -> None:
    """The job that ended had another queue than the one that waits."""
    make_worker(listening=listening)
    make_job(concurrency_key="shop:1", queue_name="other")
    with connect() as listener:
        listener.execute("LISTEN pgjobs")
        own.round_trip(
            [lambda cursor: claims.send_key_wakeup(cursor, channel="pgjobs", lanes=[f"{key}\n"])]
        )
        heard = [notice.payload for notice in listener.notifies(timeout=0.2)]
    assert heard == told
