"""The example's outside API over real HTTP, and what its answers mean for a job."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from django_pgjobs import Discard, Retry
from example_project.integrations import outside, outside_client
from example_project.integrations.outside import Catalogue, OutsideApi, Window


@pytest.fixture
def api(settings: Any) -> Iterator[OutsideApi]:
    """An outside API that admits a hundred calls a second, of number 9 only three."""
    with OutsideApi(limit=100) as running:
        running.limits[9] = 3
        settings.OUTSIDE_API_URL = running.url
        yield running


def send(integration: int, product: int, revision: int, **fields: Any) -> None:
    outside_client.send_product(integration, product, revision=revision, fields=fields)


# --- The API


def test_what_was_sent_is_there(api: OutsideApi) -> None:
    send(1, 5, 1, title="Mug", price=1290)
    send(1, 7, 1, price=300)
    send(2, 8, 1, price=400)
    assert api.product(1, 5) == {"title": "Mug", "price": 1290}
    assert outside_client.get_prices(1, after=0) == {5: 1290, 7: 300}
    assert outside_client.get_prices(1, after=5) == {7: 300}
    assert api.answers == {200: 5}


def test_an_older_revision_does_not_replace_a_newer_one() -> None:
    """Two syncs of a product may overtake each other; each field has a revision of its own."""
    catalogue = Catalogue()
    catalogue.put(5, 2, {"price": 200})
    catalogue.put(5, 1, {"price": 100, "title": "Mug"})
    assert catalogue.get(5) == {"price": 200, "title": "Mug"}


def test_the_window_slides() -> None:
    """S4.25: not a second of the clock, at whose turn twice as many could pass."""
    window = Window(2)
    assert [window.admits(at) for at in (0.5, 0.75, 1.0, 1.25, 1.4)] == [True, True] + [False] * 3
    assert [window.admits(at) for at in (1.5, 1.6, 1.75)] == [True, False, True]


def test_calls_above_the_limit_get_429_and_are_counted(api: OutsideApi) -> None:
    for number in range(3):
        send(9, number, 1, price=1)
    with pytest.raises(Retry, match=r"429: .*more than 3 calls in 1 s") as error:
        send(9, 4, 1, price=1)
    assert error.value.after == 1
    assert api.refused == 1
    send(1, 1, 1, price=1)


def test_the_api_is_down_now_and_then(settings: Any) -> None:
    with OutsideApi(limit=1000, fault_share=1.0) as api:
        settings.OUTSIDE_API_URL = api.url
        with pytest.raises(Retry, match="503") as error:
            send(1, 1, 1, price=1)
        assert error.value.after == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/integrations/1/products/5", {"revision": 1, "fields": {"price": 0}}, 400),
        ("PUT", "/integrations/1/products/5", {"fields": {}}, 400),
        ("PUT", "/integrations/1/products/5", [], 400),
        ("GET", "/integrations/1/products?limit=3", None, 400),
        ("PUT", "/integrations/1/products", {}, 405),
        ("GET", "/integrations/1/products/5", None, 405),
        ("GET", "/nothing", None, 404),
    ],
)
def test_a_wrong_call_is_not_made_again(
    api: OutsideApi, method: str, path: str, body: object, status: int
) -> None:
    """S4.23: a validation error will not go away by itself."""
    with pytest.raises(Discard, match=f"answered {status}"):
        outside_client.call(method, path, body)
    assert api.answers == {status: 1}


# --- Its answers


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_a_temporary_error_is_tried_again(status: int) -> None:
    """S4.23."""
    error = outside_client.verdict(status, "7", b"so it is")
    assert isinstance(error, Retry)
    assert error.after == 7
    assert str(error) == f"the outside API answered {status}: so it is"


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 422])
def test_any_other_error_is_final(status: int) -> None:
    error = outside_client.verdict(status, "7", b"")
    assert isinstance(error, Discard)
    assert str(error) == f"the outside API answered {status}"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        (" 30 ", 30),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("99999999999999999999", outside_client.LONGEST_RETRY_SECONDS),
    ],
)
def test_retry_after_is_read_if_it_makes_sense(header: str | None, seconds: float | None) -> None:
    assert outside_client.seconds_to_wait(header) == seconds


def test_no_answer_is_an_error_like_any_other(settings: Any) -> None:
    """The backoff of the task decides when to try again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.OUTSIDE_API_URL = f"http://127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(OSError, match="refused"):
        send(1, 1, 1, price=1)


def test_a_body_beyond_the_limit_is_not_read(api: OutsideApi) -> None:
    address = api.url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.putrequest("PUT", "/integrations/1/products/1")
    connection.putheader("Content-Length", str(outside.MAX_BODY_BYTES * 10))
    connection.endheaders(b" " * outside.MAX_BODY_BYTES)
    assert connection.getresponse().status == 400
    connection.close()
