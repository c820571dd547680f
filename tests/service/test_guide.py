"""The guide as pages: built by ``make docs``, served at ``/docs/guide``, asking nothing of other hosts; dead links are errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from drumlin.api.pages import guide
from tests.service.conftest import ROOT
from tests.service.test_pages import Page

NAVIGATION = ("Start", "Telemetry", "Graph", "Operations", "Reference", "Decisions")
SOUND = "# Sound\n\n```{toctree}\nother\n```\n\n[page](other.md) [anchor](other.md#there) [file](site.toml) [outside](https://x.example/)\n"
OTHER = "# Other\n\n## There\n"


@pytest.fixture(scope="module")
def built() -> list[str]:
    """The pages of the guide; it is made by ``make test``, and in CI it must be there."""
    if not guide.files():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("the guide is not built: make docs")
    return sorted(each for each in guide.files() if each.endswith(".html"))


def test_every_page_of_the_documentation_is_in_the_guide(built: list[str]) -> None:
    """Each Markdown file and notebook of docs/ has a page, in one of six groups of the contents."""
    sources = [each for each in (ROOT / "docs").rglob("*") if each.suffix in (".md", ".ipynb")]
    expected = {each.relative_to(ROOT).with_suffix(".html").as_posix() for each in sources}
    assert expected | {"CHANGELOG.html", "CONTRIBUTING.html", "SECURITY.html"} <= set(built)
    text = (guide.FOLDER / guide.FIRST).read_text()
    assert tuple(re.findall(r'class="caption-text">(\w+)<', text)) == NAVIGATION


def test_a_page_obeys_the_policy_of_pages(built: list[str]) -> None:
    """No page has a script or a style in it, a handler, or anything that is fetched from another host."""
    for name in built:
        page = Page((guide.FOLDER / name).read_text())
        assert not page.values("style"), name
        assert not [each for _, given in page.elements for each in given if each.startswith("on")], name
        assert "style" not in {tag for tag, _ in page.elements}, name
        assert all("src" in given for tag, given in page.elements if tag == "script"), name
        fetched = [
            given.get("src") or given.get("href", "")
            for tag, given in page.elements
            if tag in ("script", "link", "img")
        ]
        assert fetched, name
        assert not [each for each in fetched if urlsplit(each).netloc or each.startswith("data:")], name


def test_every_link_of_the_guide_leads_to_a_file_and_an_anchor(built: list[str]) -> None:
    """What Sphinx takes for sound is: each relative link of each page is a file that is served, with the element that it names."""
    anchors = {name: set(re.findall(r'\bid="([^"]+)"', (guide.FOLDER / name).read_text())) for name in built}
    for name in built:
        for link in Page((guide.FOLDER / name).read_text()).values("href"):
            target = urlsplit(urljoin(f"http://guide/{name}", link))
            if target.netloc != "guide" or not target.scheme.startswith("http"):
                continue
            path = target.path.lstrip("/")
            assert path in guide.files(), (name, link)
            if target.fragment and path in anchors:
                assert target.fragment in anchors[path], (name, link)


def test_the_service_has_the_guide(built: list[str], http: httpx.Client) -> None:
    """``/docs/guide`` leads to its first page, in which every address is relative; a page that is not there is a problem with a hint."""
    first = http.get("/docs/guide", follow_redirects=True)
    assert first.status_code == 200
    assert first.url.path == f"/docs/guide/{guide.FIRST}"
    assert "default-src 'none'" in first.headers["content-security-policy"]
    assert http.get("/docs/guide/", follow_redirects=True).text == first.text
    assert "docs/guide/" in http.get("/docs").text
    types = {
        "docs/operations.html": "text/html",
        "_static/guide.css": "text/css",
        "searchindex.js": "text/javascript",
        "_static/icon.svg": "image/svg+xml",
    }
    for path, media_type in types.items():
        answer = http.get(f"/docs/guide/{path}")
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, media_type)
    for path in ("docs/nothing.html", "..%2Fguide.py", "%00", "_static"):
        missing = http.get(f"/docs/guide/{path}")
        assert missing.status_code == 404
        assert "make docs" in missing.text


def _build(directory: Path, index: str) -> subprocess.CompletedProcess[str]:
    """Build a guide of two pages."""
    docs = directory / "docs"
    docs.mkdir(parents=True)
    for name, text in {"index.md": index, "other.md": OTHER, "site.toml": "a = 1\n"}.items():
        (docs / name).write_text(text)
    command = [str(ROOT / "scripts" / "guide"), str(directory), str(directory / "out")]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_dead_links_are_errors(tmp_path: Path) -> None:
    """A link to a page, an anchor or a file that is not there ends the build with its name, as does a page in no group."""
    dead = SOUND.replace("other.md)", "none.md)").replace("#there", "#nowhere").replace("site.toml", "none.toml")
    sound = _build(tmp_path / "sound", SOUND)
    wrong = _build(tmp_path / "wrong", dead.replace("\nother\n", "\n"))
    assert (sound.returncode, sound.stderr) == (0, "")
    assert wrong.returncode != 0
    for each in ("none.md", "nowhere", "none.toml", "isn't included in any toctree"):
        assert each in wrong.stderr, wrong.stderr
