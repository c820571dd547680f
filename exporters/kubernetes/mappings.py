"""All kinds that are followed: the table of kinds, and the custom resources that the configuration maps.

A mapping is a TOML file of ``[[resource]]`` tables: one that Drumlin ships, by name (``kuscia``), or one's own, by path.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from exporters.kubernetes.custom import custom_kinds
from exporters.kubernetes.kinds import KINDS
from exporters.protocol import Kind
from kg.errors import InvalidSettings
from kg.resources import ResourceSettings
from kg.settings import Settings

SHIPPED = {"kuscia": ("exporters.kuscia", "kuscia.toml")}
"""Mappings that come with Drumlin: name → package and file."""


class _Mapping(BaseModel):
    model_config = ConfigDict(extra="forbid")
    resource: tuple[ResourceSettings, ...]


def kinds_of(settings: Settings) -> tuple[Kind, ...]:
    """Return the kinds to follow; raises ``InvalidSettings`` for a mapping that cannot be used, or a kind mapped twice."""
    tables = [each for name in settings.mappings for each in _mapping(name)]
    kinds = (*KINDS, *custom_kinds([*tables, *settings.resource]))
    seen: set[str] = set()
    for kind in kinds:
        if kind.segment in seen:
            raise InvalidSettings(f"{kind.segment} is mapped twice")
        seen.add(kind.segment)
    return kinds


def _mapping(name: str) -> tuple[ResourceSettings, ...]:
    try:
        return _Mapping.model_validate(tomllib.loads(_text(name))).resource
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidSettings(f"mapping {name}: {where}: {first['msg']}") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        known = ", ".join(SHIPPED)
        raise InvalidSettings(f"mapping {name}: {error}", hint=f"name a TOML file, or one of {known}") from error


def _text(name: str) -> str:
    if name in SHIPPED:
        package, file = SHIPPED[name]
        return files(package).joinpath(file).read_text(encoding="utf-8")
    return Path(name).read_text(encoding="utf-8")
