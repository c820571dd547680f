"""All kinds that are followed: the table of kinds, and the custom resources that the configuration maps.

A mapping is a TOML file of ``[[resource]]`` tables, and of ``[[extension]]`` tables of built-in kinds: one that Drumlin ships, by name
(``kuscia``), or one's own, by path.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from drumlin.exporters.kubernetes.custom import custom_kinds
from drumlin.exporters.kubernetes.custom_links import segment_of
from drumlin.exporters.kubernetes.extensions import extended_kinds
from drumlin.exporters.kubernetes.kinds import KINDS, OPTIONAL
from drumlin.exporters.protocol import Kind
from drumlin.kg.config.custom_resources import ExtensionSettings, ResourceSettings
from drumlin.kg.config.explaining import explained, meant, place
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings

SHIPPED = {
    "kuscia": ("drumlin.exporters.kuscia", "kuscia.toml"),
    **{
        name: ("drumlin.exporters.workflows", f"{name}.toml")
        for name in ("argo", "argo-events", "knative", "openfaas", "tekton")
    },
}
"""Mappings that come with Drumlin: name → package and file."""


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid")
    resource: tuple[ResourceSettings, ...]
    extension: tuple[ExtensionSettings, ...] = ()


def kinds_of(settings: Settings) -> tuple[Kind, ...]:
    """Return the kinds to follow; raises ``InvalidSettings`` for a mapping that cannot be used, or a kind mapped twice."""
    mappings = [_mapping(name) for name in settings.mappings]
    tables = [*(each for mapping in mappings for each in mapping.resource), *settings.resource]
    own = (*KINDS, *(kind for name in dict.fromkeys(settings.optional_kinds) for kind in OPTIONAL[name]))
    scopes = {each.segment: each.namespaced for each in own}
    scopes |= {segment_of(each): each.namespaced for each in tables}
    builtin = extended_kinds(own, (each for mapping in mappings for each in mapping.extension), tables, scopes)
    kinds = (*builtin, *custom_kinds(tables, scopes))
    seen: set[str] = set()
    for kind in kinds:
        if kind.segment in seen:
            raise InvalidSettings(f"{kind.segment} is mapped twice")
        seen.add(kind.segment)
    return kinds


def _mapping(name: str) -> _Mapping:
    try:
        return _Mapping.model_validate(tomllib.loads(_text(name)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        near = meant(place(first), _Mapping) if first["type"] == "extra_forbidden" else None
        raise InvalidSettings(
            f"mapping {name}: {'.'.join(place(first))}: {explained(first)}",
            hint=f"did you mean {near}?" if near else None,
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        known = ", ".join(SHIPPED)
        raise InvalidSettings(f"mapping {name}: {error}", hint=f"name a TOML file, or one of {known}") from error


def _text(name: str) -> str:
    if name in SHIPPED:
        package, file = SHIPPED[name]
        return files(package).joinpath(file).read_text(encoding="utf-8")
    return Path(name).read_text(encoding="utf-8")
