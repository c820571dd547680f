"""A remote store behind a proxy that speaks TLS and wants a Bearer token or Basic credentials; and what a listing costs there."""

from __future__ import annotations

import random
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from drumlin.kg.config.datasources import Credential, StoreSettings, TlsSettings
from drumlin.kg.errors import InvalidSettings, StoreUnavailable
from drumlin.kg.store.remote import bookkeeping_graph, catalogue_cache
from drumlin.kg.store.remote.store import RemoteStore
from tests.integration.engines import RunningEngine, engine
from tests.integration.test_prometheus_tls import certificate
from tests.listening import listening
from tests.store_behaviours import ROOT, A, read, remove, values, write

TOKEN = "a-token-that-no-message-may-hold"
BASIC = "Basic " + b64encode(f"drumlin:{TOKEN}".encode()).decode()


@pytest.fixture(scope="module")
def oxigraph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Oxigraph's server, without any protection of its own."""
    with engine("oxigraph", tmp_path_factory.mktemp("oxigraph")) as running:
        yield running


class Proxy(ThreadingHTTPServer):
    """Passes on what comes with the token, and counts it."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = urlsplit(behind.removeprefix("sparql+")).netloc
        self.asked: list[str] = []
        self.refused = 0

    @property
    def url(self) -> str:
        """Its address, for a store."""
        return f"sparql+https://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Pass a request on, or refuse it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") not in (f"Bearer {TOKEN}", BASIC):
            self.server.refused += 1
            self._answer(401, "text/plain", b"who are you?")
            return
        self.server.asked.append(body.decode())
        headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
        with closing(HTTPConnection(self.server.behind, timeout=60)) as behind:
            behind.request("POST", self.path, body, headers)
            answer = behind.getresponse()
            self._answer(answer.status, answer.headers.get("Content-Type", ""), answer.read())

    def _answer(self, status: int, media_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The proxy's certificate, which is its own CA."""
    return certificate(tmp_path_factory.mktemp("certificates"), "proxy")


@contextmanager
def proxied(oxigraph: RunningEngine, certificates: Path) -> Iterator[Proxy]:
    """Put a proxy before the engine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates, f"{certificates}.key")
    proxy = Proxy(oxigraph.url)
    proxy.socket = context.wrap_socket(proxy.socket, server_side=True)
    with listening(proxy):
        yield proxy


@pytest.fixture
def proxy(oxigraph: RunningEngine, certificates: Path) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with proxied(oxigraph, certificates) as running:
        yield running


def settings(secret: Path, ca: Path | None, username: str | None = None) -> StoreSettings:
    """Settings with a token, or a user's password, in a file."""
    credential = Credential(secret=f"file:{secret}", username=username)
    return StoreSettings(engine="oxigraph", credential=credential, tls=TlsSettings(ca=ca))


@pytest.mark.parametrize("username", [None, "drumlin"], ids=["bearer", "basic"])
def test_a_store_is_kept_through_tls_with_a_credential(
    proxy: Proxy, certificates: Path, tmp_path: Path, username: str | None
) -> None:
    """Writes, reads and queries go through; a secret that is rotated is read again, and one that is wrong is told by name only."""
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    with closing(RemoteStore(proxy.url, settings(secret, certificates, username))) as store:
        (written,) = store.apply([write(A, 1)])
        assert values(store, f"SELECT ?v {{ GRAPH <{A}> {{ ?s ?p ?v }} }}") == ["1"]
        secret.write_text("another")
        with pytest.raises(StoreUnavailable, match="refuses the credential") as refused:
            store.read(A)
        assert "another" not in str(refused.value) + str(refused.value.hint)
        secret.write_text(TOKEN)
        assert read(store, A).entry.generation == written.generation
        store.apply([remove(A)])
    assert proxy.refused > 0


def test_who_is_not_trusted_gets_no_token(proxy: Proxy, certificates: Path, tmp_path: Path) -> None:
    """Without the proxy's CA, and with one that is none, nothing is sent; the error says which setting it is."""
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    with pytest.raises(StoreUnavailable, match="certificate is not trusted") as untrusted:
        RemoteStore(proxy.url, settings(secret, None))
    assert "store.tls.ca" in str(untrusted.value.hint)
    for wrong in (secret, tmp_path / "absent", Path(f"{certificates}.key")):
        with pytest.raises(InvalidSettings, match="certificates"):
            RemoteStore(proxy.url, settings(secret, wrong))
    assert (proxy.asked, proxy.refused) == ([], 0)


def test_a_listing_reads_what_has_changed(oxigraph: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However two processes write, each lists what a third, which reads all, does; what it has read it does not read again."""
    monkeypatch.setattr(catalogue_cache, "_PAGE", 7)
    monkeypatch.setattr(catalogue_cache, "FAR", 8)
    chance = random.Random(5)
    with closing(RemoteStore(oxigraph.url)) as one, closing(RemoteStore(oxigraph.url)) as two:
        one.apply([write(f"{ROOT}{number:02}/-/node/n", 0, owner=f"o{number % 2}") for number in range(20)])
        for changes in (0, 1, 3, 10, 2):
            for _ in range(changes):
                graph, writer = f"{ROOT}{chance.randrange(26):02}/-/node/n", chance.choice((one, two))
                held = writer.entry(graph)
                owner = held.owner if held else "o9"
                gone = held is not None and chance.random() < 0.4
                writer.apply([remove(graph, owner) if gone else write(graph, chance.random(), owner=owner)])
            with closing(RemoteStore(oxigraph.url)) as fresh:
                expected = fresh.entries()
            assert one.entries() == expected == two.entries()
            prefix, after = f"{ROOT}1", expected[3].graph
            assert one.entries(prefix=prefix) == [each for each in expected if each.graph.startswith(prefix)]
            assert two.entries(owner="o1", after=after) == [
                each for each in expected if each.owner == "o1" and each.graph > after
            ]
            assert one.entries(after=after, limit=2) == expected[4:6]
        with monkeypatch.context() as patched:
            patched.delattr(bookkeeping_graph, "entries_query")
            two.apply([write(expected[0].graph, "new", owner=expected[0].owner)])
            assert [each.graph for each in one.entries()] == [each.graph for each in expected]
            assert one.entries()[0].generation == two.generation
        one.apply([remove(each.graph, each.owner) for each in expected])
