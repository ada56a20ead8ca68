"""Where callbacks may go: the hosts of a setting, at addresses that are not private.

The address that was checked is the one that is connected to: a name that is looked up a second
time may lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django_pgjobs.conf import get_conf
from django_pgjobs.exceptions import CallBackFailed
from django_pgjobs.values.hosts import PORTS, hosts_of

MAX_URL = 2_000
# What stands in a request as it is: no spaces, controls and backslashes, which readers of
# addresses take for different things.
PLAIN = re.compile(r"[!-\[\]-~]+")
# Where a translator of addresses keeps one of the old kind.
TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
# Hosts of this network, relays to the new kind of addresses, and where clouds tell secrets at
# addresses that are no links'. Older versions of Python take some of 192.0.0.0/24 for public.
NEVER = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "100.100.100.200/32",
        "fd00:ec2::/32",
    )
]

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


class Destination(NamedTuple):
    """An address on the web, in its parts; *path* has the query, too."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The host and port as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class SocketAddress(NamedTuple):
    """A socket's family and address."""

    family: int
    address: Any


def destination_of(url: object) -> Destination:
    """Return the parts of an address; raise ValueError if no callback may go there."""
    if not isinstance(url, str) or len(url) > MAX_URL or not PLAIN.fullmatch(url):
        raise ValueError(
            f"expected an address of up to {MAX_URL} ASCII characters without spaces, got "
            f"{url!r:.100}."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"expected an address such as https://host/path: {error}") from None
    scheme, host = parts.scheme, (parts.hostname or "").rstrip(".")
    if scheme not in PORTS or not host or parts.username is not None or parts.fragment:
        raise ValueError(
            "expected an address such as https://host/path, without a name, a password or a "
            f"fragment, got one with scheme {scheme!r} and host {host!r}."
        )
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    found = Destination(scheme, host, PORTS[scheme] if port is None else port, path)
    known = map(hosts_of, get_conf().CALLBACK_HOSTS)
    if not any(hosts.has(scheme, host, found.port) for hosts in known):
        raise ValueError(
            f"expected an address of PGJOBS['CALLBACK_HOSTS'], got {scheme}://{found.authority}."
        )
    return found


def find_addresses(destination: Destination) -> list[SocketAddress]:
    """Look the host up, once; return the addresses to connect to.

    Raise CallBackFailed if all of it is private, OSError if the name is not known.
    """
    found = socket.getaddrinfo(
        destination.host, destination.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    may_be_private = get_conf().CALLBACK_ALLOW_PRIVATE
    addresses = [
        SocketAddress(family, address)
        for family, _, _, _, address in found
        if may_be_called(str(address[0]), may_be_private=may_be_private)
    ]
    if not addresses:
        raise _not_called(destination.host, {str(address[0]) for *_, address in found})
    return addresses


def _not_called(host: str, addresses: set[str]) -> CallBackFailed:
    why = "such addresses are never called."
    if any(may_be_called(address, may_be_private=True) for address in addresses):
        why = "private addresses are not called, unless PGJOBS['CALLBACK_ALLOW_PRIVATE'] is on."
    return CallBackFailed(f"{host} leads to {', '.join(sorted(addresses))}: {why}")


def may_be_called(text: str, *, may_be_private: bool) -> bool:
    """May a callback go to this address? Never to one of a link, or where clouds tell secrets."""
    address = _innermost(ipaddress.ip_address(text.partition("%")[0]))
    if address.is_loopback:
        return may_be_private
    is_odd = (
        address.is_multicast
        or address.is_unspecified
        or address.is_link_local
        or address.is_reserved
        or getattr(address, "is_site_local", False)
        or any(address in network for network in NEVER)
    )
    return not is_odd and (address.is_global or may_be_private)


def _innermost(address: Ip) -> Ip:
    """Return the address of the old kind that one of the new kind stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    tunnelled = address.teredo
    inner = address.ipv4_mapped or address.sixtofour or (tunnelled[1] if tunnelled else None)
    if inner is None and address in TRANSLATED:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inner is None else inner
