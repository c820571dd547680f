"""Hosts and web origins as text: parsed and normalised, so that two spellings of one host or origin compare equal.

Host: https://www.rfc-editor.org/rfc/rfc9110#section-7.2. Origin: https://www.rfc-editor.org/rfc/rfc6454#section-7.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{0,5}))?")
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#@\\]+)")
_PORTS = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Authority(NamedTuple):
    """A host in its normal form (lower case, no trailing dot, no brackets); ``port`` is None when it is not given."""

    host: str
    port: int | None


class WebOrigin(NamedTuple):
    """The origin of a web page; ``port`` is None only for a scheme that has no default one."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        """Write it as browsers do: without the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    def serves(self, authority: Authority) -> bool:
        """Return whether a request of a page of this origin to ``authority`` (a Host header) stays within the origin.

        The scheme may be http or https: a proxy that ends TLS passes the Host header on, and the service cannot see what it spoke.
        """
        default = _PORTS.get(self.scheme)
        return default is not None and self.host == authority.host and self.port == (authority.port or default)


def parse_authority(text: str) -> Authority:
    """Parse ``host[:port]``; raises ``ValueError`` for anything else: user names, blanks, other characters."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a host, with or without a port")
    host, port = found.groups()
    number = int(port) if port else None
    if number is not None and not 0 < number < 65536:
        raise ValueError(f"{text[:80]!r} has an invalid port")
    if host.startswith("["):
        return Authority(str(ipaddress.IPv6Address(host[1:-1])), number)
    name = host.lower().removesuffix(".")
    if not name or len(name) > 253 or "" in name.split("."):
        raise ValueError(f"{text[:80]!r} is not a host name")
    return Authority(name, number)


def parse_origin(text: str) -> WebOrigin:
    """Parse ``scheme://host[:port]``; raises ``ValueError`` for anything else: ``null``, a path, a trailing slash."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not an origin; write scheme://host or scheme://host:port, without a path")
    scheme = found[1].lower()
    host, port = parse_authority(found[2])
    return WebOrigin(scheme, host, port or _PORTS.get(scheme))


def parse_address(host: str) -> Address | None:
    """Return the IP address that ``host`` is, an IPv4 one also for its form in IPv6; None for a name."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def is_loopback(host: str) -> bool:
    """Return whether ``host``, in its normal form, is this machine to itself: ``localhost``, names below it, a loopback address."""
    address = parse_address(host)
    return host == "localhost" or host.endswith(".localhost") if address is None else address.is_loopback
