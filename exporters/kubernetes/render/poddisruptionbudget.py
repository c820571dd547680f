"""PodDisruptionBudget → one node document. Source: PodDisruptionBudget v1 policy."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.kubernetes.render.workload import selected
from drumlin.exporters.kubernetes.selectors import LabelSelector
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument

Amount = int | str | None
"""A number of pods, or a percentage of them."""


class BudgetSpec(msgspec.Struct, frozen=True, gc=False):
    """Whose pods, and how many of them."""

    selector: LabelSelector | None = None
    minAvailable: Amount = None
    maxUnavailable: Amount = None


class PodDisruptionBudget(Installed, frozen=True, kw_only=True):
    """What is taken from a PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()


def render_poddisruptionbudget(budget: PodDisruptionBudget, context: RenderContext) -> NodeDocument:
    """Describe a budget with the workloads whose pods it protects; an empty selector means all of the namespace."""
    metadata, spec = budget.metadata, budget.spec
    return without_nulls(
        {
            **inside(metadata, "DisruptionBudget", context),
            "selects": selected(metadata.namespace or "", spec.selector, context),
            "minAvailable": _text(spec.minAvailable),
            "maxUnavailable": _text(spec.maxUnavailable),
        }
    )


def _text(amount: Amount) -> str | None:
    return None if amount is None else str(amount)
