"""Seeded SPARQL texts and documents that are nearly right, and what a service does with them: it lives, fetches nothing, and says what is wrong.

A case is a text of the corpus, changed a few times: tokens dropped, doubled, swapped, repeated hundreds of times, spliced with another text's, words
glued together, SERVICE and LOAD with the canary's address put in. The same seed gives the same cases. Texts that the gate refuses go no further (it is
the same gate in the service); the others are sent to a listening service. ``bodies`` are mutants of sound documents in every syntax, of Arrow
streams and of forms (``tests.hostile``), each for a door that takes it, some of them packed.
"""

from __future__ import annotations

import gzip
import http.client
import random
import re
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from drumlin.kg.errors import QueryRejected
from drumlin.kg.rdf.syntax import SYNTAXES
from drumlin.kg.sparql import gate
from tests import hostile
from tests.listening import listening

C = TypeVar("C")

CANARY = "http://canary.invalid/"
"""Stands for the canary's address until that is known."""

QUERIES = (
    "SELECT * WHERE { ?s ?p ?o } LIMIT 5",
    "PREFIX d: <https://w3id.org/drumlin/ns#> SELECT ?w (COUNT(*) AS ?n) { ?w a d:Deployment ; d:name ?x OPTIONAL { ?w d:phase ?y } } GROUP BY ?w ORDER BY DESC(?n)",
    'ASK { GRAPH ?g { ?s ?p \'a\' , """b"""@en , 1.5e3 , true } FILTER(!(?s = <a:b>) && (?p < 5 || ?g != ?s)) }',
    "CONSTRUCT { ?s a [ <a:p> ( 1 ?o ) ] } WHERE { { SELECT ?s ?o { ?s <a:p>/<a:q>*|^<a:r>+ ?o } } UNION { ?s ?p ?o MINUS { ?o ?p ?s } } }",
    "DESCRIBE <https://kg.example/id/cluster/prod> ?x FROM <http://g> FROM NAMED <http://h> { ?x ?y ?z . FILTER NOT EXISTS { ?z ?y ?x } }",
    "SELECT (IF(BOUND(?x), STRLEN(STR(?x)), COALESCE(1/0, RAND())) AS ?r) { VALUES (?x ?y) { (1 UNDEF) (<a:b> 'c'^^<a:t>) } BIND(NOW() AS ?t) }",
    "SELECT * { << ?s ?p ?o >> ?a ?b . ?c ?d <<( ?s ?p ?o )>> ~ ?r {| ?e ?f |} }",
    f"PREFIX service: <a:> SELECT * {{ SERVICE <{CANARY}> {{ ?s ?p ?o }} }}",
)
UPDATES = (
    "INSERT DATA { <a:a> <a:b> 1 . GRAPH <http://g> { _:x <a:p> [ a <a:C> ; <a:q> ( 1 'x' ) ] } }",
    "PREFIX a: <a:> WITH <http://g> DELETE { ?s a:p ?o } INSERT { ?s a:p ?n ; a:t [] } USING NAMED <http://h> WHERE { ?s a:p ?o BIND(?o + 1 AS ?n) }",
    "DELETE WHERE { GRAPH ?g { ?s <a:p> ?o } } ; CREATE SILENT GRAPH <http://g> ; COPY SILENT <http://g> TO DEFAULT ; MOVE SILENT <http://h> TO <http://i>",
    "CLEAR SILENT GRAPH <http://g> ; DROP SILENT DEFAULT ; CLEAR ALL ; ADD DEFAULT TO <http://j>",
    "INSERT { GRAPH ?g { ?s ?p ?o } } WHERE { GRAPH ?g { ?s ?p ?o } FILTER(CONTAINS(STR(?g), 'x')) } ; DELETE DATA { <a:a> <a:b> 1 }",
    f"LOAD SILENT <{CANARY}> INTO GRAPH <http://g>",
)
# The shapes that killed or hung the engine when it was measured, to be multiplied.
SHAPES = ("{", "(", "!", "-(", "1+", "||", " UNION {} ", "[ <a:p> ", "( 1 ", "/<a:p>", "OPTIONAL { ", "NOT EXISTS { ", "<<( ?s ?p ", "<a:p>|", "^", "COALESCE(", ". ?a ?b ?c ", "; CLEAR ALL ", "{ SELECT * ")  # fmt: skip
_HOSTILE = (f"SERVICE <{CANARY}> {{ ?a ?b ?c }}", f"SERVICE SILENT <{CANARY}> {{}}", f"LOAD <{CANARY}>", f"FROM <{CANARY}>", "# ", "\\u007B", "'''", '"', "<", ">", "}", ")", "\x00", "\u00e9", "_:x", "@en")  # fmt: skip
_PIECES = re.compile(r"\s+|[A-Za-z0-9_:]+|<[^<>\s]*>|.", re.DOTALL)


