"""Bodies that would end a process whose parsers follow them, and seeded mutants of sound ones: for the suite (some) and by hand (many).

``python -m tests.hostile KIND SEED COUNT`` reads mutants of one kind within 3 GB of memory, and writes the number of each one before it
reads it: the last number is the one that ended the process. Errors of ours are what is expected; any other exception ends it, too.
"""

from __future__ import annotations

import io
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from drumlin.kg import rdf
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DrumlinError
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.telemetry import forecast_points
from drumlin.kg.telemetry.arrow_input import read_stream
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch import parquet
from drumlin.kg.telemetry.series import Grid

MEMORY = 3 << 30
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_START = 1_793_491_200


# -- nested -----------------------------------------------------------------------------------------------------------------
def triple_terms(depth: int, graph: str = "") -> bytes:
    """Return a statement (of N-Triples, N-Quads, Turtle, TriG) whose object is nested so deeply."""
    return f"<x:s> <x:p> {'<<( <x:s> <x:p> ' * depth}<x:o>{' )>>' * depth} {graph}.\n".encode()


def reified_triples(depth: int) -> bytes:
    """Return a statement about a statement about a statement … (Turtle, TriG)."""
    return f"{'<< ' * depth}<x:s>{' <x:p> <x:o> >>' * depth} <x:p> <x:o> .\n".encode()


def collections(depth: int) -> bytes:
    """Return lists in lists (Turtle, TriG, N3)."""
    return f"<x:s> <x:p> {'( ' * depth}{')' * depth} .\n".encode()


def blank_nodes(depth: int) -> bytes:
    """Return blank nodes in blank nodes (Turtle, TriG, N3)."""
    return f"<x:s> <x:p> {'[ <x:p> ' * depth}1{']' * depth} .\n".encode()


def annotations(depth: int) -> bytes:
    """Return annotations of annotations (Turtle, TriG)."""
    return f"<x:s> <x:p> <x:o> {'{| <x:p> <x:o> ' * depth}{'|}' * depth} .\n".encode()


def formulas(depth: int) -> bytes:
    """Return graphs in graphs (N3)."""
    return f"<x:s> <x:p> {'{ <x:s> <x:p> ' * depth}1{'}' * depth} .\n".encode()


def elements(depth: int) -> bytes:
    """Return RDF/XML whose elements are nested so deeply."""
    pairs, inner = (depth - 1) // 2, "" if depth % 2 else "<r:Description/>"
    nested = f"{'<r:Description><a:p>' * pairs}{inner}{'</a:p></r:Description>' * pairs}"
    return f'<r:RDF xmlns:r="{RDF}" xmlns:a="x:a#">{nested}</r:RDF>'.encode()


def aliases(count: int) -> bytes:
    """Return JSON-LD whose terms are defined by one another, so many in a row: a parser that follows them overflows its stack."""
    terms = ",".join(f'"t{n}":{{"@id":"t{n + 1}:x"}}' for n in range(count))
    return f'{{"@context":{{{terms}}},"@id":"x:a","t0":1}}'.encode()


def entities(levels: int) -> bytes:
    """Return RDF/XML whose entities expand to ten to the power of ``levels`` characters."""
    names = "abcdefghijklmnopqrstuvwxyz"
    declared = "".join(f'<!ENTITY {names[n + 1]} "{f"&{names[n]};" * 10}">' for n in range(levels))
    return (
        f'<?xml version="1.0"?><!DOCTYPE r:RDF [<!ENTITY a "a">{declared}]>'
        f'<r:RDF xmlns:r="{RDF}" xmlns:a="x:a#"><r:Description><a:p>&{names[levels]};</a:p></r:Description></r:RDF>'
    ).encode()


def solutions(depth: int) -> bytes:
    """Return SPARQL Results JSON with a triple term that is nested so deeply."""
    inner = '{"type":"triple","value":{"subject":{"type":"uri","value":"x:s"},"predicate":{"type":"uri","value":"x:p"},"object":'
    term = f'{inner * depth}{{"type":"uri","value":"x:o"}}{"}}" * depth}'
    return f'{{"head":{{"vars":["a"]}},"results":{{"bindings":[{{"a":{term}}}]}}}}'.encode()


