"""Tokens that a real OpenID Connect provider issues (npm's ``oidc-provider``): accepted, refused, rotated, ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from drumlin.api.access.callers import Role
from drumlin.api.access.issued_tokens import IssuedTokens
from drumlin.kg.config.issuers import IssuerSettings
from drumlin.kg.errors import Unauthenticated
from tests import javascript_packages
from tests.service.conftest import serving

POD = "prod/payments/pod/web"
CONFIG = """[[issuer]]
issuer = "{issuer}"
audience = "drumlin"
leeway = 0
[[issuer.grant]]
claim = "groups"
value = "sre"
role = "admin"
[[issuer.grant]]
claim = "groups"
value = "jobs"
role = "reader"
"""


class Provider:
    """A provider in a process of its own."""

    def __init__(self) -> None:
        javascript_packages.install()
        self._process = subprocess.Popen(
            ["node", "provider.mjs"],
            cwd=javascript_packages.FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.issuer = self._address()

    def _address(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("http"):
                return line.strip()
        raise AssertionError("the provider did not start")

    def token(self, client: str = "ada", audience: str = "drumlin") -> bytes:
        """Have a token issued to a client for an audience."""
        answer = httpx.post(
            f"{self.issuer}/token",
            auth=(client, f"{client}-secret-of-these-tests"),
            data={"grant_type": "client_credentials", "resource": f"urn:{audience}", "scope": "read"},
        )
        return str(answer.raise_for_status().json()["access_token"]).encode()

    def rotate(self) -> None:
        """Withdraw the key and sign with another one from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._address()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    """One provider for the module."""
    found = Provider()
    yield found
    found.stop()


def test_tokens_of_a_real_provider_are_verified_through_a_rotation(provider: Provider) -> None:
    """Its discovery document leads to its keys; a new key is found, and tokens of the old one are refused."""
    seconds = [0.0]
    settings = IssuerSettings.model_validate(
        {"issuer": provider.issuer, "audience": "drumlin", "grant": [{"value": "ada", "role": "admin"}]}
    )
    tokens = IssuedTokens([settings], clock=lambda: seconds[0])
    old = provider.token()
    assert tokens.verify(old, "id").caller.role is Role.admin
    with pytest.raises(Unauthenticated, match="another audience"):
        tokens.verify(provider.token(audience="grafana"), "id")
    provider.rotate()
    seconds[0] += 20
    assert tokens.verify(provider.token(), "id").caller.name == "ada"
    with pytest.raises(Unauthenticated, match="withdrawn"):
        tokens.verify(old, "id")


def test_a_service_takes_tokens_of_its_issuer(provider: Provider, tmp_path: Path) -> None:
    """Beyond loopback too: roles by claims, 401 and 403 with reasons, the name in the audit log, a stream that ends with its token."""
    config = tmp_path / "drumlin.toml"
    config.write_text(CONFIG.format(issuer=provider.issuer))
    store = tmp_path / "store"
    with serving("--store", str(store), "--config", str(config), "--host", "0.0.0.0") as service:
        url = service.url.replace("0.0.0.0", "127.0.0.1")

        def status(token: bytes | None, method: str = "GET", path: str = "/search") -> int:
            headers = {"Authorization": f"Bearer {token.decode()}"} if token else {}
            return httpx.request(method, url + path, headers=headers, timeout=30).status_code

        ada, job = provider.token("ada"), provider.token("job")
        assert status(None) == 401
        assert status(job) == 200
        assert status(job, "PUT", f"/subgraph/{POD}") == 403
        assert status(ada, "PUT", f"/subgraph/{POD}") == 415  # it may, but sends nothing
        refused = httpx.get(
            f"{url}/search", headers={"Authorization": f"Bearer {provider.token(audience='x').decode()}"}
        )
        assert refused.status_code == 401
        assert "another audience" in refused.json()["detail"]
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")

        brief = provider.token("brief").decode()
        with httpx.stream("GET", f"{url}/events", headers={"Authorization": f"Bearer {brief}"}, timeout=60) as stream:
            assert stream.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in stream.iter_bytes():
                    pass
        assert status(brief.encode()) == 401
        log = (store / "access.jsonl").read_text()
        assert '"ada"' in log
        assert ada.decode() not in log
        assert job.decode() not in "".join(service.log)