class Case(NamedTuple):
    """One text, and which endpoint it is for."""

    kind: Literal["query", "update"]
    text: str


def cases(seed: int, count: int, *, updates: float = 0.1) -> Iterator[Case]:
    """Yield ``count`` cases; ``updates`` is the part of them that are updates."""
    random_ = random.Random(seed)
    for _ in range(count):
        kind: Literal["query", "update"] = "update" if random_.random() < updates else "query"
        pieces = _PIECES.findall(random_.choice(UPDATES if kind == "update" else QUERIES))
        for _ in range(random_.choice((0, 1, 1, 2, 3, 5))):
            _change(pieces, random_)
        yield Case(kind, "".join(pieces))


def _change(pieces: list[str], random_: random.Random) -> None:
    at = random_.randrange(len(pieces) + 1)
    to = min(len(pieces), at + random_.randrange(1, 6))
    choice = random_.randrange(8)
    if choice == 0:
        del pieces[at:to]
    elif choice == 1:
        pieces[at:at] = pieces[at:to]
    elif choice == 2:
        pieces[at:at] = [random_.choice(SHAPES) * random_.choice((1, 2, 5, 20, 90, 300, 3000))]
    elif choice == 3:
        pieces[at:at] = [random_.choice(_HOSTILE)]
    elif choice == 4:
        other = _PIECES.findall(random_.choice(QUERIES + UPDATES))
        start = random_.randrange(len(other))
        pieces[at:to] = other[start : start + random_.randrange(1, 12)]
    elif choice == 5:
        pieces[:] = [each for each in pieces if not each.isspace() or random_.random() < 0.7]
    elif choice == 6 and at < len(pieces):
        pieces[at] = pieces[at].swapcase()
    elif at < len(pieces):
        letters = list(pieces[at])
        letters[random_.randrange(len(letters))] = chr(
            random_.choice((0x20, 0x0A, 0x7B, 0x7D, 0x3C, 0x41, 0x5C, 0x2028))
        )
        pieces[at] = "".join(letters)


@contextmanager
def canary() -> Iterator[tuple[str, list[bytes]]]:
    """Listen on loopback; yields the address and what has come."""
    heard: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            heard.append(self.request.recv(200))

    with listening(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}/", heard


class Body(NamedTuple):
    """One request with a document."""

    kind: str
    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes


ENTITY = "/subgraph/prod/payments/deployment/own"
_FORECAST = "/forecasts?entity=prod/payments/deployment/own&metric=cpu_usage&model=m&horizon=1h&step=1m"
_GRAPH = "/store?graph=http://x/g"
_FORM = "multipart/form-data; boundary=x"
_DOORS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    **{
        each.name: [
            ("PUT", _GRAPH, each.media_type),
            ("PUT", ENTITY, each.media_type),
            *([("POST", "/store", each.media_type)] if each.quads else []),
        ]
        for each in SYNTAXES
    },
    "arrow": [("POST", _FORECAST, "application/vnd.apache.arrow.stream")],
    "form": [("PUT", _GRAPH, _FORM)],
    "lines": [("POST", "/subgraphs", "application/x-ndjson")],
    "patch": [("PATCH", ENTITY, "application/merge-patch+json"), ("PATCH", ENTITY, "application/sparql-update")],
}
_FORM_BODY = (
    b'--x\r\nContent-Disposition: form-data; name=a; filename="a.ttl"\r\n\r\n<a:a> <a:b> "c" .\r\n'
    b"--x\r\nContent-Type: application/n-triples\r\nContent-Transfer-Encoding: binary\r\n\r\n<a:a> <a:b> <a:c> .\r\n--x--\r\n"
)
_LINES_BODY = (
    b'{"op":"put","id":"domain/a","digest":null,"document":{"@context":{"@vocab":"https://w3id.org/drumlin/ns#"},"@id":"x:a","@type":"Domain"}}\n'
    b'{"op":"put","id":"domain/a","document":{"type":"Domain","name":"a"}}\n\n{"op":"delete","id":"domain/a"}\n{"op":"remove","id":"domain/a"}'
)
_PATCH_BODIES = [
    b'{"phase":null,"label":["a=b"]}',
    b"PREFIX a: <x:a#> INSERT DATA { a:s a:p [ a:q ( 1 'x' ) ] } ; DELETE DATA { a:s a:p 1.0e3 }",
]
_OTHERS: Mapping[str, list[bytes]] = {"form": [_FORM_BODY], "lines": [_LINES_BODY], "patch": _PATCH_BODIES}


