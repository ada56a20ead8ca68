"""Where callbacks may go, and where not."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from django_pgjobs.conf import find_problems
from django_pgjobs.exceptions import CallBackFailed
from django_pgjobs.http import destinations
from django_pgjobs.http.destinations import destination_of, find_addresses, may_be_called

PRIVATE = [
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "2002:0a00:0001::",
    "64:ff9b::10.0.0.1",
    "2001:0:53aa:64c:0:0:f5ff:fffe",
]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.0.8",
    "192.0.0.192",
    "192.88.99.1",
    "fd00:ec2::254",
    "100.100.100.200",
    "64:ff9b::100.100.100.200",
]
PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::93.184.216.34"]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_called_if_the_setting_says_so(address: str) -> None:
    assert not may_be_called(address, may_be_private=False)
    assert may_be_called(address, may_be_private=True)


@pytest.mark.parametrize("address", NEVER)
def test_an_odd_address_is_never_called(address: str) -> None:
    """Not that of a cloud's secrets either."""
    assert not may_be_called(address, may_be_private=False)
    assert not may_be_called(address, may_be_private=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_called(address: str) -> None:
    assert may_be_called(address, may_be_private=False)


HOSTS = ["a.example", ".b.example", "c.example:8443", "http://d.example:8000", "[2606::1]"]


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/",
        "https://a.example",
        "HTTPS://A.Example:443/path?query=%20",
        "https://a.example./",
        "https://b.example/",
        "https://x.y.b.example/",
        "https://c.example:8443/",
        "http://d.example:8000/",
        "https://[2606::1]/",
    ],
)
def test_an_address_of_the_setting_is_taken(url: str, settings: Any) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": HOSTS}
    assert destination_of(url).path.startswith("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/",
        "https://a.example:8443/",
        "https://c.example/",
        "https://d.example:8000/",
        "https://x.a.example/",
        "https://notb.example/",
        "https://a.example.evil.example/",
        "https://a.example@evil.example/",
        "https://user:password@a.example/",
        "https://evil.example\\@a.example/",
        "https://a.example#@evil.example/",
        "https://a.example/\r\nX-Evil: 1",
        "https://a.example/ x",
        "https://a.exämple/",
        "https://a.example:99999/",
        "https://a.example:/x:y@evil.example:port",
        "https://[::1/",
        "https://",
        "//a.example/",
        "a.example",
        "file:///etc/passwd",
        "gopher://a.example/",
        "https://a.example/" + "x" * 2_000,
        "",
        None,
        5,
    ],
)
def test_another_address_is_refused(url: Any, settings: Any) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": HOSTS}
    if url == "https://a.example:/x:y@evil.example:port":
        # An empty port is the scheme's own; what stands behind the slash is a path.
        assert destination_of(url).host == "a.example"
        return
    with pytest.raises(ValueError, match="expected an address"):
        destination_of(url)


def test_without_the_setting_no_host_is_called(settings: Any) -> None:
    settings.PGJOBS = {}
    with pytest.raises(ValueError, match="CALLBACK_HOSTS"):
        destination_of("https://a.example/")


@pytest.mark.parametrize(
    "host", ["", "*", "a.example/path", "ftp://a.example", "user@a.example", "A.example", "a:port"]
)
def test_the_setting_holds_hosts(host: str) -> None:
    [(_, fact, _)] = find_problems({"CALLBACK_HOSTS": [host]})
    assert "CALLBACK_HOSTS" in fact


def test_a_secret_is_long_and_not_shown() -> None:
    [(_, fact, _)] = find_problems({"CALLBACK_SECRET": "a short one"})
    assert "32 characters" in fact
    assert "a short one" not in fact


def leading_to(*addresses: str) -> Any:
    """Return what takes the place of getaddrinfo."""

    def look_up(host: str, port: int, **options: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses
        ]

    return look_up


def test_of_several_addresses_the_public_ones_are_called(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": HOSTS}
    monkeypatch.setattr(destinations.socket, "getaddrinfo", leading_to("10.0.0.1", "93.184.216.34"))
    [place] = find_addresses(destination_of("https://a.example/"))
    assert place.address == ("93.184.216.34", 443)


def test_a_name_that_leads_inside_is_not_called(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": HOSTS}
    monkeypatch.setattr(destinations.socket, "getaddrinfo", leading_to("10.0.0.1", "127.0.0.1"))
    with pytest.raises(CallBackFailed, match=r"leads to 10\.0\.0\.1, 127\.0\.0\.1"):
        find_addresses(destination_of("https://a.example/"))


@pytest.mark.parametrize("allowed", [False, True])
def test_the_setting_is_named_only_where_it_would_help(
    monkeypatch: pytest.MonkeyPatch, settings: Any, allowed: bool
) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": HOSTS, "CALLBACK_ALLOW_PRIVATE": allowed}
    monkeypatch.setattr(destinations.socket, "getaddrinfo", leading_to("169.254.169.254"))
    with pytest.raises(CallBackFailed, match=r"leads to 169\.254\.169\.254: .* never called\.$"):
        find_addresses(destination_of("https://a.example/"))
