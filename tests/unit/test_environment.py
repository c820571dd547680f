"""Variables of the environment: a misspelt one is refused with the one that was meant; those of others are left alone."""

from __future__ import annotations

import os

import pytest

from drumlin.api.cli import environment
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings


@pytest.fixture(autouse=True)
def _nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith(environment.PREFIX):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DRUMLIN_TOKN", "DRUMLIN_TOKEN"),
        ("DRUMLIN_ULR", "DRUMLIN_URL"),
        ("DRUMLIN_QUREY_TIMEOUT", "DRUMLIN_QUERY_TIMEOUT"),
        ("drumlin_clustr", "DRUMLIN_CLUSTER"),
        ("DRUMLIN_DOMIAN__ID", "DRUMLIN_DOMAIN__ID"),
        ("DRUMLIN_TOKENFILE", "DRUMLIN_TOKEN_FILE"),
    ],
)
def test_a_misspelt_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    """It would be passed over in silence: a service without its tokens, a command that asks another service."""
    monkeypatch.setenv(name, "x")
    with pytest.raises(InvalidSettings, match=name) as refused:
        environment.check()
    assert refused.value.hint == f"did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [
        *(f"DRUMLIN_{each.upper()}" for each in Settings.model_fields),
        "DRUMLIN_URL",
        "DRUMLIN_DOMAIN__ID",
        "DRUMLIN_DOMAIN__IDD",  # which the settings refuse
        "drumlin_cluster",
        "DRUMLIN_SERVICE_HOST",  # Kubernetes' own, of Services called drumlin, drumlin-metrics, drumlin-query-timeout
        "DRUMLIN_PORT",
        "DRUMLIN_PORT_8080_TCP_ADDR",
        "DRUMLIN_METRICS_PORT",
        "DRUMLIN_METRICS_SERVICE_PORT_HTTP",
        "DRUMLIN_PROMETHEUS_MAIN_TOKEN",  # a credential that a datasource refers to
        "DRUMLIN_SECRET",
        "DRUMLIN_BENCH_FOLDER",
    ],
)
def test_what_is_ours_or_somebody_elses_is_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Settings, variables of commands, and whatever is near no name of ours."""
    monkeypatch.setenv(name, "x")
    environment.check()
