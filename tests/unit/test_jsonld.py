"""JSON-LD three ways: our own writer of lines, the engine's parser and pyld say the same; hostile documents are refused."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyld import jsonld as pyld

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument, TooLarge
from drumlin.kg.rdf import jsonld, jsonld_loader
from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, Lines

ROOT = "https://kg.example/id/prod/payments/deployment/checkout"
NAMES = ["datasource", "deployment", "forecast", "glaciation-node", "node", "pod", "template", "tombstone"]


def engine(document: Any) -> Lines:
    """Read a document with the engine, as a caller's document is read."""
    data = jsonld_loader.inline(json.dumps(document, default=str).encode())
    return rdf.parse(data, JSONLD).get(None, frozenset())


def reference(document: Any) -> Lines:
    """Read a document with pyld, the reference implementation; the engine only makes its N-Quads canonical."""
    inline = json.loads(jsonld_loader.inline(json.dumps(document, default=str).encode()))
    quads = pyld.to_rdf(inline, {"format": "application/n-quads", "documentLoader": None})
    return rdf.parse(quads.encode(), NQUADS).get(None, frozenset())


# -- the contract -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_contracts_graphs_are_read_alike_by_all(contract: dict[str, bytes], name: str) -> None:
    """Our lines, the engine's and pyld's are the same statements."""
    document = json.loads(contract[name])

    assert jsonld.lines(document) == engine(document) == reference(document)


@pytest.mark.parametrize("name", NAMES)
def test_the_contracts_graphs_are_written_as_they_were(contract: dict[str, bytes], name: str) -> None:
    """Compacting gives back the document of the contract, empty lists aside, which state nothing."""
    document = json.loads(contract[name])
    told = {key: value for key, value in document.items() if value != []}

    assert _ordered(jsonld.compact(jsonld.lines(document), document["id"])) == _ordered(told)


def _ordered(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_ordered(each) for each in value), key=json.dumps)
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in sorted(value.items())}
    return value


# -- any document of ours ---------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
IDS = st.sampled_from([f"https://kg.example/id/domain/{name}" for name in "abcde"])
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4)
TIMES = st.datetimes(datetime(1000, 1, 1)).map(lambda at: at.replace(microsecond=0).isoformat() + "Z")  # noqa: DTZ001  # UTC
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["Deployment", "Pod", "Node"]),
    "name": TEXTS,
    "title": TEXTS,
    "label": st.lists(TEXTS, unique=True, max_size=3),
    "domain": IDS,
    "dependsOn": st.lists(IDS, unique=True, max_size=3),
    "phase": st.sampled_from(["Running", "Pending"]),
    "cpuRequest": DECIMALS,
    "memoryRequest": st.integers(-(10**12), 10**12),
    "replicas": st.integers(0, 2**52),
    "ready": st.booleans(),
    "invalidatedAt": TIMES,
    "endpointURL": st.sampled_from(["http://prometheus:9090", "https://x.example/?a=b#c"]),
}


