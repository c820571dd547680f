"""Whether an API server serves a kind at all, by its discovery documents: a 404 alone may be a server that is starting.

Specification: https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from drumlin.exporters.kubernetes.access import ApiServer
from drumlin.exporters.protocol import Kind
from drumlin.kg.errors import SourceUnavailable

T = TypeVar("T", bound="_GroupList | _ResourceList")


class _Version(msgspec.Struct, frozen=True):
    groupVersion: str


class _ApiGroup(msgspec.Struct, frozen=True):
    name: str
    versions: tuple[_Version, ...] = ()


class _GroupList(msgspec.Struct, frozen=True):
    kind: str
    groups: tuple[_ApiGroup, ...]


class _Served(msgspec.Struct, frozen=True):
    name: str


class _ResourceList(msgspec.Struct, frozen=True):
    kind: str
    resources: tuple[_Served, ...]


def is_unserved(access: ApiServer, kind: Kind) -> bool:
    """Return whether the server says that it has no such kind in any version of its group, so that no object of it exists.

    False where that is not certain: the server does not answer, or what answers has no discovery documents. Blocks.
    """
    try:
        groups = _read(access, "/apis", _GroupList).groups
        versions = [each.groupVersion for group in groups if group.name == kind.group for each in group.versions]
        return not any(
            served.name == kind.plural
            for version in versions
            for served in _read(access, f"/apis/{version}", _ResourceList).resources
        )
    except (SourceUnavailable, msgspec.MsgspecError):
        return False


def _read(access: ApiServer, path: str, form: type[T]) -> T:
    found = msgspec.json.decode(access.get(path), type=form)
    if found.kind not in {"APIGroupList", "APIResourceList"}:
        raise msgspec.ValidationError("is no discovery document")
    return found
