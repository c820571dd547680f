"""Schemathesis against a running service: whatever its OpenAPI document allows or forbids is sent, and what comes must be in it.

Left out, with the reason:

* ``positive_data_acceptance``: what a schema allows may still be wrong by rules that no JSON Schema can say (an id names no entity, a text is
  no Turtle, a graph has no owner);
* ``negative_data_rejection``: a parameter that is a list of texts takes any text, and ``/sparql`` passes over parameters that it does not know;
* ``not_a_server_error``: 502 is the right answer when a datasource cannot be asked; 500 is undocumented nearly everywhere, so it is found;
* ``/events`` as a stream, which never ends: it is asked for a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.generation import GenerationMode

from drumlin.api import answers

TEXTS = (*answers.RDF, answers.NDJSON, answers.QUERY, answers.UPDATE, answers.ARROW, "application/merge-patch+json")
EXCLUDED = ("positive_data_acceptance", "negative_data_rejection", "not_a_server_error")
SAMPLE_OF_QUERIES = ("/queries/classes", "/queries/runs-on-node", "/queries/capacity")


@schemathesis.serializer(*TEXTS)
def _as_text(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def operations(document: dict[str, Any], url: str) -> Iterator[Any]:
    """Yield the operations that a document tells of the service at ``url``, three of the saved queries among them."""
    load_all_checks()
    schema: Any = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    for found in schema.get_all_operations():
        operation = found.ok()
        if not operation.path.startswith("/queries/") or operation.path in SAMPLE_OF_QUERIES:
            yield operation


def faults(operation: Any, examples: int, seconds: float = 60.0) -> list[str]:
    """Send up to ``examples`` requests, good and bad ones, for at most ``seconds``; return what is not as the document says."""
    found: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    checks = [each for each in schemathesis.checks.CHECKS.get_all() if each.__name__ not in EXCLUDED]

    def tell(case: Any) -> None:
        if time.monotonic() > deadline:
            return
        if operation.path == "/events":
            case.headers = {**(case.headers or {}), "Accept": answers.BATCH}
            case.query = {**(case.query or {}), "wait": 0}
        try:
            case.call_and_validate(checks=checks, timeout=30)
        except FailureGroup as group:
            for each in group.exceptions:
                assert isinstance(each, Failure)
                found[f"{each.title}: {each.message}"] = f"{case.as_curl_command()}"

    for mode in (
        (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if _can_be_wrong(operation) else (GenerationMode.POSITIVE,)
    ):
        run = given(case=operation.as_strategy(generation_mode=mode))(tell)
        bounds = settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
                          derandomize=True, suppress_health_check=list(HealthCheck))  # fmt: skip
        bounds(run)()
    label = f"{operation.method.upper()} {operation.path}"
    return [f"{label}: {fault}\n{request}" for fault, request in found.items()]


def _can_be_wrong(operation: Any) -> bool:
    """Return whether the schema forbids anything: a body, or a parameter that is more than optional text."""
    raw = operation.definition.raw
    texts = ({"type": "string"}, {"type": "null"})
    kinds = (kind for each in raw.get("parameters", ()) for kind in each["schema"].get("anyOf", [each["schema"]]))
    return "requestBody" in raw or any({"type": kind.get("type")} not in texts or "enum" in kind for kind in kinds)
