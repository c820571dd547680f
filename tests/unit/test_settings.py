"""The configuration file: what is wrong in it is told by its place, in one line."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import structlog

from drumlin.api.cli.logs import ForeignLogs
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings

DATASOURCE = '[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "http://x:1"\n'


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        ("query_timout = 1", "query_timout: there is no such setting", "did you mean query_timeout?"),
        (
            DATASOURCE + 'scrape_intervall = "60s"',
            "datasource.0.scrape_intervall: there is no such setting",
            "did you mean scrape_interval?",
        ),
        ("xyz = 1", "xyz: there is no such setting", None),
        ('query_timeout = "soon"', "query_timeout: must be a number", None),
        (
            "scrape_interval = 5",
            "scrape_interval: there is no such setting",
            "did you mean datasource.scrape_interval?",
        ),
        ('lease = "x"', "lease: there is no such setting", "did you mean election.lease?"),
        ("[election]\nleese = 1", "election.leese: there is no such setting", "did you mean lease?"),
        ("[election]\nbase = 1", "election.base: there is no such setting", "did you mean base?"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, content: str, said: str, hint: str | None) -> None:
    """A misspelt setting is told with the one that was meant, at any depth; a wrong value is never shown."""
    file = tmp_path / "drumlin.toml"
    file.write_text(content)

    with pytest.raises(InvalidSettings) as told:
        Settings.load(file)

    assert str(told.value).startswith(f"{file}: {said}")
    assert told.value.hint == hint
    assert "soon" not in str(told.value)


ARN = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"context": [{"name": "a"}, {"name": ARN}]}, f"say --context {ARN}=prod"),
        ({"context": [{"name": ARN, "cluster": ARN}]}, f"say --context {ARN}=prod"),
        ({"cluster": ARN}, "say --cluster prod"),
        ({"cluster": ARN.replace("prod", "domain")}, "say --cluster domain-cluster"),
        ({"cluster": "default/api-host:6443/me"}, "say --cluster default-api-host-6443-me"),
        ({"context": [{"name": "dead", "cluster": "cluster"}]}, "'cluster' is reserved; give the cluster another name"),
    ],
)
def test_a_name_that_cannot_stand_in_an_id_is_refused_with_a_proposal(given: dict[str, Any], said: str) -> None:
    """An EKS ARN is no segment of an id: the message proposes one, and begins with what is wrong."""
    with pytest.raises(InvalidSettings) as told:
        Settings.load(**given)

    assert said in str(told.value)
    assert not str(told.value).startswith(":")
    assert "Value error" not in str(told.value)


def test_the_first_context_may_have_any_name() -> None:
    """Its cluster is named by ``cluster``."""
    assert list(Settings.load(cluster="prod", context=[{"name": ARN}]).clusters) == ["prod"]


def test_what_libraries_log_is_an_event_of_the_log() -> None:
    """A warning of a library stands in the log as JSON does, not beside it."""
    record = logging.LogRecord("urllib3.connectionpool", logging.WARNING, "", 0, "%s is full", ("the pool",), None)
    with structlog.testing.capture_logs() as logs:
        ForeignLogs().emit(record)

    assert logs == [
        {
            "event": "library_log",
            "log_level": "warning",
            "logger": "urllib3.connectionpool",
            "message": "the pool is full",
        }
    ]


PEER = {"name": "bob", "url": "https://bob.example", "token": "bob.token", "domains": ["bob"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([PEER, PEER], "peer: two peers have the same name"),
        ([{**PEER, "url": "https://user:secret@bob.example"}], "peer.0.url: an address holds no credentials"),
        ([{**PEER, "base": "bob.example"}], "peer.0.base: base 'bob.example' is not an http(s) URL"),
        ([{**PEER, "name": "Bob"}], "peer.0.name: must fit the pattern"),
        ([{**PEER, "domains": ["a/b"]}], "peer.0.domains.0: must fit the pattern"),
        ([{name: PEER[name] for name in ("name", "url", "domains")}], "peer.0.token: is missing"),
    ],
)
def test_what_is_wrong_with_a_peer_is_told(given: list[dict[str, Any]], said: str) -> None:
    """A peer has a name and a base of its own, a token in a file, and no secret in its address."""
    with pytest.raises(InvalidSettings) as told:
        Settings.load(peer=given)
    assert str(told.value).startswith(said)
    assert "secret" not in str(told.value)
