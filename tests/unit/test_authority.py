"""Hosts and origins as text, and which hosts a server has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drumlin.api.http.hosts import Hosts
from drumlin.api.http.problems import HostInvalid, HostRefused
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.model.authority import Authority, WebOrigin, is_loopback, parse_authority, parse_origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("localhost", None)),
        ("LocalHost.:8080", ("localhost", 8080)),
        ("localhost:", ("localhost", None)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:8080", ("::1", 8080)),
        ("[0:0:0:0:0:0:0:1]", ("::1", None)),
        ("drumlin_a.monitoring.svc:80", ("drumlin_a.monitoring.svc", 80)),
    ],
)
def test_a_host_has_one_normal_form(text: str, expected: tuple[str, int | None]) -> None:
    """Case, a trailing dot, an empty port and the spelling of an IPv6 address make no difference."""
    assert parse_authority(text) == Authority(*expected)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ".", "a..b", ".a", "a b", "user@localhost", "user:pw@localhost", "localhost/x", "localhost:x"),
        *("localhost:0", "localhost:65536", "localhost:99999999", "::1", "[::1", "[localhost]", "[::1%25lo]", "[::1]x"),
        *(
            "http://localhost",
            "localhost,evil.example",
            "localhost\r\n",
            "löcalhost",
            "a" * 254,
            "localhost?",
            "l%6fcalhost",
        ),
    ],
)
def test_what_is_not_a_host_is_refused(text: str) -> None:
    """User names, blanks, lists, encoded characters, wrong ports and brackets are no part of a host."""
    with pytest.raises(ValueError, match=r"."):
        parse_authority(text)


def test_an_origin_is_compared_with_its_port() -> None:
    """Default ports may be left out on either side; another port, host or scheme's default is another origin."""
    assert str(parse_origin("HTTPS://Grafana.Example:443")) == "https://grafana.example"
    assert str(parse_origin("http://[::1]:80")) == "http://[::1]"
    assert parse_origin("app://page") == WebOrigin("app", "page", None)
    own = parse_origin("http://localhost:8080")
    assert own.serves(parse_authority("localhost:8080"))
    assert parse_origin("http://localhost").serves(parse_authority("localhost"))
    assert parse_origin("https://kg.example").serves(parse_authority("kg.example:443"))
    for other in ("localhost", "localhost:80", "localhost:8081", "127.0.0.1:8080", "a.localhost:8080"):
        assert not own.serves(parse_authority(other)), other
    assert not parse_origin("capacitor://localhost").serves(parse_authority("localhost"))
    for text in ("null", "", "localhost", "http://", "http://a/", "http://a/b", "http://u@a", "http://a, http://b"):
        with pytest.raises(ValueError, match=r"."):
            parse_origin(text)


def test_loopback_is_this_machine_only() -> None:
    """Names below ``localhost`` and all loopback addresses are loopback; what only looks like it is not."""
    assert all(map(is_loopback, ("localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:7f00:1")))
    others = (
        "localhost.evil.example",
        "notlocalhost",
        "127.0.0.1.evil.example",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "::",
    )
    assert not any(map(is_loopback, others))


def hosts_of(address: str = "127.0.0.1", base: str = "https://kg.example", **settings: Any) -> Hosts:
    """The hosts of a server that listens on an address."""
    return Hosts(Settings(base=base, **settings), address)


def accepted(hosts: Hosts, *values: str) -> list[bool]:
    """Tell of each value of a Host header whether it is accepted."""

    def is_accepted(value: str) -> bool:
        try:
            hosts.check([value.encode()])
        except HostRefused:
            return False
        return True

    return [is_accepted(each) for each in values]


def test_a_server_has_loopback_its_address_its_base_and_what_is_configured() -> None:
    """All others are refused, whatever they resemble; ports are not compared."""
    own = hosts_of("192.0.2.7", hosts=("drumlin", "*.svc.cluster.local", "2001:DB8::1", "198.51.100.1"))
    right = ("localhost", "127.0.0.1:99", "192.0.2.7:1", "[::ffff:192.0.2.7]", "KG.example.:8443", "drumlin:80")
    assert all(accepted(own, *right, "a.b.svc.cluster.local", "[2001:db8:0::1]:8080", "198.51.100.1"))
    wrong = (
        "192.0.2.8",
        "kg.example.evil.example",
        "evil.example",
        "a.kg.example",
        "drumlin.evil.example",
        "svc.cluster.local",
    )
    assert not any(accepted(own, *wrong, "xsvc.cluster.local", "[2001:db8::2]", "0.0.0.0"))


def test_an_address_that_the_machine_has_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is asked each time, as addresses come and go."""
    here = {"10.1.2.3"}
    monkeypatch.setattr("drumlin.api.http.hosts._is_here", lambda address: str(address) in here)
    own = hosts_of("0.0.0.0")
    assert accepted(own, "10.1.2.3:8080", "10.1.2.4") == [True, False]
    here.add("10.1.2.4")
    assert accepted(own, "10.1.2.4") == [True]
    assert accepted(hosts_of("10.9.9.9"), "10.1.2.3") == [False]


@pytest.mark.parametrize(
    "values", [[], [b""], [b"localhost", b"localhost"], [b"localhost", b"evil.example"], [b"\xff"]]
)
def test_a_request_names_one_host(values: list[bytes]) -> None:
    """None, an empty one, two (also equal ones) and what is not a host are invalid, not merely unknown."""
    with pytest.raises(HostInvalid):
        hosts_of().check(values)


def test_a_refused_host_tells_the_line_to_add() -> None:
    """The hint is the line of drumlin.toml with which the host would be accepted."""
    with pytest.raises(HostRefused) as refused:
        hosts_of().check([b"Drumlin.Monitoring.svc:8080"])
    line = str(refused.value.hint).rpartition(": ")[2]
    assert line == 'hosts = ["drumlin.monitoring.svc"]'


def test_a_base_that_no_browser_would_send_does_not_matter() -> None:
    """A base in another script is no host that a header names; the others still are."""
    assert accepted(hosts_of(base="https://пример.example"), "localhost", "evil.example") == [True, False]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('hosts = ["http://x"]', "hosts: 'http://x' is not a host"),
        ('hosts = ["x:8080"]', "hosts: 'x:8080' has a port; write the host alone"),
        ('hosts = ["*"]', "hosts: '*' is not a host"),
        ('hosts = ["a.*"]', "hosts: 'a.*' is not a host"),
        ('hosts = ["*.10.0.0.1"]', "hosts: '*.10.0.0.1': there are no names below an address"),
        ('cors = ["https://x/"]', "cors: 'https://x/' is not an origin; write scheme://host"),
        ('cors = ["null"]', "cors: 'null' is not an origin"),
        ('cors = ["grafana.example"]', "cors: 'grafana.example' is not an origin"),
    ],
)
def test_a_setting_that_would_never_match_ends_the_start(tmp_path: Path, line: str, said: str) -> None:
    """A host or origin that no browser sends in this form is told, with what to write."""
    file = tmp_path / "drumlin.toml"
    file.write_text(line)
    with pytest.raises(InvalidSettings) as told:
        Settings.load(file)
    assert said in str(told.value)


def test_settings_are_kept_as_browsers_send_them() -> None:
    """Case, default ports and brackets of what is configured do not matter."""
    settings = Settings(cors=("HTTPS://Grafana.Example:443", "*"), hosts=("Drumlin.", "*.SVC", "[::2]", "::3"))
    assert settings.cors == ("https://grafana.example", "*")
    assert settings.hosts == ("drumlin", "*.svc", "::2", "::3")
