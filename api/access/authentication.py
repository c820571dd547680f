"""Who sends a request: the holder of the bearer token in its header ``Authorization`` (RFC 6750), or an anonymous caller.

https://www.rfc-editor.org/rfc/rfc6750. A token is taken from that header only: addresses and bodies end in logs.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from datetime import datetime

import structlog

from drumlin.api.access.callers import ANONYMOUS, ANYBODY, Caller, Role
from drumlin.api.access.guessing import GuessLimiter
from drumlin.api.access.tokens import TokenFile, TokenRecord, digest_of, utc_now
from drumlin.api.http.asgi import Headers
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings, Unauthenticated

_VERIFIED = 1024  # headers that need not be verified again until the file changes
LOOK = 1.0
"""Seconds after which the file of tokens is looked at again."""

log = structlog.get_logger()


class Authenticator:
    """Names the callers of a service.

    As long as there has been no file of tokens, everybody may do everything, where ``unguarded`` allows that: on loopback, or when the
    operator says so. From then on a caller without a token has the role that the setting ``anonymous`` names. When the file is removed
    later, no token is valid any more; the service stays closed. For one thread.
    """

    def __init__(
        self,
        settings: Settings,
        file: TokenFile | None,
        *,
        unguarded: bool,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ``InvalidSettings`` when there is a file that cannot be read."""
        self._file, self._now, self._clock = file, now, clock
        self._guesses = GuessLimiter(settings.proxies, clock)
        self._unguarded = unguarded and settings.anonymous is None
        named = settings.anonymous or "none"
        self._nobody = None if named == "none" else Caller(ANONYMOUS, Role(named))
        self._records: Mapping[str, TokenRecord] = {}
        self._callers: Mapping[str, Caller] = {}
        self._verified: dict[bytes, TokenRecord] = {}  # by the header that was verified
        self._ids: Mapping[str, TokenRecord] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._asks = False
        self._looked = clock()
        self._load()

    @property
    def anonymous(self) -> Caller | None:
        """The caller without a token; None when there is no such caller."""
        return self._nobody if self._asks or not self._unguarded else ANYBODY

    def caller_of(self, headers: Headers, address: str) -> Caller | None:
        """Return who sends a request from ``address``, None for an anonymous caller where there is none.

        Raises ``Unauthenticated`` for a token that is not accepted, ``GuessesThrottled`` when the address has tried too many.
        """
        self.refresh()
        if not self._asks:
            return self.anonymous  # a proxy in front may have asked for the token
        sent = [value for name, value in headers if name == b"authorization"]
        if len(sent) != 1:
            if not sent:
                return self.anonymous
            raise _refused(f"the request has {len(sent)} Authorization headers", "send one")
        if (record := self._verified.get(sent[0])) is not None:
            return self._holder(record, address)
        scheme, _, rest = sent[0].partition(b" ")
        if scheme.lower() != b"bearer" or not (token := rest.strip(b" ")):
            return self.anonymous
        record = self._record(digest_of(token), address)
        if len(self._verified) >= _VERIFIED:
            self._verified.clear()
        self._verified[sent[0]] = record
        return self._holder(record, address)

    def is_accepted(self, caller: Caller) -> bool:
        """Return whether a caller that was named earlier would still be: its token has neither expired nor been revoked."""
        if caller.token is None:
            return caller == self.anonymous
        record = self._ids.get(caller.token)
        return record is not None and record.state(self._now()) == "active"

    def refresh(self, *, at_once: bool = False) -> None:
        """Read the file again when it has changed and was not looked at for a second, or ``at_once``; errors are logged, and it is left."""
        now = self._clock()
        if now - self._looked < LOOK and not at_once:
            return
        self._looked = now
        try:
            self._load()
        except InvalidSettings as error:
            log.error("tokens_unreadable", reason=str(error), hint=error.hint)

    def _load(self) -> None:
        if self._file is None or (stamp := self._file.stamp()) == self._stamp:
            return
        if stamp is None:
            log.warning("tokens_removed", path=str(self._file.path))
        records = self._file.read()
        self._stamp = stamp
        self._records = {each.sha256: each for each in records}
        self._callers = {each.id: each.caller for each in records}
        self._ids = {each.id: each for each in records}
        self._verified.clear()
        self._asks = True
        active = sum(each.state(self._now()) == "active" for each in records)
        log.info("tokens_read", path=str(self._file.path), active=active)

    def _record(self, digest: str, address: str) -> TokenRecord:
        """Return the record of a token, be it ended; raises ``Unauthenticated`` and ``GuessesThrottled``."""
        self._guesses.check(address, digest)
        if (record := self._records.get(digest)) is None:  # it may have been made within the last second
            self.refresh(at_once=True)
            record = self._records.get(digest)
        # The look-up may be timed, but a digest cannot be chosen; what it finds is compared in constant time.
        if record is None or not hmac.compare_digest(record.sha256, digest):
            self._guesses.wrong(address, digest)
            raise _refused(
                "the token is not known here", "check that it is the whole token, of this service, and not revoked"
            )
        return record

    def _holder(self, record: TokenRecord, address: str) -> Caller:
        self._guesses.check(address, record.sha256)
        if (record.expires or record.revoked) and (state := record.state(self._now())) != "active":
            when = f" on {record.expires:%Y-%m-%d %H:%M} UTC" if state == "expired" else ""
            raise _refused(
                f"the token of {record.name} ({record.role}) {'has' if when else 'was'} {state}{when}",
                f"an operator makes a new one: drumlin token create {record.name} --role {record.role}",
                {"identity": record.name, "role": record.role.value},
            )
        self._guesses.accepted(address, record.sha256)
        return self._callers[record.id]


def _refused(message: str, hint: str, detail: Mapping[str, str] | None = None) -> Unauthenticated:
    return Unauthenticated(message, hint=hint, detail={"error": "invalid_token", **(detail or {})})
