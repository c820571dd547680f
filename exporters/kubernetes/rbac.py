"""The rights that following kinds takes, as manifests: get, list and watch on exactly these, and nothing else.

Written from the table of kinds, so that a kind without its right, or a right without its kind, cannot come to be.
Specification: https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from exporters.protocol import Kind

_HEAD = """\
# What `--source kubernetes` may read: the kinds it follows, and nothing else. No secrets, no configmaps, no wildcards.
# One namespace only: bind the ClusterRole with a RoleBinding there instead (docs/kubernetes.md). Written by `drumlin rbac`.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: drumlin
  namespace: {namespace}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: drumlin-reader
rules:
"""
_RULE = """\
  - apiGroups: [{group}]
    resources: [{plurals}]
    verbs: [get, list, watch]
"""
_TAIL = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: drumlin-reader
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: drumlin-reader
subjects:
  - kind: ServiceAccount
    name: drumlin
    namespace: {namespace}
"""


def manifests(kinds: Iterable[Kind], namespace: str = "drumlin") -> str:
    """Return a service account in ``namespace``, the ClusterRole to read ``kinds`` and its binding, as YAML."""
    plurals: dict[str, set[str]] = defaultdict(set)
    for kind in kinds:
        plurals[kind.group].add(kind.plural)
    rules = "".join(
        _RULE.format(group=group or '""', plurals=", ".join(sorted(plurals[group]))) for group in sorted(plurals)
    )
    return _HEAD.format(namespace=namespace) + rules + _TAIL.format(namespace=namespace)