def nodes(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Make node documents whose containers, runs and telemetry are ``parts``."""
    nested = {name: st.lists(parts, max_size=2) for name in ("container", "runs", "hasPart")}
    return st.fixed_dictionaries({}, optional={**FIELDS, **nested})


DOCUMENTS = st.recursive(st.fixed_dictionaries({}, optional=FIELDS), nodes, max_leaves=6)


def named(document: dict[str, Any], name: str = ROOT) -> dict[str, Any]:
    """Give each node of a document an id of its own."""
    found: dict[str, Any] = {"id": name}
    for key, value in document.items():
        if key in ("container", "runs", "hasPart"):
            found[key] = [named(each, f"{name}/{key}{number}") for number, each in enumerate(value)]
        else:
            found[key] = value
    return found


def sendable(value: Any) -> Any:
    """Write decimals as the text that a document carries."""
    if isinstance(value, dict):
        return {key: sendable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [sendable(each) for each in value]
    return jsonld.decimal_text(value) if isinstance(value, Decimal) else value


@given(DOCUMENTS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_our_documents_are_read_alike_by_all(document: dict[str, Any]) -> None:
    """Whatever a renderer may give, the fast way, the engine and pyld make the same statements of it."""
    document = named(document)

    assert jsonld.lines(document) == engine(sendable(document)) == reference(sendable(document))


WORDS = st.sampled_from(
    [
        "Weird",
        "not-a-name",
        "title",
        "type",
        "dcat",
        "dcat:Dataset",
        "urn:x:y",
        "https://x.example/./a",
        "http://[::1]/é",
    ]
)
OWN = {
    "type": st.sampled_from(["Pod", "dcat:Dataset", "title"]),
    "phase": WORDS,
    "endpointURL": st.sampled_from(["urn:x:y", "https://x.example/.well-known", "http://[::1]:9090/é", "mailto:a@b"]),
    "replicas": st.integers() | DECIMALS | st.booleans(),
    "cpuRequest": st.integers() | DECIMALS | st.sampled_from([Decimal("1E+3"), Decimal("0.250"), "0.250"]),
    "startedAt": st.sampled_from(["2026-11-27T00:00:00+00:00", "2026-11-27T00:00:00.500Z", "yesterday"]),
    "invented": TEXTS | st.integers() | DECIMALS,
}


@given(st.fixed_dictionaries({}, optional=OWN))
def test_what_only_our_renderers_write_is_canonical_too(document: dict[str, Any]) -> None:
    """Words of a source, IRIs of any kind, numbers of any size: what is read needs no second look before it is stored."""
    said, facts = jsonld.read({"id": ROOT, **document})

    assert canonical(said, ROOT) == said == rdf.lines_of(facts)
    assert rdf.facts_of(sorted(said)).keys() == {name for name, values in facts.items() if values}


def test_a_document_is_nested_so_deep_and_no_deeper() -> None:
    """A renderer that nests without an end is refused, not followed."""
    document: dict[str, Any] = {"id": ROOT}
    for number in range(16):
        document = {"id": f"{ROOT}/part/{number}", "hasPart": [document]}

    with pytest.raises(InvalidDocument, match="more than 16 deep"):
        jsonld.read(document)
    assert len(jsonld.lines(document["hasPart"][0])) == 15


@pytest.mark.parametrize("key", ["a b", "dcterms:title", "", "@type", "é"])
def test_a_key_that_is_no_name_is_a_mistake_of_the_renderer(key: str) -> None:
    """No key can end the statement it stands in."""
    with pytest.raises(InvalidDocument, match="neither a term"):
        jsonld.lines({"id": ROOT, key: "x"})


@given(DOCUMENTS)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_compacting_loses_nothing(document: dict[str, Any]) -> None:
    """The readable form of a graph reads back as the same graph."""
    lines = jsonld.lines(named(document))

    assert engine(jsonld.compact(lines, ROOT)) == lines


def test_every_character_is_written_as_the_engine_writes_it() -> None:
    """Which ones are escaped, and how, decides whether a digest is that of what the engine holds."""
    texts = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]
    store = ox.Store()
    quads = "".join(f"<x:{number}> <x:p> {jsonld.literal(text)} .\n" for number, text in enumerate(texts))
    store.load(quads.encode(), format=ox.RdfFormat.N_TRIPLES)
    written = (store.dump(format=ox.RdfFormat.N_QUADS) or b"").decode()
    assert sorted(written.split("\n")) == sorted(quads.split("\n"))


PREDICATES = st.sampled_from(
    ["name", "cpuRequest", "memoryRequest", "ready", "phase", "domain", "runOf", "label", "replicas", "invented"]
).map(lambda name: jsonld.NAMESPACE + name) | st.sampled_from(
    ["http://x.example/p", "http://www.w3.org/ns/prov#startedAtTime", "http://purl.org/dc/terms/isPartOf"]
)
XSD = "http://www.w3.org/2001/XMLSchema#"
OBJECTS = (
    IDS.map("<{}>".format)
    | st.sampled_from(["decimal", "integer", "boolean", "double", "dateTime", "string", "anyURI"]).flatmap(
        lambda kind: st.sampled_from(["1", "true", "0.5", "x", "9" * 25, "-0", "2026-11-27T00:00:00Z"]).map(
            lambda text: f'"{text}"^^<{XSD}{kind}>'
        )
    )
    | st.sampled_from(
        ['"x"@en', '"x"', '""', f"<{jsonld.NAMESPACE}Running>", "_:b", "<urn:a:b>", "<http://x.example/a:b>"]
    )
)
STATEMENTS = st.tuples(IDS.map("<{}>".format) | st.just("_:b"), PREDICATES.map("<{}>".format), OBJECTS)


@given(st.lists(STATEMENTS, min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_compacting_any_graph_loses_nothing(statements: list[tuple[str, str, str]]) -> None:
    """Values of a wrong type, languages, undeclared terms, cycles and blank nodes survive the readable form too."""
    text = "".join(f"{' '.join(statement)} .\n" for statement in statements)
    lines = rdf.parse(text.encode(), rdf.NTRIPLES)[None]
    again = engine(jsonld.compact(lines, "https://kg.example/id/domain/a"))

    assert _canonical(again) == _canonical(lines)


@pytest.mark.parametrize("backwards", [False, True])
def test_parts_within_parts_are_written_however_many(*, backwards: bool) -> None:
    """A chain that is deeper than any reader of JSON goes is listed from some depth on, and loses nothing."""
    names = [ROOT, *(f"{ROOT}/run/{number:04}" for number in range(3_000))]
    said = "{1} <{ns}runOf> {0}" if backwards else "{0} <http://purl.org/dc/terms/hasPart> {1}"
    lines = frozenset(
        said.format(f"<{one}>", f"<{other}>", ns=jsonld.NAMESPACE) + " ." for one, other in itertools.pairwise(names)
    )
    document = jsonld.compact(lines, ROOT)

    assert jsonld_loader.nesting(json.dumps(document).encode()) <= jsonld_loader.MAX_DEPTH
    assert engine(document) == lines


@given(st.text(), st.sampled_from(["", "@en", f"^^<{XSD}dateTime>", "^^<http://x.example/t>"]))
def test_what_is_written_is_json_whatever_a_literal_holds(text: str, suffix: str) -> None:
    """The text is put together from pieces, and reads as the document that it is."""
    name = "https://kg.example/id/domain/a"
    graph = f"<{name}> <{jsonld.NAMESPACE}name> {jsonld.literal(text)}{suffix} ."
    written = jsonld.write(graph, name)

    assert json.loads(written) == jsonld.compact([graph], name)
    said = json.loads(written)["name"]
    assert (said["@value"] if suffix else said) == text


def _canonical(lines: Lines) -> set[str]:
    dataset = ox.Dataset(ox.parse("\n".join(lines).encode(), format=ox.RdfFormat.N_QUADS))
    dataset.canonicalize(ox.CanonicalizationAlgorithm.RDFC_1_0)
    return {str(quad) for quad in dataset}


def test_a_value_that_is_not_json_is_a_mistake_of_the_renderer() -> None:
    """None and floats have no meaning in a node document."""
    for value in (None, 1.5, b"x"):
        with pytest.raises(TypeError):
            jsonld.lines({"id": ROOT, "name": value})


@pytest.mark.parametrize(
    "bad", ["http://x> <http://p> <http://o", "a b", "http://x/{y}", "not-absolute", "", 'http://"']
)
def test_an_illegal_iri_never_becomes_a_line(bad: str) -> None:
    """A manifest's text in the place of an IRI cannot end the statement it stands in."""
    for document in ({"id": ROOT, "domain": bad}, {"id": bad, "name": "x"}, {"id": ROOT, "endpointURL": bad}):
        with pytest.raises(InvalidDocument):
            jsonld.lines(document)


# -- a caller's documents -----------------------------------------------------------------------------------------------------


def test_plain_json_is_read_with_our_context() -> None:
    """A document without a context has ours; so has one that names it."""
    plain = {"id": ROOT, "type": "Deployment", "replicas": 3}

    assert engine(plain) == engine({"@context": CONTEXT_IRI, **plain}) == jsonld.lines(plain)


@pytest.mark.parametrize(
    "document",
    [
        {"@context": "https://evil.example/context.jsonld", "id": ROOT},
        {"@context": [CONTEXT_IRI, "http://127.0.0.1/"], "id": ROOT},
        {"@context": {"@import": CONTEXT_IRI}, "id": ROOT},
        {"@context": [{"@import": "http://evil.example/"}], "id": ROOT},
        {"@context": {"a": {"@id": "http://x/a", "@context": "http://evil.example/"}}, "id": ROOT},
        {"@context": {"a": {"@id": "http://x/a", "@context": {"@import": "http://evil.example/"}}}, "id": ROOT},
        {"@context": CONTEXT_IRI, "id": ROOT, "domain": {"@context": "http://evil.example/", "id": ROOT}},
        [{"@context": "http://evil.example/", "id": ROOT}],
    ],
)
def test_a_remote_context_is_refused_wherever_it_stands(document: Any) -> None:
    """Nothing is fetched because a document says so, not even to find out."""
    with pytest.raises(InvalidDocument, match="not allowed"):
        jsonld_loader.inline(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"id": "a", "id": "b"}', "'id' stands twice"),
        (b'{"a": {"b": 1, "c": 2, "b": 3}}', "'b' stands twice"),
        (b'{"id": ', "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'"text"', "object or an array"),
        (b"17", "object or an array"),
        (b"null", "object or an array"),
        (b"[" * 33 + b"]" * 33, "33 levels"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "100 levels"),
        (b"[" * 100_000, "100000 levels"),
        ("\u2200".encode("utf-16-be") + ("[" * 5000).encode("utf-16-be"), "not JSON|levels"),
        (json.dumps({"id": ROOT}).encode("utf-16"), "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": Infinity}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": 1e400}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
    ],
)
def test_malformed_documents_are_refused_with_a_reason(data: bytes, says: str) -> None:
    """Duplicate keys, broken JSON, other values than objects, depth: each is told in words."""
    with pytest.raises(InvalidDocument, match=says):
        jsonld_loader.inline(data)


