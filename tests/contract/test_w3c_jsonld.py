"""The W3C's JSON-LD suites on what we use: the engine's parser, on the expected documents of fromRdf, and pyld as we call it (framing).

Each case that does not pass stands below with its reason; one that begins to pass must be struck out (the tests are strict). The suites stand
beside the repository (``../shared/data/w3c``); that of toRdf does not, and ``make conformance`` sends it to a service (``tests/w3c``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest
from pyld import jsonld as pyld

from drumlin.kg.errors import InvalidDocument, TooLarge
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.pyld_framer import Bounded, deny

W3C = Path(__file__).parents[2].parent / "shared" / "data" / "w3c"
Case = Mapping[str, Any]

pytestmark = pytest.mark.skipif(
    not W3C.is_dir() and os.environ.get("CI") != "true", reason="no W3C suites at ../shared/data/w3c"
)


def cases(folder: Path, suite: str) -> list[Case]:
    """Read a manifest; entries whose files are not there are left out."""
    manifest = folder / f"{suite}-manifest.jsonld"
    if not manifest.is_file():
        return []
    found = json.loads(manifest.read_bytes())
    return [
        {**case, "folder": folder, "base": case.get("option", {}).get("base") or found["baseIri"] + case["input"]}
        for case in found["sequence"]
        if (folder / case["input"]).is_file()
    ]


def parametrized(found: list[Case], skipped: Mapping[str, str]) -> Callable[[Any], Any]:
    """Run a test for each case; those that are listed must fail."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case,
                id=f"{case['input'].split('/')[0]}{case['@id']}",
                marks=[pytest.mark.xfail(reason=skipped[case["@id"]], strict=True)] if case["@id"] in skipped else [],
            )
            for case in found
        ],
    )


def dataset(data: bytes, form: ox.RdfFormat, base: str | None = None) -> set[str]:
    """Read quads, with blank nodes named canonically, so that equal sets are isomorphic datasets."""
    found = ox.Dataset(ox.parse(data, format=form, base_iri=base))
    found.canonicalize(ox.CanonicalizationAlgorithm.RDFC_1_0)
    return {str(quad) for quad in found}


_OLD = "a case of JSON-LD 1.0, which differs from 1.1; only 1.1 is read here"
_DIRECTION = "the engine keeps a base direction as RDF 1.2 does, not as the suite's RDF 1.1 options"


# -- framing --------------------------------------------------------------------------------------------------------------

FRAMING = cases(W3C / "json-ld-framing", "frame")
FRAMING_SKIPPED: Mapping[str, str] = {"#t0010": _OLD}


@parametrized(FRAMING, FRAMING_SKIPPED)
def test_framing(case: Case) -> None:
    """Pyld, within our bounds and without a loader, frames as the suite expects or refuses with its error."""
    options = {key: value for key, value in case.get("option", {}).items() if key not in ("specVersion", "normative")}
    options |= {"base": case["base"], "documentLoader": deny}
    document, frame = (json.loads((case["folder"] / case[name]).read_bytes()) for name in ("input", "frame"))
    if "expectErrorCode" in case:
        with pytest.raises(pyld.JsonLdError) as told:
            Bounded(30).frame(document, frame, options)
        assert case["expectErrorCode"] in codes(told.value)
        return

    framed = Bounded(30).frame(document, frame, options)

    assert same(framed, json.loads((case["folder"] / case["expect"]).read_bytes()))


def codes(error: BaseException | None) -> list[str]:
    """Return the error codes of an error and its causes."""
    found = []
    while error is not None:
        found.append(str(getattr(error, "code", "")))
        error = error.__cause__
    return found


def same(one: Any, other: Any) -> bool:
    """Compare JSON documents; arrays other than those of ``@list`` have no order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            one[key] == other[key] if key == "@list" else same(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        rest = list(other)
        for each in one:
            match = next((place for place, candidate in enumerate(rest) if same(each, candidate)), None)
            if match is None:
                return False
            rest.pop(match)
        return not rest
    return type(one) is type(other) and one == other


# -- RDF ------------------------------------------------------------------------------------------------------------------

FROM_RDF = [
    case
    for case in cases(W3C / "json-ld-api", "fromRdf")
    if "expect" in case and (W3C / "json-ld-api" / case["expect"]).is_file()
]
FROM_RDF_SKIPPED: Mapping[str, str] = {
    "#t0016": "the suite writes rdf:List nodes as a list, which does not say their type again",
    "#t0027": "the suite writes 0 and 1 as they are; the engine keeps booleans in their canonical form",
    "#t0028": "the suite's JSON literal has a space that its canonical form has not",
    **dict.fromkeys(["#tdi05", "#tdi06", "#tdi11", "#tdi12"], _DIRECTION),
}


@parametrized(FROM_RDF, FROM_RDF_SKIPPED)
def test_what_the_suite_writes_as_jsonld_is_read_as_the_rdf_it_came_from(case: Case) -> None:
    """The engine reads each expected document of the fromRdf suite as the suite's own N-Quads."""
    document = (case["folder"] / case["expect"]).read_bytes()
    expected = dataset((case["folder"] / case["input"]).read_bytes(), ox.RdfFormat.N_QUADS)

    assert dataset(document, ox.RdfFormat.JSON_LD, case["base"]) == expected


_WRITTEN = [{**case, "input": case["expect"]} for case in FROM_RDF]  # JSON literals are among these
INPUTS = [
    case for case in [*FRAMING, *cases(W3C / "json-ld-api", "compact"), *_WRITTEN] if "expectErrorCode" not in case
]


@parametrized(INPUTS, {})
def test_our_rules_refuse_a_document_or_leave_its_meaning(case: Case) -> None:
    """What a caller may send is read as the engine reads it without our rules; the rest is refused in our words."""
    data = (case["folder"] / case["input"]).read_bytes()
    document = json.loads(data)
    if isinstance(document, dict) and "@context" not in document:
        data = json.dumps({"@context": {}, **document}).encode()  # else ours would be taken
    try:
        safe = jsonld_loader.inline(data)
    except (InvalidDocument, TooLarge):
        return
    try:
        plain = dataset(data, ox.RdfFormat.JSON_LD, case["base"])
    except SyntaxError:
        with pytest.raises(SyntaxError):
            dataset(safe, ox.RdfFormat.JSON_LD, case["base"])
        return
    assert dataset(safe, ox.RdfFormat.JSON_LD, case["base"]) == plain
