"""Names of things: minting and parsing IRIs. The rules are the contract's golden table (docs/identity.md).

Kubernetes objects: ``{base}/id/{cluster}/{namespace or -}/{kind[.group]}/{name}``; functions, whatever runs them:
``{base}/id/function/{cluster}/{namespace}/{name}``. Everything else: ``{base}/id/{class}/{id}`` with a reserved class as first
segment. What belongs to an entity lives below its IRI. The *short id* is what follows ``/id/``. Each segment is percent-encoded once;
RFC 3986 unreserved characters stay as they are.

Identity is by name: a redeployed workload keeps its IRI, and each Kubernetes uid is a *run* below it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.remembering import remembered

CONTEXT_PATH = "/context/v1.jsonld"
"""Path below a base at which the service of that base serves the JSON-LD context."""

_BESIDE = frozenset({"notes", "scraped"})  # the graphs beside an entity's own
_CLASSES = frozenset(
    {"cluster", "domain", "datasource", "template", "forecast", "agent", "tag", "invocation", "external"}
)
_FUNCTION, _FOREIGN = "function", "x"
RESERVED = _CLASSES | _BESIDE | {_FUNCTION, _FOREIGN}
"""First segments that name a class, or none at all; no cluster may bear one of them."""

_OWN_GROUPS = frozenset({"", "apps", "batch", "autoscaling", "policy", "events", "extensions"})
_KIND = re.compile(r"[a-z][a-z0-9]*")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]+")
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~-]|%[0-9A-F]{2})+")
# The parts that live below an entity: how many segments each takes and which of them are fixed words.
_BELOW = (
    re.compile(r"container/[^/]+"),
    re.compile(r"(?:party|step|column)/[^/]+"),
    re.compile(r"run/[^/]+(?:/transition/[^/]+|/container/[^/]+/[0-9]+)?"),
    re.compile(r"telemetry/[^/]+(?:/at/[^/]+)?"),
    re.compile(r"metric/[^/]+(?:/at/[^/]+)?"),
    re.compile(r"dashboard/[^/]+"),
    re.compile(r"at/[^/]+"),
)


def is_own_group(group: str) -> bool:
    """Return whether ``group`` is one of Kubernetes' own API groups, whose kinds are written without it."""
    return group in _OWN_GROUPS or group.endswith(".k8s.io")


def is_plain_segment(name: str) -> bool:
    """Return whether ``name`` stands in an id as it is, without an escape that a proxy or a person may undo."""
    return name not in {".", ".."} and _UNRESERVED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A Kubernetes object: ``namespace`` is None for cluster-scoped kinds; ``group`` is empty for Kubernetes' own."""

    cluster: str
    namespace: str | None
    kind: str
    name: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class ClassName:
    """A thing of a reserved class: ``kind`` is the class's segment (``domain``), ``name`` its id."""

    kind: str
    name: str


Name = ObjectName | ClassName


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an IRI names: the entity, the decoded segments ``below`` it, and whether it is in a graph beside the entity's (``notes``)."""

    name: Name
    below: tuple[str, ...] = ()
    notes: bool = False


def _encode(segment: str) -> str:
    if not segment:
        raise InvalidIdentifier("a segment of an id is empty")
    if segment in {".", ".."}:  # RFC 3986 §5.2.4 would remove them
        raise InvalidIdentifier(f"{segment!r} cannot be a segment of an id")
    if _UNRESERVED.fullmatch(segment):
        return segment  # as nearly every name is
    try:
        return quote(segment, safe="-._~")
    except UnicodeEncodeError as error:
        raise InvalidIdentifier(f"{segment!r} is not valid Unicode") from error


def _decode(segment: str) -> str:
    if _UNRESERVED.fullmatch(segment) and segment not in {".", ".."}:
        return segment  # as nearly every name is
    if not _ENCODED.fullmatch(segment):
        raise InvalidIdentifier(
            f"{segment!r} is not a percent-encoded segment",
            hint="encode each segment once, in upper-case hex (RFC 3986)",
        )
    try:
        decoded = unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidIdentifier(f"{segment!r} does not decode to UTF-8") from error
    if _encode(decoded) != segment:
        raise InvalidIdentifier(f"{segment!r} encodes characters that need no encoding; write {_encode(decoded)!r}")
    return decoded


