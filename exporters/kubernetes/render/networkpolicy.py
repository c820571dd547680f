"""NetworkPolicy → one node document, as far as it limits access to pods. Optional. Source: NetworkPolicy v1 networking.

A policy that restricts only what pods may send is no entity: nothing asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.kubernetes.render.workload import selected
from drumlin.exporters.kubernetes.selectors import NAMESPACES, LabelSelector, selectable_topic
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument

EVERYBODY = "*"


class AddressBlock(msgspec.Struct, frozen=True, gc=False):
    """Addresses, without some of them."""

    cidr: str = ""
    left_out: tuple[str, ...] | None = msgspec.field(default=None, name="except")


class Peer(msgspec.Struct, frozen=True, gc=False):
    """Pods of namespaces, or addresses."""

    podSelector: LabelSelector | None = None
    namespaceSelector: LabelSelector | None = None
    ipBlock: AddressBlock | None = None


class PolicyIngressRule(msgspec.Struct, frozen=True, gc=False):
    """Who may reach them; without peers everybody. Ports are not taken."""

    peers: tuple[Peer, ...] | None = msgspec.field(default=None, name="from")


class PolicySpec(msgspec.Struct, frozen=True, gc=False):
    """The pods that it selects, and the peers that may reach them."""

    podSelector: LabelSelector = LabelSelector()
    policyTypes: tuple[str, ...] | None = None
    ingress: tuple[PolicyIngressRule, ...] | None = None


class NetworkPolicy(Installed, frozen=True, kw_only=True):
    """What is taken from a NetworkPolicy."""

    spec: PolicySpec = PolicySpec()


def render_networkpolicy(policy: NetworkPolicy, context: RenderContext) -> NodeDocument | None:
    """Describe a policy: the workloads that it is for, the workloads, namespaces and addresses that may reach them."""
    metadata, spec = policy.metadata, policy.spec
    if spec.policyTypes is not None and "Ingress" not in spec.policyTypes:
        return None
    namespace = metadata.namespace or ""
    peers = [each for rule in spec.ingress or () for each in rule.peers or ()]
    admitted = {iri for each in peers for iri in _admitted(each, namespace, context)}
    addresses = {_written(each.ipBlock) for each in peers if each.ipBlock}
    if any(not rule.peers for rule in spec.ingress or ()):
        addresses.add(EVERYBODY)
    return without_nulls(
        {
            **inside(metadata, "NetworkPolicy", context),
            "selects": selected(namespace, spec.podSelector, context),
            "admits": sorted(admitted),
            "admitsAddress": sorted(addresses),
        }
    )


def _admitted(peer: Peer, namespace: str, context: RenderContext) -> Iterator[str]:
    """Yield the workloads that a peer means; where it means all pods of a namespace, the namespace."""
    if peer.ipBlock or (peer.podSelector is None and peer.namespaceSelector is None):
        return
    spaces = [namespace]
    if peer.namespaceSelector is not None:
        spaces = [name for name, labels in context.told(NAMESPACES) if peer.namespaceSelector.matches(labels)]
    for space in spaces:
        if peer.podSelector is None or peer.podSelector == LabelSelector():
            yield context.around.object(None, "Namespace", space)
        else:
            told = context.told(selectable_topic(space))
            yield from (
                context.around.object(space, each.kind, each.name)
                for each in told
                if peer.podSelector.matches(each.labels)
            )


def _written(block: AddressBlock) -> str:
    return f"{block.cidr} except {', '.join(block.left_out)}" if block.left_out else block.cidr
