"""RoleBinding, ClusterRoleBinding → which service accounts have a role, and which Secrets it lets them read. Optional.

By name only: no rule but that about Secrets is taken, and nothing that is in one. Roles are no entities, their bindings say what they let
read. Users and groups of people are left out: they are no part of a cluster. Source: rbac.authorization.k8s.io v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed, Projection
from drumlin.exporters.kubernetes.render.place import domain
from drumlin.exporters.kubernetes.render.releases import releases
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Topic, without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument

RBAC = "rbac.authorization.k8s.io"
"""The API group of roles and their bindings."""
ANY = "*"
_READING = frozenset({"get", "list", "watch", ANY})
_ACCOUNTS = "system:serviceaccounts"
_EVERYBODY = frozenset({_ACCOUNTS, "system:authenticated"})  # groups that every service account is in


class PolicyRule(msgspec.Struct, frozen=True, gc=False):
    """What may be done to which objects."""

    verbs: tuple[str, ...] | None = None
    apiGroups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resourceNames: tuple[str, ...] | None = None


class RoleObject(Projection, frozen=True, kw_only=True):
    """What is taken from a Role or ClusterRole: the Secrets that it lets read (``readable``)."""

    rules: tuple[PolicyRule, ...] | None = None

    def __post_init__(self) -> None:
        """Let go of the rules that are about anything else."""
        kept = tuple(each for each in self.rules or () if _reads_secrets(each))
        msgspec.structs.force_setattr(self, "rules", kept or None)

    @property
    def readable(self) -> frozenset[str]:
        """The names of the Secrets that it lets read; ``*`` for all."""
        return frozenset(name for each in self.rules or () for name in each.resourceNames or (ANY,))


class RoleSubject(msgspec.Struct, frozen=True, gc=False):
    """Who has the role."""

    kind: str = ""
    name: str = ""
    namespace: str | None = None


class RoleReference(msgspec.Struct, frozen=True, gc=False):
    """The role."""

    kind: str = ""
    name: str = ""


class RoleBinding(Installed, frozen=True, kw_only=True):
    """What is taken from a RoleBinding or ClusterRoleBinding."""

    roleRef: RoleReference = RoleReference()
    subjects: tuple[RoleSubject, ...] | None = None


def render_rolebinding(binding: RoleBinding, context: RenderContext) -> NodeDocument | None:
    """Describe a binding of service accounts; None for one of people alone. Without a namespace it holds in all of them."""
    metadata, role = binding.metadata, binding.roleRef
    accounts = sorted({each for subject in binding.subjects or () for each in _accounts(subject, metadata.namespace)})
    if not accounts:
        return None
    namespace = metadata.namespace
    told = context.told(_role_topic(role.kind, namespace if role.kind == "Role" else None, role.name))
    return without_nulls(
        {
            "id": context.entity,
            "type": "RoleBinding",
            "name": metadata.name,
            "namespace": namespace,
            "partOf": context.around.object(None, "Namespace", namespace) if namespace else None,
            "cluster": context.around.cluster,
            "domain": domain(namespace, context),
            "release": releases(metadata, context),
            "account": accounts,
            "boundRole": f"{role.kind}/{role.name}",
            "readableSecret": sorted(frozenset().union(*told)),
        }
    )


def role_facts(kind: str) -> Callable[[Any], Iterable[tuple[Topic, Any]]]:
    """Return the ``facts`` of a kind of roles: they publish to their bindings which Secrets they let read."""

    def facts(role: RoleObject) -> Iterator[tuple[Topic, Any]]:
        if readable := role.readable:
            yield _role_topic(kind, role.metadata.namespace, role.metadata.name), readable

    return facts


def _role_topic(kind: str, namespace: str | None, name: str) -> Topic:
    return ("role", kind, namespace or "", name)


def _reads_secrets(rule: PolicyRule) -> bool:
    return bool(
        _READING.intersection(rule.verbs or ())
        and {"", ANY}.intersection(rule.apiGroups or ())
        and {"secrets", ANY}.intersection(rule.resources or ())
    )


def _accounts(subject: RoleSubject, namespace: str | None) -> Iterator[str]:
    """Yield a subject as ``namespace/name`` of service accounts; nothing for people."""
    if subject.kind == "ServiceAccount" and (space := subject.namespace or namespace):
        yield f"{space}/{subject.name}"
    elif subject.kind == "Group" and subject.name in _EVERYBODY:
        yield f"{ANY}/{ANY}"
    elif subject.kind == "Group" and subject.name.startswith(f"{_ACCOUNTS}:"):
        yield f"{subject.name.removeprefix(f'{_ACCOUNTS}:')}/{ANY}"
