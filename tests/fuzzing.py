"""Seeded SPARQL texts that are nearly right, and what a service does with them: it lives, fetches nothing, and says what is wrong.

A case is a text of the corpus, changed a few times: tokens dropped, doubled, swapped, repeated hundreds of times, spliced with another text's, words
glued together, SERVICE and LOAD with the canary's address put in. The same seed gives the same cases. Texts that the gate refuses go no further (it is
the same gate in the service); the others are sent to a listening service.
"""

from __future__ import annotations

import http.client
import random
import re
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from kg.errors import QueryRejected
from kg.sparql import gate
from tests.listening import listening

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


def send(url: str, cases: Iterator[Case], address: str, *, workers: int = 4) -> tuple[Counter[str], list[Case]]:
    """Send what passes the gate; returns how often each outcome came, and the cases that were answered by 500."""
    outcomes: Counter[str] = Counter()
    crashed: list[Case] = []
    lock = threading.Lock()

    def work() -> None:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
            while True:
                with lock:
                    case = next(cases, None)
                if case is None:
                    return
                text = case.text.replace(CANARY, address)
                outcome = _outcome(connection, Case(case.kind, text))
                with lock:
                    outcomes[f"{case.kind} {outcome}"] += 1
                    if outcome == "500":
                        crashed.append(Case(case.kind, text))

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
