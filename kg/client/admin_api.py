"""What operators and RDF tools ask of a service: state, metrics, checks, vocabulary, descriptions; the same for both clients."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin

import httpx
import msgspec

from drumlin.kg.client import calls
from drumlin.kg.client.calls import Call
from drumlin.kg.client.encoding import in_path
from drumlin.kg.client.endpoint import operation
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.rdf.syntax import syntax_named

_LONG = 900.0
"""Seconds that a look at the whole store may take."""


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _text(response: httpx.Response) -> str:
    return response.text


def _rdf(path: str, syntax: str) -> Call[RdfText]:
    return Call("GET", path, RdfText.from_response, headers={"Accept": syntax_named(syntax).media_type})


def _metrics() -> Call[str]:
    """Return the service's own metrics as Prometheus reads them."""
    return Call("GET", "/metrics", _text)


def _peers() -> Call[list[dict[str, Any]]]:
    """List the services that are followed: how far each is, what was refused, the last ``error``.

    Raises ``Forbidden`` for callers that are limited to domains.
    """
    return Call("GET", "/peers", lambda response: list(_json(response)["items"]))


def _check() -> Call[dict[str, Any]]:
    """Hold quads, records, log and links of the store against each other: ``whole``, and what is not; raises as ``backup`` does."""
    return Call("GET", "/admin/check", _json, seconds=_LONG)


def _audit() -> Call[dict[str, Any]]:
    """Validate the whole store: ``conforms``, ``violations``, links that lead nowhere; raises ``Conflict`` while another audit runs."""
    return Call("GET", "/admin/audit", _json, headers={"Accept": "application/json"}, seconds=_LONG)


def _optimize() -> Call[dict[str, Any]]:
    """Merge the store's files: bytes ``before`` and ``after``; raises as ``backup`` does."""
    return Call("POST", "/admin/optimize", _json, seconds=_LONG, repeatable=False)


def _ontology(syntax: str = "turtle") -> Call[RdfText]:
    """Return the vocabulary of the graph as text of an RDF syntax; raises ``UnsupportedSyntax`` for another."""
    return _rdf("/ns", syntax)


def _vocabulary(part: str, syntax: str = "turtle") -> Call[RdfText]:
    """Return the ``shapes``, or the metric templates (``metrics``), as text of an RDF syntax; raises ``ResourceNotFound`` for others."""
    return _rdf(f"/ns/{part}", syntax)


def _context() -> Call[dict[str, Any]]:
    """Return the JSON-LD context."""
    return Call("GET", "/context/v1.jsonld", _json)


def _profiles() -> Call[list[dict[str, Any]]]:
    """List the other vocabularies that the graph can be had in: ``name``, ``title``."""
    return Call("GET", "/profiles", _json)


def _profile(name: str) -> Call[RdfText]:
    """Return the graph in another vocabulary as N-Triples; raises ``ResourceNotFound`` for one that is not known."""
    return Call("GET", f"/profiles/{in_path(name)}", RdfText.from_response, seconds=_LONG)


def _rules(name: str, syntax: str = "turtle") -> Call[RdfText]:
    """Return the rules that make another vocabulary of ours; raises ``ResourceNotFound`` for one that is not known."""
    return _rdf(f"/profiles/{in_path(name)}/rules", syntax)


def _dataset(syntax: str = "turtle") -> Call[RdfText]:
    """Return what is in the dataset and how to reach it (VoID); raises ``UnsupportedSyntax`` for another syntax."""
    return _rdf("/.well-known/void", syntax)


def _document(id: str, syntax: str = "turtle") -> Call[RdfText]:
    """Return the document about a thing, as linked data has it, as text of an RDF syntax; raises ``ResourceNotFound``."""
    return _rdf(f"/doc/{in_path(id)}", syntax)


def _document_address(id: str) -> Call[str]:
    """Return where the document about a thing stands: what its name answers with (303); raises ``InvalidIdentifier``."""
    path = f"/id/{in_path(id)}"
    return Call("GET", path, lambda response: urljoin(path, response.headers["Location"]))


class Operating:
    """Operations for operators and RDF tools."""

    metrics_text = operation(_metrics)
    peers = operation(_peers)
    backup = operation(calls.backup)
    check = operation(_check)
    audit = operation(_audit)
    optimize = operation(_optimize)
    ontology = operation(_ontology)
    vocabulary = operation(_vocabulary)
    context = operation(_context)
    profiles = operation(_profiles)
    profile = operation(_profile)
    rules = operation(_rules)
    dataset = operation(_dataset)
    document = operation(_document)
    document_address = operation(_document_address)
