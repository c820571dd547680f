"""Label selectors: which labelled objects another object means. Source: LabelSelector v1 meta.

An absent selector means nothing, an empty one everything; who reads one says which of the two an absent one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from exporters.protocol import Topic

Labels = Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One of ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def matches(self, labels: Labels) -> bool:
        """Tell whether labels satisfy the requirement; an operator that is not known matches nothing."""
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
        """Tell whether an object with these labels is meant."""
        exact = (self.matchLabels or {}).items()
        return exact <= labels.items() and all(each.matches(labels) for each in self.matchExpressions or ())


@dataclass(frozen=True, slots=True)
class Selectable:
    """A workload as selectors see it: by the labels of its pods."""

    namespace: str
    kind: str
    name: str
    labels: Mapping[str, str]


def selectable_topic(namespace: str) -> Topic:
    """The topic on which workloads tell the labels that their pods are selected by; ``*`` for those of all namespaces."""
    return ("selectable", namespace)
