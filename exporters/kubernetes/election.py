"""Which of several processes writes a cluster's graphs: the holder of a Lease in that cluster.

Every process looks at the Lease a few times per duration. One that sees it unchanged for a whole duration, on its own clock, takes it;
the API server refuses the second of two that try (409, by ``resourceVersion``). The holder counts its right from the moment at which it
*began* to ask for its last renewal, and gives it up after ``_HELD`` of the duration: before anybody else can have seen a whole one pass.
No time of another machine is ever compared, and a step of this one's clock changes nothing.

A process can still be stopped between looking at its right and the arrival of its write. What refuses that write is the store: see
``exporters.pipeline.fencing``.

Specification: https://kubernetes.io/docs/concepts/architecture/leases/ (coordination.k8s.io/v1), as client-go's leader election has it
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import structlog

from drumlin.exporters.kubernetes.access import ApiRefused, ApiServer
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.threads import ServiceThread

log = structlog.get_logger()

_HELD = 0.7  # of the duration, from the request for a renewal on, the holder may write
_LOOKS = 5  # a duration, at the least
_GROUP = "/apis/coordination.k8s.io/v1/namespaces"
_HINT = "`drumlin rbac` prints the rights on the Lease; its namespace must exist (setting election.namespace)"


def elapsed() -> float:
    """Return seconds that no step of the clock changes and that go on while the machine sleeps, where the system counts these."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Metadata(msgspec.Struct):
    resourceVersion: str = ""


class _Spec(msgspec.Struct):
    holderIdentity: str | None = None
    leaseTransitions: int | None = None
    acquireTime: str | None = None


class _Lease(msgspec.Struct):
    """The part of a Lease that counts; ``renewTime`` is another machine's and is not read."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Where the Lease is, how long it is held without a renewal (seconds, whole ones), and who asks."""

    namespace: str
    name: str
    seconds: int
    holder: str

    @property
    def collection(self) -> str:
        """The path of the namespace's Leases."""
        return f"{_GROUP}/{self.namespace}/leases"


