"""Every error that Drumlin raises on purpose. Third-party exceptions become one of these at their one owner.

    DrumlinError
    ├── InvalidInput                 what was sent cannot be read or is not allowed        (422)
    │   ├── InvalidIdentifier        an IRI or short id that names nothing legal
    │   ├── InvalidDocument          an RDF document that does not parse or breaks a rule
    │   ├── ShapeViolation           a document that parses but is not well-shaped
    │   ├── InvalidManifest          an object that is not what Kubernetes would send
    │   ├── InvalidSettings          a configuration that cannot be used
    │   └── WrongUsage               a command that was not given what it takes
    ├── UnsupportedSyntax            a media type that is not offered                      (415)
    │   └── NotAcceptable            nothing that the client accepts can be written        (406)
    ├── TooLarge                     a limit was exceeded; the message carries numbers     (413)
    ├── QueryRejected                a SPARQL text that is malformed or not allowed        (400, 403, 413, 422, 504)
    ├── Unauthenticated              nobody knows who asks: no token, or an invalid one    (401)
    ├── Forbidden                    who asks is known and may not do this                 (403)
    ├── IdentityUnavailable          the issuer of a token cannot be asked                 (503)
    ├── Throttled                    a client asks for more than its share                 (429)
    ├── ReaderLost                   the process that ran a query ended                    (500)
    ├── ResourceNotFound             no such thing                                         (404)
    │   ├── ResourceGone             it was here; its tombstone remains                    (410)
    │   └── UnknownMetric            an entity in a client's hands has no such metric
    ├── EventsGone                   the change log does not go back (or on) so far        (410)
    ├── Conflict                     the state of the store forbids it                     (409)
    │   ├── GraphOwned               another writer owns the graph
    │   └── AlreadyExists            POST on an id that exists
    ├── PreconditionFailed           If-Match or If-None-Match did not hold                (412)
    ├── PreconditionRequired         this service wants If-Match or If-None-Match          (428)
    ├── CapabilityMissing            the engine behind a remote store cannot do this        (501)
    ├── StoreUnavailable             the store cannot be opened, written or read           (503)
    │   ├── StoreFull                there is no room on its disk                          (507)
    │   └── StoreDamaged             a file of it is missing, damaged or not of this store (503)
    └── SourceUnavailable            a server that Drumlin depends on does not answer      (502)
        ├── SourceRefused            it refuses our credentials or request, now and later
        ├── DatasourceRefused        it answered with an error of its own
        └── MetricMissing            it answered, and has no such metric or label          (404)

Catch broadly (``DrumlinError``), recover narrowly. ``str(error)`` is one line for a person and never holds a credential;
``hint`` says what to do next; ``detail`` holds facts for machines (it becomes members of the problem document).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


class DrumlinError(Exception):
    """Base of all errors raised on purpose. ``hint`` says what to do next, ``detail`` holds facts for machines.

    ``refusals``: when several graphs were to be written, the error of each that was refused, by its IRI; empty for all other errors.
    """

    def __init__(self, message: str, *, hint: str | None = None, detail: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.detail: dict[str, Any] = dict(detail or {})
        self.refusals: Mapping[str, DrumlinError] = {}

    def again(self) -> Self:
        """Return this error to be raised by somebody else too: raised in several threads, one would mix their tracebacks."""
        again = type(self).__new__(type(self), *self.args)
        again.__dict__.update(self.__dict__)
        again.__cause__ = self
        return again


class InvalidInput(DrumlinError):
    """What was sent cannot be read or is not allowed."""


class InvalidIdentifier(InvalidInput):
    """An IRI or short id that names nothing legal."""


class InvalidDocument(InvalidInput):
    """An RDF document that does not parse or breaks a rule of the graph (``detail``: line, column where known)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of a shape: which node, along which path, which value, by which rule, and what may have been meant."""

    focus: str
    path: str | None
    value: str | None
    rule: str
    message: str
    suggestion: str | None = None


class ShapeViolation(InvalidInput):
    """A document that parses but is not well-shaped; ``violations`` lists every breach found."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        super().__init__(f"{first.message}{more}", hint=first.suggestion and f"did you mean {first.suggestion}?")
        self.violations = violations


class InvalidManifest(InvalidInput):
    """An object that is not what the Kubernetes API would send; ``where`` is its file and position."""

    def __init__(self, message: str, *, where: str = "", hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint)
        self.where = where