def bodies(seed: int, count: int, kinds: Sequence[str] = tuple(_DOORS)) -> Iterator[Body]:
    """Yield ``count`` requests with mutants of sound bodies, one kind after the other."""
    chance = random.Random(seed)
    sources = {
        each: hostile.mutants(_OTHERS[each] if each in _OTHERS else hostile.KINDS[each][0](), seed + n, count)
        for n, each in enumerate(kinds)
    }
    for number in range(count):
        kind = kinds[number % len(kinds)]
        content = next(sources[kind])
        method, path, media_type = chance.choice(_DOORS[kind])
        headers = {"Content-Type": media_type}
        if chance.random() < _PACKED:
            headers["Content-Encoding"] = "gzip"
            content = gzip.compress(content, 1)
            if chance.random() < _PACKED:
                content = next(hostile.mutants([content], chance.randrange(1 << 30), 1))
        yield Body(kind, method, path, headers, content)


_PACKED = 0.2


def send_bodies(url: str, cases: Iterator[Body], *, workers: int = 4) -> tuple[Counter[str], list[Body]]:
    """Send documents; returns how often each outcome came, and those that were answered by 500."""
    return _sent(url, cases, _answer_to, lambda body, outcome: f"{body.kind} {outcome}", workers)


def _answer_to(connection: http.client.HTTPConnection, body: Body) -> str:
    connection.request(body.method, body.path, body.content, dict(body.headers))
    answer = connection.getresponse()
    text = answer.read()
    return "500" if b'"status":500' in text else str(answer.status)


def send(url: str, cases: Iterator[Case], address: str, *, workers: int = 4) -> tuple[Counter[str], list[Case]]:
    """Send what passes the gate; returns how often each outcome came, and the cases that were answered by 500."""
    addressed = (Case(each.kind, each.text.replace(CANARY, address)) for each in cases)
    return _sent(url, addressed, _outcome, lambda case, outcome: f"{case.kind} {outcome}", workers)


def _sent(
    url: str,
    cases: Iterator[C],
    ask: Callable[[http.client.HTTPConnection, C], str],
    name: Callable[[C, str], str],
    workers: int,
) -> tuple[Counter[str], list[C]]:
    outcomes: Counter[str] = Counter()
    crashed: list[C] = []
    lock = threading.Lock()

    def work() -> None:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
            while True:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                outcome = ask(connection, case)
                with lock:
                    outcomes[name(case, outcome)] += 1
                    if outcome == "500":
                        crashed.append(case)

    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(workers)]:
            done.result()
    return outcomes, crashed


def _outcome(connection: http.client.HTTPConnection, case: Case) -> str:
    """Send one text over a connection that is kept (``http.client``: most of the time was the client's, not the service's)."""
    try:
        gate.check(case.text, max_bytes=1 << 20, expect=case.kind)
    except QueryRejected:
        return "refused by the gate"
    path = "/sparql" if case.kind == "query" else "/sparql/update"
    try:
        connection.request("POST", path, case.text.encode(), {"Content-Type": f"application/sparql-{case.kind}"})
        answer = connection.getresponse()
        answer.read()
    except http.client.IncompleteRead:  # a body that is cut at the deadline, as it must be
        connection.close()
        return "cut"
    return str(answer.status)
