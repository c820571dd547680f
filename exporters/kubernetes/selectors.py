"""Label selectors: which labelled objects another object means. Source: LabelSelector v1 meta.

An absent selector means nothing, an empty one everything; the caller says which of the two an absent one is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from drumlin.exporters.protocol import Topic
from drumlin.kg.errors import InvalidSettings

Labels = Mapping[str, str]

SELECTABLE = frozenset({"deployment", "statefulset", "daemonset", "replicaset", "job", "cronjob"})
"""Kinds, as ids name them, of the workloads that selectors choose by their pods' labels."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One of ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def matches(self, labels: Labels) -> bool:
        """Return whether labels satisfy the requirement; an operator that is not known matches nothing."""
        given, wanted = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return given in wanted
            case "NotIn":
                return given not in wanted
            case "Exists":
                return given is not None
            case "DoesNotExist":
                return given is None
        return False


class LabelSelector(msgspec.Struct, frozen=True, gc=False):
    """All of ``matchLabels`` and all of ``matchExpressions``."""

    matchLabels: dict[str, str] | None = None
    matchExpressions: tuple[Requirement, ...] | None = None

    def matches(self, labels: Labels) -> bool:
        """Return whether an object with these labels is meant."""
        exact = (self.matchLabels or {}).items()
        return exact <= labels.items() and all(each.matches(labels) for each in self.matchExpressions or ())


@dataclass(frozen=True, slots=True)
class Selectable:
    """A workload as selectors see it: by the labels of its pods."""

    namespace: str
    kind: str
    name: str
    labels: Mapping[str, str]


NAMESPACES: Topic = ("namespaces",)
"""The topic on which each Namespace publishes its name and labels."""


def selectable_topic(namespace: str) -> Topic:
    """The topic on which workloads publish the labels that their pods are selected by; ``*`` for those of all namespaces."""
    return ("selectable", namespace)


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1123 label


def checked_namespace(name: str) -> str:
    """Return a namespace's name; raises ``InvalidSettings`` for what none can be called, before it becomes a part of a path or manifest."""
    if not _NAMESPACE.fullmatch(name):
        raise InvalidSettings(
            f"{name!r} is not the name of a namespace", hint="it has small letters, digits and '-' only, 63 at most"
        )
    return name