class InvalidSettings(InvalidInput):
    """A configuration file or option that cannot be used."""


class WrongUsage(InvalidInput):
    """A command that was not given what it takes; the command line ends with exit code 2."""


class UnsupportedSyntax(DrumlinError):
    """A media type that is not offered; ``detail["offered"]`` lists those that are."""


class NotAcceptable(UnsupportedSyntax):
    """Nothing that the client accepts can be written; ``detail["offered"]`` lists what can."""


class TooLarge(DrumlinError):
    """A limit was exceeded; the message carries the limit and what was sent."""


class QueryRejected(DrumlinError):
    """A SPARQL text that is malformed or not allowed (``detail``: line, column, token); ``reason`` picks the status."""

    def __init__(
        self, message: str, *, reason: str = "syntax", hint: str | None = None, detail: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.reason = reason


class Unauthenticated(DrumlinError):
    """Nobody knows who asks; ``detail["error"]`` is RFC 6750's word for what is wrong with the token, absent when there was none."""


class Forbidden(DrumlinError):
    """Who asks is known and may not do this (``detail``: identity, role, needs)."""


class IdentityUnavailable(DrumlinError):
    """The issuer of a token cannot be asked, so that nobody knows whether it is valid."""


class Throttled(DrumlinError):
    """A client asks for more than its share; ``detail["retryAfter"]`` is in seconds."""


class ReaderLost(DrumlinError):
    """The process that ran a query ended by itself; others are not affected."""


class ResourceNotFound(DrumlinError):
    """No such thing."""


class ResourceGone(ResourceNotFound):
    """It was here; its tombstone remains."""


class UnknownMetric(ResourceNotFound, KeyError):
    """An entity has no metric of this name; a ``KeyError`` too, since it is looked up in a mapping."""

    __str__ = Exception.__str__  # that of a KeyError quotes its text


class EventsGone(DrumlinError):
    """The change log does not reach the event that was named; ``detail`` has ``oldest`` and ``newest``, generations."""


class Conflict(DrumlinError):
    """The state of the store forbids it."""


class GraphOwned(Conflict):
    """Another writer owns the graph; ``detail["owner"]`` names it."""

    def __init__(self, graph: str, owner: str, writer: str) -> None:
        super().__init__(
            f"{graph} is written by {owner}, not by {writer}",
            hint="write remarks to its notes graph instead (id/notes/…)",
            detail={"graph": graph, "owner": owner},
        )


class AlreadyExists(Conflict):
    """POST on an id that exists."""


class PreconditionFailed(DrumlinError):
    """If-Match or If-None-Match did not hold; ``detail["digest"]`` is the digest there is now, if any."""


class PreconditionRequired(DrumlinError):
    """A write must say what it expects (If-Match or If-None-Match), because the service is configured so."""


class CapabilityMissing(DrumlinError):
    """The engine behind a remote store cannot do what was asked (``detail``: capability, engine)."""


class Busy(DrumlinError):
    """The service has no room for one more request of this sort; others are not affected (``detail``: pool, threads, waiting)."""


class Cancelled(DrumlinError):
    """Nobody waits for the result of this work any more."""


class StoreUnavailable(DrumlinError):
    """The store cannot be opened, written or read."""


class StoreFull(StoreUnavailable):
    """There is no room on the store's disk: nothing was written, reading goes on, and so does writing once there is room."""


BACKUP = "restore a backup: drumlin restore BACKUP --store NEW_DIRECTORY"
"""What to do about a store of which nothing is left."""
RESTORE = f"put back the file that is named, or {BACKUP}, or keep what is whole: drumlin repair STORE"
"""What to do about a file that cannot be made from the others."""


class StoreDamaged(StoreUnavailable):
    """A file of the store is missing, damaged, older than the others or of another store; the message names it."""


class SourceUnavailable(DrumlinError):
    """A server that Drumlin depends on does not answer; the message names it and what was asked."""


class SourceRefused(SourceUnavailable):
    """The server refuses our credentials, or does not take our requests: no waiting mends that, the operator must."""


class DatasourceRefused(SourceUnavailable):
    """The datasource answered with an error of its own (``detail``: datasource, query, status, message)."""


class MetricMissing(SourceUnavailable):
    """The datasource answered, and has no such metric or label (``detail``: datasource, query, missing, similar)."""
