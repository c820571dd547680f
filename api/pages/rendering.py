"""Templates → pages: one environment that escapes everything, the words of the pages, and addresses that work below any prefix.

Every address in a page is relative, so a page works behind a proxy that adds a prefix, strips one, or neither. Nothing is asked of
another host, and nothing in a page is a script or a style of its own: the Content-Security-Policy of pages forbids both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from drumlin.api.http.compression import VARIES
from drumlin.api.http.relative_addresses import root_from, root_of
from drumlin.api.pages import wording
from drumlin.api.pages.addresses import search_address, with_value, without
from drumlin.api.pages.values import shown_iri, state_of_phase

_HERE = Path(__file__).parent
STATIC = _HERE / "static"


def _namespace(words: Mapping[str, Any]) -> Any:
    """Return a table as attributes; a word that a template misspells is an error, not an empty place."""
    return SimpleNamespace(
        **{name: _namespace(each) if isinstance(each, dict) else each for name, each in words.items()}
    )


@cache
def words() -> Any:
    """Return the texts of the pages (``strings/en.toml``)."""
    return _namespace(tomllib.loads((_HERE / "strings" / "en.toml").read_text(encoding="utf-8")))


@cache
def asset_folder() -> str:
    """Return the name under which the assets are served: a hash of all of them, so that they may be cached for good."""
    found = blake2b(digest_size=8)
    for each in sorted(STATIC.iterdir()):
        found.update(each.name.encode() + b"\0" + each.read_bytes() + b"\0")
    return found.hexdigest()


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(t=words(), address=search_address, without=without, with_value=with_value)
    made.filters.update(
        query=lambda text: quote(str(text), safe=""),
        count=wording.count,
        moment=wording.moment,
        label=wording.label,
        kind=wording.kind,
        number=wording.number,
        percent=wording.percent,
        state_of_phase=state_of_phase,
        shown_iri=shown_iri,
    )
    return made


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    fragment: int | None = None,
    **content: Any,
) -> Response:
    """Return a page, or the part of it that goes into another page, which lies ``fragment`` folders below the root."""
    root = root_of(request) if fragment is None else root_from(fragment)
    text = (
        _environment()
        .get_template(template)
        .render(
            root=root,
            static=f"{root}static/{asset_folder()}/",
            layout="layout.html" if fragment is None else "fragment.html",
            service_name=request.app.state.parts.settings.cluster,
            base=request.app.state.parts.settings.base,
            signed_in=request.scope["caller"].name if request.scope.get("session") else "",
            asks=request.app.state.authenticator.asks,
            search_text=request.query_params.get("q", ""),
            **content,
        )
    )
    return Response(
        text,
        status_code=status,
        media_type="text/html",
        headers={"Vary": VARIES, "Cache-Control": "no-cache", "Referrer-Policy": "same-origin", **(headers or {})},
    )
