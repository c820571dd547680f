"""The addresses of this machine, as the system knows them: which hosts a server on all addresses has."""

from __future__ import annotations

from tests.unit.test_authority import accepted, hosts_of


def test_a_server_on_all_addresses_has_those_of_its_machine() -> None:
    """A kubelet asks by the pod's address; an address of another machine is none of this one's, and a name never is."""
    for everywhere in ("0.0.0.0", "::"):
        own = hosts_of(everywhere)
        assert all(accepted(own, "127.0.0.1", f"[{everywhere}]" if ":" in everywhere else everywhere))
        assert not any(accepted(own, "192.0.2.7", "[2001:db8::1]", "224.0.0.1", "[ff02::1]", "evil.example"))
