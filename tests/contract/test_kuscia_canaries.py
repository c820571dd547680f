"""Nothing of Kuscia's resources is read but what the mapping names: every field of all 18 definitions bears a value that must not come back."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from drumlin.exporters.kubernetes.custom import paths_of
from drumlin.exporters.kubernetes.paths import path
from drumlin.exporters.protocol import Upserted
from tests.unit.rendering import BY_NAME, follow, synced
from tests.unit.test_render_custom import TABLES, plainly

CRDS = Path(__file__).parents[2].parent / "shared" / "data" / "secretflow+kuscia" / "crds" / "v1alpha1"
pytestmark = pytest.mark.skipif(
    not CRDS.is_dir() and os.environ.get("CI") != "true", reason="no CRDs at ../shared/data/secretflow+kuscia"
)
DEFINITIONS = {each.stem.partition("_")[2]: each for each in sorted(CRDS.glob("*.yaml"))}
MAPPED = {table.plural: table for table in TABLES}
CANARY = re.compile(r"CANARY[0-9]+")
SECRET = re.compile(
    r"cert|token$|tokens?\.|publickey|headers|\.data\b|signature|infokey|env\b|args|command|configtemplates|inputconfig|message|terminationlog"
    r"|attributes|description",
    re.IGNORECASE,
)
"""Fields that hold secrets, or texts in which there may be any."""
NEVER = "CANARY0"


def filled(schema: dict[str, Any], numbers: Iterator[int], where: str = "$") -> Any:
    """Return a value of a schema in which every text is a canary, and what is a time or a number is one."""
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: filled(each, numbers, f"{where}.{name}") for name, each in schema["properties"].items()}
        case "object":
            inner = schema.get("additionalProperties") or {"type": "string"}
            return {f"CANARY{next(numbers)}": filled(inner, numbers, f"{where}.*")}
        case "array":
            return [filled(schema["items"], numbers, f"{where}[*]")]
        case "integer" | "number":
            return 3
        case "boolean":
            return True
    if schema.get("format") == "date-time" or where.endswith(("Time", "time")):
        return "2026-11-29T09:00:00Z"
    if "anyOf" in schema:  # a quantity or a port
        return "1"
    if where.endswith(("nputConfig", "inputConfig")):
        inside = {"sf_input_ids": [f"CANARY{next(numbers)}"], "sf_output_ids": [f"CANARY{next(numbers)}"]}
        return json.dumps({**inside, "sf_node_eval_param": NEVER, "password": {"of": NEVER}})
    return NEVER if SECRET.search(where) else f"CANARY{next(numbers)}"


def example(plural: str) -> dict[str, Any]:
    """Return an object of a kind with a value in each of its fields."""
    definition = yaml.safe_load(DEFINITIONS[plural].read_text())
    version = definition["spec"]["versions"][0]
    document = filled(version["schema"]["openAPIV3Schema"], itertools.count(1))
    document |= {"kind": definition["spec"]["names"]["kind"], "apiVersion": f"kuscia.secretflow/{version['name']}"}
    document["metadata"] = {
        "name": "thing",
        "namespace": "alice",
        "uid": "u",
        "labels": {"kuscia.secretflow/secret": NEVER},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": NEVER},
    }
    return document


def test_there_are_eighteen_definitions_and_the_others_are_not_followed() -> None:
    """What is only a copy for another master, is no kind that is read at all."""
    assert len(DEFINITIONS) == 18
    assert DEFINITIONS.keys() - MAPPED.keys() == {
        "domainappimages",
        "kusciadeploymentsummaries",
        "kusciajobsummaries",
        "kusciatasksummaries",
    }
    assert {each.plural for each in BY_NAME.values()} & DEFINITIONS.keys() == MAPPED.keys()


@pytest.mark.parametrize("plural", sorted(DEFINITIONS))
def test_every_definition_has_fields_that_must_not_be_read(plural: str) -> None:
    """The generated objects do hold canaries: a test over an empty object would find nothing."""
    text = json.dumps(example(plural))

    assert NEVER in text
    assert len(set(CANARY.findall(text))) > (3 if plural != "interopconfigs" else 1)


@pytest.mark.parametrize("plural", sorted(MAPPED))
def test_nothing_but_what_a_path_names_is_parsed(plural: str) -> None:
    """The typed object in memory has the values that the mapping's paths find in the plain one, and no other."""
    document, table = example(plural), MAPPED[plural]
    read = msgspec.json.decode(json.dumps(document), type=BY_NAME[table.kind].projection)
    paths = {path(each) for where in paths_of(table) for each in unfiltered(where)}
    named = {each for steps in paths for each in plainly(document, steps)}
    allowed = {canary for text in named for canary in CANARY.findall(text)}
    in_memory = re.sub(r"labels=\{[^}]*\}", "", repr(read))

    assert NEVER not in in_memory
    assert set(CANARY.findall(in_memory)) <= allowed | keys_of_maps(document)
    assert allowed or plural == "gateways"


def unfiltered(where: str) -> Iterator[str]:
    """Yield a path without its filters, and the paths of what they look at: that is read of all elements."""
    filters = list(re.finditer(r"\[\?@\.(\w+)=='[^']*'\]", where))
    yield re.sub(r"\[\?[^\]]*\]", "[*]", where)
    yield from (re.sub(r"\[\?[^\]]*\]", "[*]", where[: each.start()]) + f"[*].{each[1]}" for each in filters)


def keys_of_maps(value: Any) -> set[str]:
    """Return the keys under which a map has its elements: names, such as ``alice/pod-0``, which are not written either."""
    if isinstance(value, list):
        return {key for each in value for key in keys_of_maps(each)}
    if not isinstance(value, dict):
        return set()
    return {key for key in value if CANARY.fullmatch(key)} | {
        key for each in value.values() for key in keys_of_maps(each)
    }


@pytest.mark.parametrize("plural", sorted(MAPPED))
def test_nothing_secret_reaches_a_graph(plural: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither what is written, nor what is rejected or logged, has a value of a secret field."""
    document, kind = example(plural), BY_NAME[MAPPED[plural].kind]
    change = Upserted(kind, msgspec.json.decode(json.dumps(document), type=kind.projection))

    sink, run = follow([change, *synced()])

    text = "\n".join(line for lines in sink.graphs.values() for line in lines)
    assert NEVER not in text + str(run.summary.rejected) + str(run.summary.left_out) + caplog.text
    assert run.summary.rejected == []
