"""The rights that following kinds takes, as manifests: get, list and watch on exactly these, and nothing else.

Written from the table of kinds, so that a kind without its right, or a right without its kind, cannot come to be.
Specification: https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from drumlin.exporters.kubernetes.selectors import checked_namespace
from drumlin.exporters.protocol import Kind
from drumlin.kg.config.settings import ElectionSettings

_HEAD = """\
# What `--source kubernetes` may read: the kinds it follows, and nothing else. No secrets, no configmaps, no wildcards.
# One namespace only: `drumlin rbac --namespace NAME` gives a Role there instead. Written by `drumlin rbac`.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: drumlin
  namespace: {account}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {scope}Role
metadata:
  name: drumlin-reader
{inside}rules:
"""
_RULE = """\
  - apiGroups: [{group}]
    resources: [{plurals}]
    verbs: [get, list, watch]
"""
_TAIL = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {scope}RoleBinding
metadata:
  name: drumlin-reader
{inside}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {scope}Role
  name: drumlin-reader
subjects:
  - kind: ServiceAccount
    name: drumlin
    namespace: {account}
"""
_ELECTION = """\
---
# The one thing that is written: the Lease by which one of several processes is elected.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: drumlin-election
  namespace: {namespace}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{lease}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: drumlin-election
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: drumlin-election
subjects:
  - kind: ServiceAccount
    name: drumlin
    namespace: {account}
"""


def manifests(
    kinds: Iterable[Kind],
    account: str = "drumlin",
    namespace: str | None = None,
    election: ElectionSettings | None = None,
) -> str:
    """Return a service account in the namespace ``account``, the ClusterRole to read ``kinds`` and its binding, as YAML.

    With ``namespace`` a Role there and its binding, of the kinds that stand in namespaces: no right reaches beyond. With ``election``,
    where it names a Lease, also the right to that one. Raises ``InvalidSettings`` for what is not the name of a namespace.
    """
    for each in filter(None, (account, namespace)):
        checked_namespace(each)
    plurals: dict[str, set[str]] = defaultdict(set)
    for kind in kinds:
        if kind.namespaced or namespace is None:
            plurals[kind.group].add(kind.plural)
    rules = "".join(
        _RULE.format(group=group or '""', plurals=", ".join(sorted(plurals[group]))) for group in sorted(plurals)
    )
    place = {
        "account": account,
        "scope": "" if namespace else "Cluster",
        "inside": f"  namespace: {namespace}\n" if namespace else "",
    }
    text = _HEAD.format(**place) + rules + _TAIL.format(**place)
    if election is None or election.lease is None:
        return text
    return text + _ELECTION.format(lease=election.lease, namespace=election.namespace, account=account)
