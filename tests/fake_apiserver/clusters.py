"""One way to talk to an API server under test, be it the fake or a real kube-apiserver with its etcd."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from drumlin.exporters.kubernetes.access import ApiServer
from drumlin.exporters.protocol import Kind
from tests.fake_apiserver.server import FakeApiServer
from tests.fake_apiserver.state import Json

_TOKEN = "only-for-this-test"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said: status, media type and the JSON (or the text) of the body."""

    status: int
    media_type: str
    body: Json
    text: str


def access_to(url: str, *, token: str | None = None, ca_file: str | None = None) -> ApiServer:
    """Reach an API server by its address, without any kubeconfig."""

    def load(configuration: Any) -> None:
        configuration.host = url
        configuration.ssl_ca_cert = ca_file
        if token:
            configuration.api_key["BearerToken"] = f"Bearer {token}"

    return ApiServer(load)


@dataclass(frozen=True, slots=True)
class Cluster:
    """An API server's address and how to write to it; ``fake`` is None for a real one."""

    url: str
    fake: FakeApiServer | None = None
    token: str | None = None
    ca_file: str | None = None

    def access(self) -> ApiServer:
        """Return the connection a source uses."""
        return access_to(self.url, token=self.token, ca_file=self.ca_file)

    def ask(self, method: str, path: str, body: Json | None = None, accept: str = "application/json") -> Answer:
        """Send one request."""
        media_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"accept": accept, "content-type": media_type}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        with urllib3.PoolManager(ca_certs=self.ca_file, retries=False) as pool:
            answer = pool.request(
                method, self.url + path, headers=headers, body=body and json.dumps(body), timeout=10.0
            )
        media_type, text = answer.headers.get("content-type", ""), answer.data.decode()
        # A watch answers a sequence of documents; what is asked here is one.
        body = json.loads(text) if media_type == "application/json" and text and text.count("\n") < 2 else {}
        return Answer(answer.status, media_type, body, text)

    def _done(self, method: str, path: str, body: Json | None = None) -> Json:
        answer = self.ask(method, path, body)
        assert answer.status < 300, answer.text
        return answer.body

    def path(self, kind: Kind, name: str = "", namespace: str = "default") -> str:
        """Return the path of a collection, or of one object in it."""
        inside = f"namespaces/{namespace}/" if kind.namespaced else ""
        return f"{kind.path.removesuffix(kind.plural)}{inside}{kind.plural}" + (f"/{name}" if name else "")

    def create(self, kind: Kind, name: str, labels: dict[str, str] | None = None, **more: object) -> Json:
        """Create an object of ``kind`` with the least that the API accepts."""
        meta: Json = {"name": name} | ({"labels": labels} if labels else {})
        body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta} | _LEAST.get(kind.name, {}) | more
        return self._done("POST", self.path(kind), body)

    def patch(self, kind: Kind, name: str, patch: Json, part: str = "") -> Json:
        """Merge ``patch`` into an object, or into its ``/status``."""
        return self._done("PATCH", self.path(kind, name) + part, patch)

    def delete(self, kind: Kind, name: str) -> None:
        """Delete an object at once."""
        self._done("DELETE", self.path(kind, name) + "?gracePeriodSeconds=0")


_LEAST: dict[str, Json] = {
    "Pod": {"spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]}},
    "Deployment": {
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "main", "image": "example.org/main:1"}]},
            },
        }
    },
}


@contextmanager
def fake_cluster() -> Iterator[Cluster]:
    """Run a fake API server."""
    with FakeApiServer() as fake:
        fake.bookmark_every = 0.2
        yield Cluster(fake.url, fake)


def why_no_real_cluster() -> str | None:
    """Return why there is no real API server to test against, or None when there is one."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return "KUBEBUILDER_ASSETS is not set; `setup-envtest use -p path` prints a directory for it"
    missing = [name for name in ("etcd", "kube-apiserver") if not (Path(assets) / name).is_file()]
    if missing:
        return f"KUBEBUILDER_ASSETS holds no {' and no '.join(missing)}; `setup-envtest use -p path` installs them"
    return None if shutil.which("openssl") else "openssl is not installed; `apt-get install openssl`"


@contextmanager
def real_cluster(directory: Path) -> Iterator[Cluster]:
    """Run etcd and kube-apiserver on loopback with their files in ``directory``; both end with the block."""
    assets, client, peer, secure = Path(os.environ["KUBEBUILDER_ASSETS"]), _port(), _port(), _port()
    tokens, key = directory / "tokens.csv", directory / "sa.key"
    tokens.write_text(f'{_TOKEN},tester,tester,"system:masters"\n', encoding="utf-8")
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    etcd = [
        str(assets / "etcd"), f"--data-dir={directory / 'etcd'}", f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--unsafe-no-fsync",
    ]  # fmt: skip
    apiserver = [
        str(assets / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{client}", "--bind-address=127.0.0.1",
        f"--secure-port={secure}", f"--cert-dir={directory / 'certs'}", f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
    ]  # fmt: skip
    processes = []
    try:
        with (directory / "log").open("wb") as output:
            processes += [subprocess.Popen(each, stdout=output, stderr=output) for each in (etcd, apiserver)]
        cluster = Cluster(
            f"https://127.0.0.1:{secure}", token=_TOKEN, ca_file=str(directory / "certs" / "apiserver.crt")
        )
        _wait_until_ready(cluster)
        yield cluster
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(20)


def _wait_until_ready(cluster: Cluster, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if cluster.ask("GET", "/api/v1/namespaces/default").status == 200:
                return
        except (urllib3.exceptions.HTTPError, OSError):
            pass  # not listening yet, or its certificate is not written yet
        time.sleep(0.2)
    raise TimeoutError(f"kube-apiserver was not ready in {within} s")


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
