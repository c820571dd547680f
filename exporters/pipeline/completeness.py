"""What a dump holds in full. It cannot be seen in a dump, so that it has to be said: by kinds, as kubectl calls them, and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

from drumlin.exporters.protocol import Kind
from drumlin.kg.errors import WrongUsage
from drumlin.kg.model.iris import is_own_group


@dataclass(frozen=True, slots=True)
class Completeness:
    """``listed`` are kinds that the dump holds in full, each in one namespace or (None) in all of the cluster.

    With ``seen`` it also holds in full every kind of which it has an object (``scopes_of``).
    """

    listed: tuple[tuple[Kind, str | None], ...] = ()
    seen: bool = False

    def __bool__(self) -> bool:
        return self.seen or bool(self.listed)

    @classmethod
    def parse(cls, values: Sequence[str | None], kinds: Iterable[Kind]) -> Self:
        """Read lists of ``KIND`` and ``KIND/NAMESPACE``, separated by commas; None stands for what is seen.

        Raises ``WrongUsage`` for what is not a kind, and for a namespace of a kind that has none.
        """
        names = _names(kinds)
        listed = [_scope(each.strip(), names) for value in values if value is not None for each in value.split(",")]
        return cls(tuple(dict.fromkeys(listed)), seen=None in values)


NOTHING = Completeness()
"""A dump that may be any part of a cluster."""


def scopes_of(kinds: Iterable[Kind], namespaces: Iterable[str]) -> Iterator[tuple[Kind, str | None]]:
    """Yield what a complete dump of objects of these kinds in these namespaces holds in full: a kind in one namespace, or anywhere (None).

    A dump that holds the Namespaces themselves holds every namespace: what lies in one that it does not hold is gone as well.
    """
    found = list(kinds)
    everywhere = any(each.name == "Namespace" and not each.group for each in found)
    for kind in found:
        if everywhere or not kind.namespaced:
            yield kind, None
        else:
            yield from ((kind, each) for each in sorted(namespaces))


def _scope(written: str, names: dict[str, list[Kind]]) -> tuple[Kind, str | None]:
    name, slash, namespace = written.partition("/")
    kind = _kind(name, names)
    if slash and not kind.namespaced:
        raise WrongUsage(f"{kind.plural} are not in namespaces", hint=f"say --complete={kind.plural}")
    if slash and not namespace:
        raise WrongUsage(
            f"{written!r} names no namespace", hint=f"say --complete={kind.plural} for those of all namespaces"
        )
    return kind, namespace or None


def _kind(name: str, names: dict[str, list[Kind]]) -> Kind:
    found = names.get(name.lower(), [])
    if not found:
        close = get_close_matches(name.lower(), names, n=1, cutoff=0.7)
        near = (
            f"did you mean {_plural(names[close[0]])}?" if close else "name it as kubectl does: pods, services/payments"
        )
        raise WrongUsage(f"--complete: {name!r} is not a kind that is followed", hint=near)
    own = [each for each in found if is_own_group(each.group)]
    if len(own or found) > 1:
        either = " or ".join(f"{each.plural}.{each.group}" for each in own or found)
        raise WrongUsage(f"--complete: {name!r} may be one of several kinds", hint=f"say {either}")
    return (own or found)[0]


def _plural(kinds: list[Kind]) -> str:
    first = kinds[0]
    return first.plural if is_own_group(first.group) else f"{first.plural}.{first.group}"


def _names(kinds: Iterable[Kind]) -> dict[str, list[Kind]]:
    """Return the kinds by what kubectl calls them: plural, singular or short, bare or with the group and with version and group."""
    names: dict[str, list[Kind]] = {}
    for kind in kinds:
        suffixes = ("", f".{kind.group}", f".{kind.version}.{kind.group}") if kind.group else ("",)
        for name in filter(None, (kind.plural, kind.name.lower(), kind.short)):
            for suffix in suffixes:
                names.setdefault(f"{name}{suffix}", []).append(kind)
    return names
