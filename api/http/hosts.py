"""The names under which a server may be asked: what the ``Host`` header of a request must be.

A name of an attacker's can be made to lead to a loopback address (DNS rebinding). A browser then takes the service for a part of the
attacker's site, so that only the name shows the attack. Ports are not compared: a forwarded port has another number, and no bearing.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from drumlin.api.http.problems import HostInvalid, HostRefused
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.authority import (
    Address,
    Authority,
    WebOrigin,
    is_loopback,
    parse_address,
    parse_authority,
    parse_origin,
)


class Hosts:
    """The hosts of one server, which listens on ``address``: loopback, that address, the base's host, and the setting ``hosts``.

    A server that listens on all addresses (``0.0.0.0``, ``::``) has those that this machine has at the time.
    """

    def __init__(self, settings: Settings, address: str) -> None:
        listed = [each for each in settings.hosts if not each.startswith("*.")]
        base = base_origin(settings)
        self._names = {*map(_normal, listed), _normal(address), *([base.host] if base else [])}
        self._endings = tuple(each[1:] for each in settings.hosts if each.startswith("*."))
        listening = parse_address(address)
        self._everywhere = listening is not None and listening.is_unspecified

    def check(self, values: Sequence[bytes]) -> Authority:
        """Return what the ``Host`` headers of one request name; raises ``HostInvalid`` and ``HostRefused``."""
        if len(values) > 1:
            raise HostInvalid(f"the request has {len(values)} Host headers", hint="send one")
        if not values or not values[0]:
            raise HostInvalid("the request has no Host header", hint="send one, as HTTP/1.1 demands")
        text = values[0].decode("latin-1")
        try:
            found = parse_authority(text)
        except ValueError as error:
            raise HostInvalid(f"the Host header is invalid: {error}", hint="send host or host:port") from error
        if not self._has(found.host):
            raise HostRefused(
                f"{found.host} is not a host of this service",
                hint=f'if it leads here, add it to drumlin.toml: hosts = ["{found.host}"]',
                detail={"host": found.host},
            )
        return found

    def _has(self, host: str) -> bool:
        if _normal(host) in self._names or host.endswith(self._endings) or is_loopback(host):
            return True
        address = parse_address(host) if self._everywhere else None
        return address is not None and _is_here(address)


def base_origin(settings: Settings) -> WebOrigin | None:
    """Return the origin of the base of all names; None for a base whose host is such that no browser sends it."""
    try:
        return parse_origin("/".join(settings.base.split("/", 3)[:3]))
    except ValueError:
        return None


def _normal(host: str) -> str:
    return host.lower() if (address := parse_address(host)) is None else str(address)


def _is_here(address: Address) -> bool:
    """Return whether this machine has the address: only then can a socket be bound to it."""
    if address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