# -- Arrow ------------------------------------------------------------------------------------------------------------------
def stream(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as out:
        out.write_table(table)
    return sink.getvalue()


def forecast(points: int = 8, **columns: pa.Array) -> pa.Table:
    """Return a sound forecast of so many points a minute apart, with other or more columns."""
    stamps = pa.array([datetime.fromtimestamp(_START, UTC) + timedelta(minutes=n) for n in range(points)])
    return pa.table({"ds": stamps, "y": pa.array([float(n) for n in range(points)]), **columns})


def out_of_bounds() -> bytes:
    """Return a stream whose texts have an offset far behind their end."""
    sound = stream(forecast(y=pa.array([str(n) for n in range(8)])))
    offsets = b"".join(n.to_bytes(4, "little") for n in range(9))
    at = sound.index(offsets)
    return sound[: at + 4] + (0x7FFFFF00).to_bytes(4, "little") + sound[at + 8 :]


def out_of_dictionary() -> bytes:
    """Return a stream with an index that its dictionary does not have."""
    indices = pa.array([0, 1, 0, 1, 0, 1, 0, 1_000_000], pa.int32())
    return stream(forecast(y=pa.DictionaryArray.from_arrays(indices, pa.array([1.0, 2.0]), safe=False)))


def bomb(codec: str, points: int = 40_000_000) -> bytes:
    """Return a small stream whose only buffer unpacks to 8 bytes a point."""
    return stream(pa.table({"y": pa.nulls(points, pa.float64())}), codec)


# -- mutants ----------------------------------------------------------------------------------------------------------------
_TURTLE = (
    rb"""@prefix a: <x:a#> . BASE <http://b/>
a:s a:p "x(", 'y[', """
    rb'"""l"{|"""'
    rb""", '''m<<(''', <x:i(t's> ; a:q [ a:r ( 1 2.5 1e3 true ) ] . # com((( <<
a:l\(o a:p a:o . _:b.c a:p [] .
"""
)
_STAR = b'<< a:s a:p a:o >> a:q a:r . a:s a:p <<( a:s a:p <<( a:s a:p "z"@en--ltr )>> )>> . a:s a:p a:o ~ a:re {| a:c a:d |} .\n'
_NTRIPLES = (
    rb'<x:s> <x:p> <<( <x:s> <x:p> <<( <x:a> <x:b> "c)>>\"<<("@en )>> )>> .'
    b"\n"
    rb'_:b <x:p> "a\u00e9#(" . # <<('
    b"\n<x:s(> <x:p> <x:o#> .\n"
)
_XML = (
    f'<?xml version="1.0" encoding="utf-8"?>\n<!-- < > --><r:RDF xmlns:r="{RDF}" xmlns:a="x:a#" xml:base="http://b/">'
    '<r:Description r:about="x" a:z="&lt;v&#65;"><a:p r:parseType="Literal"><b>t<![CDATA[ <x> ]]></b></a:p>'
    '<a:q r:parseType="Collection"><a:T/><a:T r:ID="i"/></a:q><a:r r:parseType="Resource"><a:n xml:lang="en">v</a:n></a:r>'
    '<a:t r:parseType="Triple"><r:Description r:about="x:s"><a:p r:resource="x:o"/></r:Description></a:t>'
    "</r:Description></r:RDF>"
)
_JSON = (
    '{"@context":{"@vocab":"http://v/","l":{"@container":"@list"},"i":{"@type":"@id"}},"@id":"x:a","@type":"T",'
    '"p":[1,2.5,true,null,{"@value":"x","@language":"en"},{"@list":[{"@list":[1]},[2]]}],'
    '"l":[[1],[2,{"@id":{"@id":"x:b","q":1},"q":{"@reverse":"z"}}]],"@graph":[{"@id":"x:g","@graph":{"a":"b"}}],'
    '"@included":[{"@id":"x:c"}],"@nest":{"n":1}}'
)


def _streams() -> list[bytes]:
    words = pa.array(["ab", "c" * 40, None, ""] * 2)
    tables = [
        forecast(),
        forecast(y=words.dictionary_encode(), w=words, v=words.cast(pa.string_view())),
        forecast(**{"q0.5": pa.array([[1.0], [], None, [2.0, 3.0]] * 2), "s": pa.array([{"a": 1, "b": "x"}] * 8)}),
        forecast(y=pa.RunEndEncodedArray.from_arrays(pa.array([3, 8], pa.int32()), pa.array([1.0, None]))),
    ]
    return [stream(each, codec) for each in tables for codec in (None, "zstd", "lz4")]


def _files() -> list[bytes]:
    found = []
    for codec in ("none", "zstd", "snappy"):
        for version, dictionary in (("1.0", True), ("2.6", False)):
            sink = io.BytesIO()
            series = forecast(
                64, unique_id=pa.array(["a", "b"] * 32), metric=pa.array(["m"] * 64), y=pa.array([1.0] * 63 + [None])
            )
            pa.parquet.write_table(
                series, sink, compression=codec, version=version, use_dictionary=dictionary, row_group_size=20
            )
            found.append(sink.getvalue())
    return found


def _rdf(syntax: rdf.Syntax) -> Callable[[bytes], object]:
    def read(data: bytes) -> None:
        try:
            rdf.parse(jsonld_loader.inline(data) if syntax is rdf.JSONLD else data, syntax, base="http://b/")
        finally:
            if syntax in (rdf.NQUADS, rdf.TRIG):
                for _ in rdf.statements(io.BytesIO(data), syntax):
                    pass

    return read


def _arrow(data: bytes) -> None:
    forecast_points.checked(read_stream(data, max_rows=forecast_points.MAX_POINTS))


def _parquet(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "f.parquet").write_bytes(data)
        place = DatasourceSettings(name="files", kind="parquet", url=Path(name).as_uri())
        server = Datasource.from_settings(place, Iris("https://kg.example"), None)
        reader = parquet.Parquet(server)
        grid = Grid(_START, _START + 3600, 60)
        for work in (
            reader.look,
            lambda: reader.known("metric"),
            lambda: reader.series(parquet.write("a", "m", "avg", 60, server), grid),
            lambda: forecast_points.load(server, "f.parquet"),
        ):
            try:
                work()
            except DrumlinError:
                continue


KINDS: Mapping[str, tuple[Callable[[], list[bytes]], Callable[[bytes], object]]] = {
    "turtle": (lambda: [_TURTLE + _STAR], _rdf(rdf.TURTLE)),
    "trig": (lambda: [_TURTLE + _STAR + b"GRAPH <x:g> { a:s a:p 1 } <x:h> { a:s a:p [ a:q 1 ] }"], _rdf(rdf.TRIG)),
    "n3": (lambda: [_TURTLE + b"{ a:s a:p ?x } => { a:s!a:p a:q ?x } . a:x <= a:y . a:z = a:a ."], _rdf(rdf.N3)),
    "ntriples": (lambda: [_NTRIPLES], _rdf(rdf.NTRIPLES)),
    "nquads": (lambda: [_NTRIPLES.replace(b" .", b" <x:g> .")], _rdf(rdf.NQUADS)),
    "rdfxml": (lambda: [_XML.encode()], _rdf(rdf.RDFXML)),
    "jsonld": (lambda: [_JSON.encode()], _rdf(rdf.JSONLD)),
    "arrow": (_streams, _arrow),
    "parquet": (_files, _parquet),
}
"""What can be mutated: sound bodies, and what reads one."""
_PIECES = [
    *(each.encode() for each in ["(", ")", "[", "]", "{", "}", "{|", "|}", "<<", ">>", "<<(", ")>>", '"', "'", '"""', "'''", "#", "\\", "<", ">", ".", ";", ",", "^^", "@en", "_:", "!", "^", "~", "=>", "<="]),
    *(b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\\u0028", b"<!DOCTYPE a [<!ENTITY e 'x'>]>", b"&e;", b"<a:p>", b"</a:p>"),
    *(b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b"?>", b'"@list":[', b'{"@id":', b'"@context":"http://x"', b"1e999"),
    *(b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8, b"\0" * 8, b"\x40"),
]  # fmt: skip


def mutants(bodies: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield bodies with bytes changed, pieces left out, doubled (some thousand times) or put in; the same seed gives the same."""
    chance = random.Random(seed)
    for _ in range(count):
        data = bytearray(chance.choice(bodies))
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            _change(data, bodies, chance)
        yield bytes(data[: 1 << 20])


def _change(data: bytearray, bodies: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    to = min(len(data), at + chance.randrange(1, 30))
    kind = chance.randrange(8)
    if kind == 0:
        del data[at:to]
    elif kind == 1:
        data[at:at] = data[at:to] * chance.choice((1, 2, 50, 3000))
    elif kind == 2:
        data[at:at] = chance.choice(_PIECES) * chance.choice((1, 2, 90, 101, 20_000))
    elif kind == 3:
        data[at:to] = chance.choice(_PIECES)
    elif kind == 4:
        other = chance.choice(bodies)[at:to]
        data[at:at] = (chance.choice(_PIECES) + other + chance.choice(_PIECES)) * chance.choice((1, 3, 5000))
    elif at < len(data):
        data[at] = chance.randrange(256) if kind < 7 else data[at] ^ (1 << chance.randrange(8))


def main(kind: str, seed: int, count: int) -> None:
    """Read mutants of a kind; ends with the process when one of them ends it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bodies, read = KINDS[kind]
    for number, each in enumerate(mutants(bodies(), seed, count)):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        try:
            read(each)
        except DrumlinError:
            continue


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
