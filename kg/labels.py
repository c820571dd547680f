"""Labels for blank nodes that follow from what is said of them, so that the same document sent twice is the same lines.

Colour refinement, a few rounds and no search: a node whose surroundings differ from all others' gets a label made of them (and of
the graph's name: no two graphs share a node by accident); nodes that look alike keep the label they came with. So a document with
look-alikes counts as changed whenever it is sent. RDFC-1.0 would decide those too, in exponential time for who means harm.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict

from kg.rdf import Lines

ROUNDS = 32
"""Steps around a node that are looked at."""


def stable(lines: Lines, graph: str) -> Lines:
    """Return ``lines`` with blank nodes relabelled where their surroundings in ``graph`` tell them apart."""
    split = [tuple(line.split(" ", 2)) for line in lines]
    around: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for subject, predicate, rest in split:
        value = rest[:-2]
        if subject.startswith("_:"):
            around[subject].append((">", predicate, value))
        if value.startswith("_:"):
            around[value].append(("<", predicate, subject))
    if not around:
        return lines
    colours = _refined(around)
    seen = Counter(colours.values())
    labels = {node: _label(graph, colour) if seen[colour] == 1 else node for node, colour in colours.items()}
    return frozenset(
        f"{labels.get(subject, subject)} {predicate} {labels.get(rest[:-2], rest[:-2])} ."
        for subject, predicate, rest in split
    )


def _refined(around: dict[str, list[tuple[str, str, str]]]) -> dict[str, str]:
    colours = dict.fromkeys(around, "")
    count = 0
    for _ in range(ROUNDS):
        colours = {
            node: _hash(
                *sorted(" ".join((way, predicate, _seen(node, other, colours))) for way, predicate, other in found)
            )
            for node, found in around.items()
        }
        if (distinct := len(set(colours.values()))) in (count, len(colours)):
            break
        count = distinct
    return colours


def _seen(node: str, other: str, colours: dict[str, str]) -> str:
    if not other.startswith("_:"):
        return other
    return "_:itself" if other == node else f"_:{colours[other]}"


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _label(graph: str, colour: str) -> str:
    return f"_:b{_hash(graph, colour)}"