class Election:
    """One process's part in the election of one cluster's writer. ``start`` begins to take part, ``stop`` gives the Lease back."""

    def __init__(self, access: ApiServer, lease: LeaseName, *, clock: Callable[[], float] = elapsed) -> None:
        self.holder = lease.holder
        self.trouble: str | None = None
        self._access = access
        self._lease = lease
        self._clock = clock
        self._seen: _Lease | None = None
        self._seen_at = clock()  # when the Lease was last seen to change
        self._heard_at: float | None = None  # when the API server last answered
        self._until = -1.0  # the right to write ends
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread = ServiceThread(self._run, f"election {lease.name}", self._died)

    # -- for others -----------------------------------------------------------------------------------------------------
    @property
    def leads(self) -> bool:
        """Whether this process may write now; callable from any thread."""
        return self._clock() < self._until

    @property
    def leader(self) -> str | None:
        """Who holds the Lease, as far as is known; None when nobody does, or the API server has been silent for a duration."""
        if self.leads:
            return self.holder
        if self._seen is None or self._heard_at is None or self._clock() - self._heard_at > self._lease.seconds:
            return None
        holder = self._seen.spec.holderIdentity or None
        return None if holder == self.holder or self._is_expired else holder

    @property
    def leaderless(self) -> float:
        """For how many seconds no leader has been known, at the least; 0 while one is."""
        return 0.0 if self.leader else max(0.0, self._clock() - max(self._seen_at, self._heard_at or 0.0))

    def wait(self, stop: threading.Event) -> bool:
        """Wait until this process leads (True) or ``stop`` is set (False)."""
        with self._changed:
            while not (self.leads or stop.is_set()):
                self._changed.wait(0.1)
        return not stop.is_set()

    def start(self) -> None:
        """Begin to take part; does nothing the second time."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End, after the last write: what is held is given back, so that another can lead at once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(self._lease.seconds)

    def resign(self) -> None:
        """Stop writing now, until the Lease is renewed: the store has another writer."""
        self._until = -1.0

    # -- its thread -----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stop.wait(self.turn()):
            pass
        self.release()

    def _died(self, _: BaseException) -> None:
        self.resign()

    def turn(self) -> float:
        """Look at the Lease once, take or renew it where that is allowed; return how many seconds to wait before the next look."""
        led = self.leads
        try:
            self._look()
            self.trouble = None
        except SourceUnavailable as error:
            if not self.trouble:
                log.warning("election_troubled", lease=self._lease.name, reason=str(error), hint=_HINT)
            self.trouble = str(error)
        if led and not self.leads:
            log.warning("leadership_lost", lease=self._lease.name, holder=self.holder, reason=self.trouble)
        elif self.leads and not led:
            log.info("leadership_taken", lease=self._lease.name, holder=self.holder)
        with self._changed:
            self._changed.notify_all()
        return self._lease.seconds / _LOOKS * random.uniform(0.8, 1.0)  # noqa: S311 — spreads load, guards nothing

    def _look(self) -> None:
        self._observe()
        seen = self._seen
        if seen is not None and not self._may_take(seen):
            self._until = -1.0
            return
        asked_at = self._clock()
        try:
            answer = self._taken(seen)
        except ApiRefused as error:
            if error.status != 409:
                raise
            return  # another was faster; what it wrote is seen at the next look
        self._note(answer)
        self._until = asked_at + _HELD * self._lease.seconds

    def _observe(self) -> None:
        try:
            self._note(self._access.get(f"{self._lease.collection}/{self._lease.name}", timeout=self._patience))
        except ApiRefused as error:
            if error.status != 404:
                raise
            self._heard_at, self._seen = self._clock(), None

    def _note(self, body: bytes) -> None:
        try:
            lease = msgspec.json.decode(body, type=_Lease)
        except msgspec.MsgspecError as error:
            raise SourceUnavailable("what the API server answered for the Lease is not one", hint=_HINT) from error
        self._heard_at = self._clock()
        if self._seen is None or lease.metadata.resourceVersion != self._seen.metadata.resourceVersion:
            self._seen, self._seen_at = lease, self._heard_at

    @property
    def _patience(self) -> float:
        return self._lease.seconds / _LOOKS

    @property
    def _is_expired(self) -> bool:
        return self._clock() - self._seen_at >= self._lease.seconds

    def _may_take(self, seen: _Lease) -> bool:
        return seen.spec.holderIdentity in (None, "", self.holder) or self._is_expired

    def _taken(self, seen: _Lease | None) -> bytes:
        if seen is None:
            return self._access.write("POST", self._lease.collection, self._body(None), timeout=self._patience)
        path = f"{self._lease.collection}/{self._lease.name}"
        return self._access.write("PUT", path, self._body(seen), timeout=self._patience)

    def _body(self, seen: _Lease | None, *, release: bool = False) -> dict[str, object]:
        """Return the Lease as it shall be: held by this process, or by nobody."""
        old, now = seen.spec if seen else _Spec(), _micro_time()
        same = old.holderIdentity == self.holder
        spec: dict[str, object] = {
            "leaseDurationSeconds": self._lease.seconds,
            "renewTime": now,
            "acquireTime": (same and old.acquireTime) or now,
            "leaseTransitions": (old.leaseTransitions or 0) + (0 if same or seen is None else 1),
        }
        if not release:
            spec["holderIdentity"] = self.holder
        metadata = {"name": self._lease.name, "namespace": self._lease.namespace}
        if seen is not None:
            metadata["resourceVersion"] = seen.metadata.resourceVersion
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def release(self) -> None:
        """Give the Lease back, where this process holds it; one that cannot be given back runs out."""
        self.resign()
        if self._seen is None or self._seen.spec.holderIdentity != self.holder:
            return
        path = f"{self._lease.collection}/{self._lease.name}"
        try:
            self._access.write("PUT", path, self._body(self._seen, release=True), timeout=self._patience)
        except SourceUnavailable as error:
            log.warning("lease_not_released", lease=self._lease.name, reason=str(error))
        else:
            log.info("lease_released", lease=self._lease.name)


def _micro_time() -> str:
    """Return the time as the API's MicroTime; others read it, and no decision rests on it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
