"""A shipped metric template is overridden by a PUT, survives a restart, and comes back with a DELETE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import drumlin
from drumlin.kg.errors import Conflict
from drumlin.kg.store.protocol import GraphWrite
from tests.service.conftest import serving

TEMPLATE = "template/cluster.mem_usage"


def _query(client: drumlin.Client) -> str:
    return str(client.resolve("cluster/prod", "mem_usage", last="1h")["query"])


def _overridden(client: drumlin.Client) -> dict[str, Any]:
    return client.subgraph(TEMPLATE).get() | {"query": "sum(mine)"}


def test_a_template_is_overridden_and_restored(tmp_path: Path) -> None:
    """The user's query is resolved at once and after a restart, which reports nothing; DELETE brings the shipped one back."""
    config = tmp_path / "drumlin.toml"
    config.write_text(
        '[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\nscrape_interval = "30s"\n'
    )
    options = ("--store", str(tmp_path / "store"), "--config", str(config))
    with serving(*options) as service, drumlin.connect(service.url) as client:
        shipped, document = _query(client), client.subgraph(TEMPLATE).get()
        with pytest.raises(Conflict, match="as it is shipped"):
            client.subgraph(TEMPLATE).delete()
        client.subgraph(TEMPLATE).put(_overridden(client))
        assert _query(client) == "sum(mine)"
        with pytest.raises(Conflict):  # only what is shipped
            client.subgraph("cluster/prod").put(client.subgraph("cluster/prod").get() | {"name": "x"})
    with serving(*options) as service, drumlin.connect(service.url) as client:
        assert _query(client) == "sum(mine)"
        client.subgraph(TEMPLATE).delete()
        assert _query(client) == shipped
        assert client.subgraph(TEMPLATE).get() == document
        client.subgraph(TEMPLATE).patch({"query": "sum(patched)"})
        assert _query(client) == "sum(patched)"
        client.subgraph(TEMPLATE).delete()
        lines = client.subgraph(TEMPLATE).text("ntriples").replace("node_memory_MemTotal_bytes", "other").splitlines()
        (result,) = client.apply([GraphWrite.of("https://kg.example/id/" + TEMPLATE, frozenset(lines), "user")])
        assert result["outcome"] == "replaced"
        assert "other" in _query(client)
        client.graph("https://kg.example/id/" + TEMPLATE).delete()
        assert _query(client) == shipped
