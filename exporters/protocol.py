"""What every source yields and every kind provides: the contract between sources and the pipeline.

A *source* yields *changes*; it never offers a list to poll. Guarantees of every source, per kind:

1. At first come the objects that exist, each as ``Upserted`` (any order), then exactly one ``Synced``. Everything of
   that kind which the source's owner wrote earlier and which did not come before ``Synced`` is gone; finding it
   out is the pipeline's work, so a source needs no memory across restarts. A source that holds a part of a cluster yields
   ``Synced`` only for the kinds, or the namespaces of a kind, that it holds in full: of the rest nothing counts as gone.
2. After ``Synced``, changes of one object come in the order in which the API reported them. Duplicates are allowed:
   applying a change twice gives the same graph. Order between kinds is not promised.
3. Same name with a new uid: the new ``Upserted`` alone is enough; it ends the old uid. A late ``Gone`` of an old uid
   never touches the new one: the pipeline compares uids.
4. After a relist (410, reconnect) the source itself yields ``Gone(estimated=True)`` for what it knew and no longer
   finds, and ``Upserted`` for what differs.
5. ``KindUnavailable`` says that a kind cannot be read for now; nothing of it counts as gone. ``Rejected`` reports one object that
   cannot be read; the source goes on. A source that cannot go on raises ``SourceUnavailable``; one that is done (a dump) ends.

The iterator blocks; it ends soon after ``stop`` is set.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from drumlin.kg.model.iris import is_own_group
from drumlin.kg.rdf.jsonld import NodeDocument


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """Who manages an object (meta/v1 OwnerReference); ``uid`` decides, the names are its fallback."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, gc=False):
    """The part of meta/v1 ObjectMeta that is taken from every kind; all else, annotations too, is never parsed."""

    name: str
    uid: str = ""
    namespace: str | None = None
    resourceVersion: str = ""
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    ownerReferences: tuple[OwnerReference, ...] = ()

    def __post_init__(self) -> None:
        """Hold what thousands of objects say alike once: labels, and the namespace."""
        if self.labels:
            msgspec.structs.force_setattr(self, "labels", shared(tuple(self.labels.items())))
        if self.namespace:
            msgspec.structs.force_setattr(self, "namespace", sys.intern(self.namespace))


