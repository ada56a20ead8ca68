"""The hosts that may be called, as a setting names them."""

from __future__ import annotations

import re
from typing import NamedTuple

# Perhaps a scheme, a name (with a dot before it: all below it, too) or an address, perhaps a port.
HOST = re.compile(
    r"(?:(https?)://)?(\.?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?"
)
PORTS = {"https": 443, "http": 80}


class Hosts(NamedTuple):
    """The hosts that an entry of the setting stands for."""

    scheme: str
    name: str
    port: int

    def has(self, scheme: str, host: str, port: int) -> bool:
        """Is it one of them?"""
        if (scheme, port) != (self.scheme, self.port):
            return False
        if self.name.startswith("."):
            return host == self.name[1:] or host.endswith(self.name)
        return host == self.name


def hosts_of(entry: str) -> Hosts:
    """Return what an entry stands for; without a scheme it is https, without a port its own."""
    found = HOST.fullmatch(entry)
    if found is None:
        raise ValueError(f"expected a host such as 'example.com', got {entry!r}.")
    scheme = found[1] or "https"
    return Hosts(scheme, found[2].strip("[]"), int(found[3] or PORTS[scheme]))