def test_a_large_document_is_refused_with_numbers() -> None:
    """The limit and the size stand in the message."""
    with pytest.raises(TooLarge, match=r"1,048,579 bytes; the limit is 1,048,576"):
        jsonld_loader.inline(b'"' + b"a" * (1024 * 1024 + 1) + b'"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=20,
)


@given(JSON)
def test_nesting_is_the_depth_of_the_parsed_value(value: Any) -> None:
    """Brackets inside strings do not count, whatever quotes and backslashes stand beside them."""

    def depth(part: Any) -> int:
        if isinstance(part, dict):
            return 1 + max(map(depth, part.values()), default=0)
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    assert jsonld_loader.nesting(json.dumps(value).encode()) == depth(value)
    assert jsonld_loader.nesting(json.dumps(value, ensure_ascii=False).encode()) == depth(value)


@pytest.mark.parametrize("piece", [b'"', b'"\\', b"\\", b'\\"', b"[", b'["', b'"a', b"]", b'"\\"'])
@pytest.mark.timeout(20)  # what grows with the square of the length takes hours
def test_finding_the_depth_is_linear(piece: bytes) -> None:
    """No text of the largest size takes longer than its length warrants."""
    assert jsonld_loader.nesting(piece * (jsonld_loader.MAX_BYTES // len(piece))) >= 0


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_document_or_an_error(data: bytes) -> None:
    """Reading what somebody sends never fails in another way."""
    try:
        rdf.parse(jsonld_loader.inline(data), JSONLD)
    except (InvalidDocument, TooLarge):
        return


# -- every fixture ----------------------------------------------------------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden"
FIXTURES = [
    *[(path.name, json.loads(path.read_bytes())) for path in sorted((GOLDEN / "shapes").glob("*.jsonld"))],
    *[(path.name, json.loads(path.read_bytes())["document"]) for path in sorted((GOLDEN / "render").glob("*.json"))],
]


@pytest.mark.parametrize("document", [document for _, document in FIXTURES], ids=[name for name, _ in FIXTURES])
def test_every_fixture_is_read_as_pyld_reads_it_and_survives_the_readable_form(document: dict[str, Any]) -> None:
    """The engine and the reference implementation make the same statements of it, and compacting loses none of them."""
    lines = engine(document)
    root = document.get("id") or document["@id"]

    assert _canonical(lines) == _canonical(reference(document))
    assert _canonical(engine(jsonld.compact(lines, root))) == _canonical(lines)