@lru_cache(maxsize=8192)
def shared(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return one mapping for all equal items; it must not be changed."""
    return dict(items)


class Manifest(Protocol):
    """A projection: the fields that one kind's renderer takes from the API's object, and nothing more."""

    @property
    def metadata(self) -> Metadata:
        """Identity, labels and owners."""
        ...


Topic = tuple[str, ...]
"""What a fact is about: ``("domain", namespace)``, ``("owner", uid)``."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a manifest says now of one thing that befell a run: a reason of Kubernetes, of a container or (None) of the whole.

    ``at`` is when it happened last (RFC 3339); None for a state, which lasts. ``ongoing``: it lasts, or is the present end.
    ``count``: how often it happened, where that is known.
    """

    reason: str
    container: str | None = None
    at: str | None = None
    ongoing: bool = False
    exit_code: int | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """A life of a container that was followed by another: the ``number``-th, from 0; RFC 3339 times."""

    container: str
    number: int
    start: str | None
    end: str
    reason: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one object says befell a run of another, named by its kind, group, namespace and name; ``uid`` is the run's."""

    kind: str
    group: str
    namespace: str | None
    name: str
    uid: str
    trouble: Trouble


@dataclass(frozen=True, slots=True)
class Life:
    """What a manifest reports about its run: RFC 3339 times, an outcome of the ontology, the node where it ran.

    ``start`` None: it has not begun, so there is no run yet. An ``outcome`` without ``end``: it is over, but the manifest does
    not say since when.
    """

    start: str | None
    end: str | None = None
    outcome: str | None = None
    node: str | None = None
    troubles: tuple[Trouble, ...] = ()
    restarts: tuple[ContainerEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class RememberedRun:
    """A run of another object that a manifest remembers, which may have been missed: RFC 3339 times, an outcome, the node's name.

    ``kind``, ``namespace`` and ``name`` say of what; the uid is not known. ``type`` is its class.
    """

    kind: str
    type: str
    namespace: str | None
    name: str
    start: str
    end: str
    outcome: str
    node: str | None = None


def no_past(manifest: Any) -> Iterable[RememberedRun]:
    """Remember nothing."""
    del manifest
    return ()


def no_facts(manifest: Any) -> Iterable[tuple[Topic, Any]]:
    """Publish nothing: the kind's renderer is the only one that needs its manifests."""
    del manifest
    return ()


def nothing_lasting(manifest: Any) -> tuple[Topic, frozenset[Any]] | None:
    """Publish nothing that has to last."""
    del manifest
    return None


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table of kinds: where the API serves it, what is taken from it and how it is rendered."""

    name: str  # CamelCase as in manifests: "Deployment"
    group: str  # "" for the core group, "apps", "kuscia.secretflow"
    version: str  # "v1"
    plural: str  # "deployments", the path segment
    namespaced: bool
    projection: type[Any]  # msgspec Struct that satisfies Manifest
    # Pure: (manifest, exporters.context.Context) → its node document, or None when the object is not an entity.
    render: Callable[[Any, Any], NodeDocument | None] | None = None
    # What the documents of other objects depend on; a changed fact renders its readers again.
    facts: Callable[[Any], Iterable[tuple[Topic, Any]]] = no_facts
    # When it ran; None for kinds that have no runs.
    life: Callable[[Any], Life] | None = None
    # Runs of other objects that it remembers when they are gone.
    past: Callable[[Any], Iterable[RememberedRun]] = no_past
    entity: str = ""  # class of the ontology, where it is not the kind's own name
    reserved: str = ""  # "domain", "function": its objects are the things of that class, whatever the kind
    short: str = ""  # the name that kubectl abbreviates it by: "deploy"
    # A fact that flaps: a set of which each member counts only when it lasts.
    lasting: Callable[[Any], tuple[Topic, frozenset[Any]] | None] = nothing_lasting
    # What its objects report of runs of others; nothing else of them is kept, and they are no entities.
    reports: Callable[[Any], RunReport | None] | None = None
    fields: str = ""  # field selector of the objects that are asked for
    segment: str = field(init=False)
    """What names the kind in the ids of its objects, and nothing else: ``deployment``, ``kusciajob.kuscia.secretflow``."""
    home: str = field(init=False)
    """What names the kind in the ids of its objects: the segment, or the reserved class whose things they are."""

    def __post_init__(self) -> None:
        """Work out what is asked for with every object."""
        name = self.name.lower()
        object.__setattr__(self, "segment", name if is_own_group(self.group) else f"{name}.{self.group}")
        object.__setattr__(self, "home", self.reserved or self.segment)

    @property
    def type(self) -> str:
        """The ontology's class of such an entity."""
        return self.entity or self.name

    @property
    def api_version(self) -> str:
        """``group/version`` as manifests write it ("v1" for the core group)."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The collection's path on the API server, over all namespaces."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/{self.plural}"


@dataclass(frozen=True, slots=True)
class Upserted:
    """The object exists and looks like this now."""

    kind: Kind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Gone:
    """The object no longer exists; ``manifest`` is its last known form.

    ``observed`` is when the source learned of it (UTC). ``estimated`` is True when it was found missing at a relist,
    so that the true end lies before ``observed``.
    """

    kind: Kind
    manifest: Manifest
    observed: datetime
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """All objects of ``kind`` that existed, in ``namespace`` (None: anywhere), have been yielded."""

    kind: Kind
    observed: datetime
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class KindUnavailable:
    """Nothing can be had of ``kind`` for now: it is forbidden or not installed. Nobody should wait for it; it may come later."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Rejected:
    """One object that cannot be read: where it stood (file and position, or the API path) and why. Never a value of it.

    ``kind``, ``namespace`` and ``name`` say which object it is, where that much can be read: it exists, so what is known of it stays.
    """

    where: str
    reason: str
    kind: Kind | None = None
    namespace: str | None = None
    name: str = ""


Change = Upserted | Gone | Synced | KindUnavailable | Rejected


class Source(Protocol):
    """Where manifests come from."""

    @property
    def name(self) -> str:
        """The owner recorded for graphs written from here: ``kubernetes:prod``, ``dump``."""
        ...

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield changes under the guarantees above until the source is done or ``stop`` is set."""
        ...


Clock = Callable[[], datetime]


OPERATED = "prometheus-operated"
"""The headless Service that prometheus-operator makes in each namespace with a Prometheus object."""


def without_nulls(document: dict[str, object]) -> dict[str, object]:
    """Drop what is unset or empty: an absent field is an absent key, never a null."""
    return {key: value for key, value in document.items() if value is not None and value != []}
