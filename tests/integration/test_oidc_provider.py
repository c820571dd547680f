"""Tokens that a real OpenID Connect provider issues (npm's ``oidc-provider``): accepted, refused, rotated, ended."""

from __future__ import annotations

import re
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
client = "pages"
client_secret = "{secret}"
name = "email"
scopes = ["openid", "email"]
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
    (tmp_path / "secret").write_text("pages-secret-of-these-tests\n")
    config = tmp_path / "drumlin.toml"
    config.write_text(CONFIG.format(issuer=provider.issuer, secret=tmp_path / "secret"))
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
        _sign_in_by_code(url)
        _sign_in_by_token(url, job)
        log = (store / "access.jsonl").read_text()
        assert '"ada"' in log
        assert '"ada@edge.example"' in log
        assert ada.decode() not in log
        assert job.decode() not in "".join(service.log)


HTML = {"Accept": "text/html,*/*;q=0.8"}


def _cookies(answer: httpx.Response) -> dict[str, str]:
    """Return what an answer sets; its cookies are for TLS, script-proof and of this site, as the base is https."""
    found = {}
    for each in answer.headers.get_list("set-cookie"):
        assert all(flag in each for flag in ("HttpOnly", "SameSite=lax", "Secure", "Path=/")), each
        name, _, value = each.partition(";")[0].partition("=")
        found[name] = value
    return found


def _at_provider(address: str, login: str) -> httpx.URL:
    """Sign in and consent on the provider's own pages; return the address to which it sends the browser back."""
    with httpx.Client(follow_redirects=False) as browser:
        answer = browser.get(address)
        while True:
            while answer.is_redirect:
                target = answer.headers["location"]
                if target.startswith("https://kg.example/"):
                    return httpx.URL(target)
                answer = browser.get(httpx.URL(address).join(target))
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            action = re.search(r'action="([^"]+)"', answer.text)
            assert prompt, answer.text
            assert action
            form = {"prompt": prompt[1], "login": login, "password": "any"}
            answer = browser.post(httpx.URL(address).join(action[1]), data=form)


def _sign_in_by_code(url: str) -> None:
    """From a page to the provider and back to the page; the code is good once, and a session changes nothing for pages elsewhere."""
    page = httpx.get(f"{url}/changes?limit=3", headers=HTML)
    assert (page.status_code, page.headers["location"]) == (303, "./signin?next=%2Fchanges%3Flimit%3D3")
    form = httpx.get(f"{url}/signin?next=/changes?limit=3", headers=HTML)
    assert form.status_code == 200
    assert "signin/with/0?next=%2Fchanges%3Flimit%3D3" in form.text
    begun = httpx.get(f"{url}/signin/with/0?next=/changes?limit=3")
    state = _cookies(begun)
    back = _at_provider(begun.headers["location"], "ada")
    assert httpx.get(f"{url}{back.raw_path.decode()}").status_code == 401  # another browser
    begun = httpx.get(f"{url}/signin/with/0?next=/changes?limit=3")
    state = _cookies(begun)
    back = _at_provider(begun.headers["location"], "ada")
    signed_in = httpx.get(f"{url}{back.raw_path.decode()}", cookies=state)
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "../changes?limit=3"), signed_in.text
    assert httpx.get(f"{url}{back.raw_path.decode()}", cookies=state).status_code == 401  # replayed
    session = _cookies(signed_in)
    page = httpx.get(f"{url}/changes", headers=HTML, cookies=session)
    assert page.status_code == 200
    assert "ada@edge.example" in page.text

    for sender, status in (
        ({"Origin": url}, 415),
        ({"Sec-Fetch-Site": "same-origin"}, 415),
        ({}, 403),
        ({"Origin": "https://evil.example"}, 403),
    ):
        assert httpx.put(f"{url}/subgraph/{POD}", headers=sender, cookies=session).status_code == status, sender
    out = httpx.post(f"{url}/signout", headers={"Origin": url}, cookies=session)
    assert (out.status_code, out.headers["location"]) == (303, "./signin")
    assert httpx.get(f"{url}/search", cookies=session).status_code == 401

    begun = httpx.get(f"{url}/signin/with/0")
    back = _at_provider(begun.headers["location"], "bob")
    refused = httpx.get(f"{url}{back.raw_path.decode()}", cookies=_cookies(begun))
    assert refused.status_code == 403
    assert "bob@edge.example is known" in refused.text


def _sign_in_by_token(url: str, token: bytes) -> None:
    """A token makes a session of its holder; a wrong one is refused on the page, and no address leads elsewhere afterwards."""
    wrong = httpx.post(f"{url}/signin", data={"token": "drumlin_x", "next": "/"})
    assert wrong.status_code == 401
    assert "not known here" in wrong.text
    assert not wrong.headers.get_list("set-cookie")
    for next, place in (
        ("/doc/x?y=1", "./doc/x?y=1"),
        ("//evil.example/x", "./evil.example/x"),
        ("https://evil.example", "./https://evil.example"),
    ):
        right = httpx.post(f"{url}/signin", data={"token": token.decode(), "next": next})
        assert (right.status_code, right.headers["location"]) == (303, place)
    session = _cookies(right)
    assert httpx.get(f"{url}/search", cookies=session).status_code == 200
    assert httpx.get(f"{url}/search", cookies=session, headers={"Authorization": "Bearer drumlin_x"}).status_code == 401
    assert token.decode() not in str(session)
