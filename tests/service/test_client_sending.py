"""What a client sends is what was written, or it is an error: ids that a URL would cut, numbers that JSON has not."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

import drumlin
from drumlin.kg.errors import InvalidDocument, InvalidIdentifier, InvalidInput, ResourceNotFound
from tests.service.conftest import Service


@pytest.fixture
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service."""
    with drumlin.connect(service.url) as connected:
        yield connected


@pytest.mark.parametrize("id", ["../livez", "domain/..", "domain/./x", "domain/\ud800"])
def test_an_id_that_leads_elsewhere_is_not_sent(id: str) -> None:
    """It would be another address, or none; there is no service behind this one, so nothing is sent."""
    with drumlin.connect("http://127.0.0.1:9") as client, pytest.raises(InvalidIdentifier):
        client.subgraph(id).delete()


@pytest.mark.parametrize("odd", ["?depth=1", "#x", "\n", "\0", " ", "?", "+", "\\"])
def test_an_id_is_sent_whole(client: drumlin.Client, odd: str) -> None:
    """Characters that end a path in a URL are part of the id: what is written is never the entity before them."""
    domain = f"domain/{uuid.uuid4().hex}"
    client.subgraph(domain).put({"id": f"https://kg.example/id/{domain}", "type": "Domain", "name": "kept"})
    with pytest.raises(ResourceNotFound) as error:
        client.subgraph(domain + odd).delete()
    assert error.value.detail["id"] == f"https://kg.example/id/{domain}{quote(odd, safe='')}"
    assert client.subgraph(domain).read().document["name"] == "kept"


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], {"a": -float("inf")}])
def test_a_number_that_json_has_not_is_refused(client: drumlin.Client, value: Any) -> None:
    """It would go as null: left out of a document, removed by a patch."""
    domain = client.subgraph("domain/finite")
    for write in (domain.put, domain.patch):
        with pytest.raises(InvalidDocument, match="not finite"):
            write({"id": "https://kg.example/id/domain/finite", "type": "Domain", "name": None, "cpuRequest": value})


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.sparql("ASK { ?s ?p '\ud800' }"),
        lambda client: client.update("INSERT DATA { <a:a> <a:b> '\ud800' }"),
        lambda client: client.search("\ud800"),
        lambda client: client.search("a" * 70_000),
        lambda client: client.subgraph("domain/x").delete(if_match='"\u4f60"'),
        lambda client: client.graph("http://x/\ud800").text(),
    ],
)
def test_what_cannot_be_sent_is_an_error_of_ours(client: drumlin.Client, ask: Callable[[drumlin.Client], Any]) -> None:
    """Half a surrogate pair, an address that is too long, a header that HTTP has not: callers need not know the HTTP library."""
    with pytest.raises(InvalidInput):
        ask(client)