class Iris:
    """Mints and parses the IRIs of one ``base`` (an http(s) URL without trailing slash, from configuration only).

    Names below the bases of ``others`` are parsed too: those of peers. The short id of such a name is the name itself.
    """

    def __init__(self, base: str, others: Iterable[str] = ()) -> None:
        self.base = _checked(base)
        self.root = f"{self.base}/id/"
        self.roots = (self.root, *(f"{_checked(each)}/id/" for each in others))
        self.context = f"{self.base}{CONTEXT_PATH}"
        """Address of the JSON-LD context, as a service under this base serves it."""

    # -- entities ---------------------------------------------------------------------------------------------------
    def object(self, cluster: str, namespace: str | None, kind: str, name: str, group: str = "") -> str:
        """Mint the IRI of a Kubernetes object; ``kind`` in any case, ``group`` is dropped when Kubernetes' own."""
        if cluster in RESERVED:
            raise InvalidIdentifier(
                f"cluster name {cluster!r} is reserved", hint="give the cluster another name (--cluster)"
            )
        if namespace == "-":
            raise InvalidIdentifier("'-' stands for no namespace and cannot be one")
        segment = kind.lower()
        if not _KIND.fullmatch(segment):
            raise InvalidIdentifier(f"{kind!r} is not a kind")
        if not is_own_group(group):
            segment = f"{segment}.{_encode(group)}"
        place = f"{_encode(cluster)}/{_encode(namespace) if namespace else '-'}"
        if segment == _FUNCTION:
            return f"{self.root}{_FUNCTION}/{place}/{_encode(name)}"
        return f"{self.root}{place}/{segment}/{_encode(name)}"

    def of_class(self, kind: str, name: str) -> str:
        """Mint the IRI of a thing of a reserved class."""
        if kind not in _CLASSES:
            raise InvalidIdentifier(f"{kind!r} is not one of {', '.join(sorted(_CLASSES))}")
        return f"{self.root}{kind}/{_encode(name)}"

    def cluster(self, name: str) -> str:
        """Mint the IRI of a cluster."""
        if name in RESERVED:
            raise InvalidIdentifier(
                f"cluster name {name!r} is reserved", hint="give the cluster another name (--cluster)"
            )
        return self.of_class("cluster", name)

    def domain(self, name: str) -> str:
        """Mint the IRI of a domain; a GlaciationNode is one too."""
        return self.of_class("domain", name)

    def datasource(self, name: str) -> str:
        """Mint the IRI of a datasource."""
        return self.of_class("datasource", name)

    def template(self, name: str) -> str:
        """Mint the IRI of a metric template, e.g. ``workload.cpu_usage``."""
        return self.of_class("template", name)

    def external(self, name: str) -> str:
        """Mint the IRI of a caller or callee that is no known workload."""
        return self.of_class("external", name)

    def invocation(self, caller: str, callee: str) -> str:
        """Mint the IRI of the calls of one thing by another, given their IRIs."""
        pair = f"{self.short(caller)}\n{self.short(callee)}".encode()
        return self.of_class("invocation", hashlib.sha256(pair).hexdigest()[:32])

    def notes(self, entity: str) -> str:
        """Mint the IRI of the graph that holds users' remarks on ``entity`` (an IRI of an entity)."""
        return self._beside(entity, "notes")

    def scraped(self, workload: str) -> str:
        """Mint the IRI of the graph that holds the metrics that the pods of a workload expose themselves."""
        return self._beside(workload, "scraped")

    def noted(self, graph: str) -> str | None:
        """Return the entity that a notes graph is about; None for any other graph."""
        root = next((each for each in self.roots if graph.startswith(f"{each}notes/")), None)
        return None if root is None else root + graph[len(root) + len("notes/") :]

    def _beside(self, entity: str, what: str) -> str:
        parsed = self.parse(entity)
        if parsed.below or parsed.notes:
            raise InvalidIdentifier(f"{entity} is not an entity, so it has no {what} graph")
        root, rest = self._split(entity)
        return f"{root}{what}/{rest}"

    # -- what lives below an entity -----------------------------------------------------------------------------------
    @staticmethod
    def container(entity: str, name: str) -> str:
        """Mint the IRI of a container of a workload."""
        return f"{entity}/container/{_encode(name)}"

    @staticmethod
    def part(entity: str, segment: str, name: str) -> str:
        """Mint the IRI of a part of an entity: ``party``, ``step`` or ``column``."""
        return f"{entity}/{segment}/{_encode(name)}"

    @staticmethod
    def run(entity: str, uid: str) -> str:
        """Mint the IRI of one incarnation (a Kubernetes uid)."""
        return f"{entity}/run/{_encode(uid)}"

    @staticmethod
    def transition(run: str, name: str) -> str:
        """Mint the IRI of what befell a run, given the IRI of the run."""
        return f"{run}/transition/{_encode(name)}"

    @staticmethod
    def container_run(run: str, container: str, number: int) -> str:
        """Mint the IRI of a life of a container, the ``number``-th, given the IRI of the pod's run."""
        return f"{run}/container/{_encode(container)}/{number}"

    @staticmethod
    def telemetry(entity: str, signal: str) -> str:
        """Mint the IRI of the telemetry of an entity for one signal."""
        return f"{entity}/telemetry/{_encode(signal)}"

    @staticmethod
    def metric(entity: str, name: str) -> str:
        """Mint the IRI of a metric of an entity."""
        return f"{entity}/metric/{_encode(name)}"

    @staticmethod
    def at(part: str, datasource: str) -> str:
        """Mint the IRI of a metric, log stream or series as one datasource has it; ``datasource`` is its plain name."""
        return f"{part}/at/{_encode(datasource)}"

    @staticmethod
    def dashboard(entity: str, datasource: str) -> str:
        """Mint the IRI of the link to an entity's dashboard."""
        return f"{entity}/dashboard/{_encode(datasource)}"

    # -- reading ------------------------------------------------------------------------------------------------------
    def expand(self, id_or_iri: str) -> str:
        """Return the full IRI for a short id or a full IRI, checked; raises ``InvalidIdentifier``."""
        iri = self.full(id_or_iri)
        if not self.is_entity(iri):  # as nearly all are
            self.parse(iri)
        return iri

    def knows(self, iri: str) -> bool:
        """Return whether an IRI is below this base, or another one that is known."""
        return iri.startswith(self.roots)

    def short(self, iri: str) -> str:
        """Return the short id of an IRI of this base; an IRI of another one that is known is its own."""
        if iri.startswith(self.root):
            return iri[len(self.root) :]
        if self.knows(iri):
            return iri
        raise InvalidIdentifier(f"{iri} is not below {self.root}")

    def full(self, id: str) -> str:
        """Return the IRI of a short id, unchecked."""
        return id if "://" in id else self.root + id

    def _split(self, iri: str) -> tuple[str, str]:
        """Return the root that an IRI is below, and what follows; raises ``InvalidIdentifier``."""
        root = next((each for each in self.roots if iri.startswith(each)), None)
        if root is None:
            raise InvalidIdentifier(f"{iri} is not below {self.root}")
        return root, iri[len(root) :]

    def parse(self, iri: str) -> Parsed:
        """Take an IRI apart; the inverse of the minting methods. Raises ``InvalidIdentifier``."""
        return _kept(self, iri)

    def read(self, iri: str) -> Parsed:
        """Take an IRI apart as ``parse`` does, without looking whether it was asked for lately."""
        segments = self._split(iri)[1].split("/")
        notes = segments[0] in _BESIDE
        if notes:
            segments = segments[1:]
        if segments and segments[0] in _CLASSES:
            return self._parsed(ClassName(segments[0], self._id(iri, segments)), segments[2:], notes=notes)
        if segments[:1] == [_FUNCTION] and len(segments) >= 4:
            segments[:4] = [*segments[1:3], _FUNCTION, segments[3]]
        elif segments[2:3] == [_FUNCTION]:
            raise InvalidIdentifier(
                f"{iri} names no function", hint="write function/cluster/namespace/name, e.g. function/prod/shop/resize"
            )
        if len(segments) < 4:
            raise InvalidIdentifier(
                f"{iri} names no entity",
                hint="write cluster/namespace/kind/name, e.g. prod/payments/deployment/checkout",
            )
        cluster, namespace, kind, name = segments[:4]
        kind, _, group = kind.partition(".")
        if not _KIND.fullmatch(kind):
            raise InvalidIdentifier(f"{kind!r} in {iri} is not a kind", hint="kinds are written in lower case")
        decoded_group = _decode(group) if group else ""
        if group and is_own_group(decoded_group):
            raise InvalidIdentifier(f"the group of Kubernetes' own kind {kind} is not written in an id")
        entity = ObjectName(
            _decode(cluster), None if namespace == "-" else _decode(namespace), kind, _decode(name), decoded_group
        )
        if entity.cluster in RESERVED:
            raise InvalidIdentifier(f"{entity.cluster!r} is reserved and cannot be a cluster")
        return self._parsed(entity, segments[4:], notes=notes)

    def is_entity(self, iri: str) -> bool:
        """Return whether ``iri`` surely names an entity, neither a part of one nor its notes; False says nothing."""
        before, _, name = iri.rpartition("/")
        return _UNRESERVED.fullmatch(name) is not None and name not in {".", ".."} and _leads_to_entities(self, before)

    def entity(self, iri: str) -> str:
        """Return the IRI of the entity that ``iri`` is or lies below: the name of the graph it belongs to."""
        parsed = self.parse(iri)
        depth = 4 if isinstance(parsed.name, ObjectName) else 2
        root, rest = self._split(iri)
        return root + "/".join(rest.split("/")[: depth + parsed.notes])

    @staticmethod
    def _id(iri: str, segments: list[str]) -> str:
        if len(segments) < 2:
            raise InvalidIdentifier(f"{iri} names a class, not a thing")
        return _decode(segments[1])

    @staticmethod
    def _parsed(name: Name, below: list[str], *, notes: bool) -> Parsed:
        if below == [""]:
            raise InvalidIdentifier("the id ends in a slash", hint="leave it out")
        if below and not any(part.fullmatch("/".join(below)) for part in _BELOW):
            raise InvalidIdentifier(f"{'/'.join(below)!r} is not a part of an entity")
        return Parsed(name, tuple(_decode(segment) for segment in below), notes)


def _checked(base: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#<>\"{}|\\^`@]+(?:/[^\s?#<>\"{}|\\^`]*)?", base):
        raise InvalidIdentifier(f"base {base!r} is not an http(s) URL without query, fragment and credentials")
    return base.rstrip("/")


@remembered(4096)  # one request asks for the same IRI several times: to expand it, to validate, to answer
def _kept(iris: Iris, iri: str) -> Parsed:
    return iris.read(iri)


@remembered(4096)
def _leads_to_entities(iris: Iris, before: str) -> bool:
    try:
        named = iris.read(f"{before}/x")
    except InvalidIdentifier:
        return False
    return not named.below and not named.notes
