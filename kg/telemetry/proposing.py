"""Proposes lines of ``drumlin.toml``: the binding of a datasource to clusters, and the TOML form of settings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drumlin.kg.telemetry.appearance import CLUSTER_LABELS, OF_GOOGLE, Appearance
from drumlin.kg.telemetry.quoting import quote

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Binding:
    """By which label a server's clusters are told apart, its values, and the settings that bind it; ``notes`` say what is not certain."""

    label: str | None
    values: tuple[str, ...]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"label": self.label, "values": list(self.values), "notes": list(self.notes)}


UNKNOWN = Binding(None, (), {})
"""What is known of a server that does not give out its index."""


def bind(seen: Appearance, known: Collection[str]) -> Binding:
    """Propose how a server is bound to the clusters that are known (by Drumlin's names)."""
    of_google = {label: values for label, values in seen.clusters.items() if label in OF_GOOGLE}
    named = {label: values for label, values in seen.clusters.items() if label not in OF_GOOGLE}
    if not named:
        return Binding(None, (), {"clusters": sorted(known)} if len(known) == 1 else {}, tuple(_alone(known)))
    label = max(named, key=lambda each: (len(set(named[each]) & set(known)), len(named[each]) > 1))
    values = named[label]
    notes = [
        f"{each} has several values ({listed(of)}): write a table for each cluster, with fixed matchers"
        for each, of in of_google.items()
        if len(of) > 1
    ]
    if len(values) > 1 and seen.unclustered:
        notes.append(f'some series have no label {label}: the cluster of the server itself is matched by {label} = ""')
    if set(known) <= set(values) or (len(values) > 1 and not known):
        return Binding(label, values, {"matchers": {label: "{cluster}"}}, tuple(notes))
    if len(values) == 1 and len(known) == 1:
        fixed = {"clusters": sorted(known), "matchers": {label: values[0]}}
        return Binding(label, values, fixed, (*notes, f"its cluster is called {values[0]} there"))
    matched = sorted(set(known) & set(values))
    others = sorted(set(known) - set(values))
    notes.append(
        f"{label} is {listed(values)} there, and no value of it is {listed(others)}: write a table for each cluster, with"
        f' clusters = ["{others[0]}"] and the value in matchers'
    )
    settings = {"clusters": matched, "matchers": {label: "{cluster}"}} if matched else {}
    return Binding(label, values, settings, tuple(notes))


def _alone(known: Collection[str]) -> Iterator[str]:
    if len(known) > 1:
        yield (
            f"no label tells clusters apart ({listed(CLUSTER_LABELS)} are not there), and {len(known)} clusters are known: say with"
            " clusters which one it holds"
        )


def lines(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as lines of ``drumlin.toml``."""
    return [f"{name} = {_toml(value)}" for name, value in settings.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote(value)
    return f"[{', '.join(map(_toml, value))}]"


def listed(names: Collection[str]) -> str:
    """Write some names, the first few of many."""
    shown = sorted(names)
    return ", ".join(shown[:_SHOWN]) + (f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else "")
