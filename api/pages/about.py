"""What runs here: versions, licences, and every route of the OpenAPI document by group."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from re import match
from typing import Any

VENDORED = Path(__file__).parent / "vendor" / "vendor.toml"
"""What ``make vendor`` made the scripts of others from."""
_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class UsedPackage:
    """A package that runs with the service or in its pages, and its licence as it says itself."""

    name: str
    version: str
    licence: str


@dataclass(frozen=True, slots=True)
class AboutView:
    """What the page about the service shows."""

    version: str
    packages: tuple[UsedPackage, ...]
    scripts: tuple[UsedPackage, ...]


@dataclass(frozen=True, slots=True)
class RouteView:
    """A route of the OpenAPI document."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str, bool], ...]


@cache
def view() -> AboutView:
    """Collect the packages that this one requires, and those that its pages send to browsers (once per process)."""
    return AboutView(version("drumlin"), tuple(sorted(_packages(), key=lambda each: each.name)), tuple(_scripts()))


def _scripts() -> Iterator[UsedPackage]:
    for bundle in tomllib.loads(VENDORED.read_text(encoding="utf-8"))["bundle"]:
        yield from (UsedPackage(**each) for each in bundle["packages"])


def _packages() -> Iterator[UsedPackage]:
    for requirement in requires("drumlin") or ():
        name = match(r"[A-Za-z0-9._-]+", requirement)
        if name is None or "extra ==" in requirement:
            continue
        try:
            found = distribution(name[0])
        except PackageNotFoundError:
            continue
        yield UsedPackage(name[0], found.version, _licence(found.metadata))


def _licence(metadata: Any) -> str:
    """Return a licence: its SPDX expression, else its classifier, else the beginning of its text."""
    if expression := metadata.get("License-Expression"):
        return str(expression)
    named = [each.rpartition("::")[2].strip() for each in metadata.get_all("Classifier") or () if "License ::" in each]
    return ", ".join(named) or str(metadata.get("License") or "").partition("\n")[0][:80]


def routes(document: Mapping[str, Any]) -> dict[str, list[RouteView]]:
    """Return the routes of an OpenAPI document by their first tag, in its order."""
    found: dict[str, list[RouteView]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if (route := item.get(method)) is not None:
                tag = next(iter(route.get("tags", ())), "")
                found.setdefault(tag, []).append(
                    RouteView(
                        method.upper(),
                        path,
                        route.get("summary", ""),
                        route.get("description", ""),
                        tuple(
                            (each["name"], each.get("description", ""), bool(each.get("required")))
                            for each in route.get("parameters", ())
                        ),
                    )
                )
    return found
