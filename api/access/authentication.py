"""Who sends a request: the holder of the bearer token in its header ``Authorization`` (RFC 6750), or an anonymous caller.

https://www.rfc-editor.org/rfc/rfc6750. A token is taken from that header only: addresses and bodies end in logs. It is one of our own, or
one that a configured issuer has signed.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from drumlin.api.access.callers import ANONYMOUS, ANYBODY, Caller, Role
from drumlin.api.access.guessing import GuessLimiter
from drumlin.api.access.issued_tokens import IssuedTokens, Verified, is_signed
from drumlin.api.access.tokens import TokenFile, TokenRecord, digest_of, utc_now
from drumlin.api.http.asgi import Headers
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import Busy, DrumlinError, IdentityUnavailable, InvalidSettings, Unauthenticated

_VERIFIED = 1024  # headers that need not be verified again until the file changes
LOOK = 1.0
"""Seconds after which the file of tokens is looked at again."""

VERIFIED_SECONDS, REFUSED_SECONDS = 60.0, 10.0
"""Seconds for which a signed token that was verified, or refused, is not looked at again."""
_OUTSIDERS, _STRANGERS = 10_000, 1024  # signed tokens that are remembered as verified, and as refused
_TOGETHER, _WAITING = 8, 256  # signed tokens that are verified at one time, and that may wait for it
_SIGNED = "signed:"  # what the id of a signed token begins with; its SHA-256 follows

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _SignedTokenAnswer:
    """What became of a signed token, and until when nobody asks again (``clock``)."""

    found: Verified | DrumlinError
    until: float


class Authenticator:
    """Names the callers of a service.

    As long as there has been no file of tokens and there is no issuer, everybody may do everything, where ``unguarded`` allows that: on
    loopback, or when the operator says so. From then on a caller without a token has the role that the setting ``anonymous`` names. When
    the file is removed later, no token of it is valid any more; the service stays closed. For one thread, and one event loop.
    """

    def __init__(
        self,
        settings: Settings,
        file: TokenFile | None,
        *,
        unguarded: bool,
        issued: IssuedTokens | None = None,
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
        self._issued = issued
        self._verified_signed: OrderedDict[str, _SignedTokenAnswer] = (
            OrderedDict()
        )  # by SHA-256, the least recent first
        self._refused_signed: OrderedDict[str, _SignedTokenAnswer] = OrderedDict()
        self._verifying: dict[str, asyncio.Future[None]] = {}
        self._turn = asyncio.Semaphore(_TOGETHER)
        self._asks = issued is not None
        self._looked = clock()
        self._load()

    @property
    def limits(self) -> bool:
        """Whether the holder of a token in the file is limited to domains."""
        return any(each.domains for each in self._records.values())

    @property
    def asks(self) -> bool:
        """Whether it asks callers for a token."""
        return self._asks

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
        if self._issued is not None and is_signed(token):
            return self._signed_holder(digest_of(token), address)
        record = self._record(digest_of(token), address)
        if len(self._verified) >= _VERIFIED:
            self._verified.clear()
        self._verified[sent[0]] = record
        return self._holder(record, address)

    def is_accepted(self, caller: Caller) -> bool:
        """Return whether a caller that was named earlier would still be: its token has neither expired nor been revoked."""
        if caller.token is None:
            return caller == self.anonymous
        if caller.token.startswith(_SIGNED):
            answer = self._verified_signed.get(caller.token.removeprefix(_SIGNED))
            return answer is not None and isinstance(answer.found, Verified) and self._now() < answer.found.expires
        record = self._ids.get(caller.token)
        return record is not None and record.state(self._now()) == "active"

    # -- signed tokens ------------------------------------------------------------------------------------------------
    async def learn(self, headers: Headers, address: str) -> None:
        """Have a signed token verified that was not verified lately; to be awaited before ``caller_of``, which knows then.

        Raises ``GuessesThrottled``, and ``Busy`` when too many wait.
        """
        token = self._signed(headers)
        if token is None or self._issued is None:
            return
        digest = digest_of(token)
        answer = self._verified_signed.get(digest) or self._refused_signed.get(digest)
        if answer is not None and self._clock() < answer.until:
            return
        self._guesses.check(address, digest)
        if (verifying := self._verifying.get(digest)) is None:
            if len(self._verifying) >= _WAITING:
                raise Busy(f"{_WAITING} tokens wait to be verified", hint="ask again in a few seconds")
            verifying = asyncio.ensure_future(self._verify(self._issued, token, digest))
            self._verifying[digest] = verifying
        await asyncio.shield(verifying)

    def is_due(self, caller: Caller) -> bool:
        """Return whether the signed token of a caller is to be verified again (``learn``)."""
        if caller.token is None or not caller.token.startswith(_SIGNED):
            return False
        answer = self._verified_signed.get(caller.token.removeprefix(_SIGNED))
        return answer is not None and self._clock() >= answer.until

    async def _verify(self, issued: IssuedTokens, token: bytes, digest: str) -> None:
        try:
            async with self._turn:
                found: Verified | DrumlinError = await asyncio.to_thread(issued.verify, token, f"{_SIGNED}{digest}")
        except IdentityUnavailable as error:
            log.warning("issuer_unavailable", reason=str(error))
            found = error
        except DrumlinError as error:
            found = error.with_traceback(None)
        finally:
            del self._verifying[digest]
        known, most = (
            (self._verified_signed, _OUTSIDERS) if isinstance(found, Verified) else (self._refused_signed, _STRANGERS)
        )
        for each in (self._verified_signed, self._refused_signed):
            each.pop(digest, None)
        seconds = (
            VERIFIED_SECONDS
            if isinstance(found, Verified)
            else 1.0
            if isinstance(found, IdentityUnavailable)
            else REFUSED_SECONDS
        )
        known[digest] = _SignedTokenAnswer(found, self._clock() + seconds)
        if len(known) > most:
            known.popitem(last=False)

    def _signed(self, headers: Headers) -> bytes | None:
        sent = [value for name, value in headers if name == b"authorization"]
        scheme, _, rest = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
        token = rest.strip(b" ")
        return token if scheme.lower() == b"bearer" and is_signed(token) else None

    def _signed_holder(self, digest: str, address: str) -> Caller:
        """Return who holds a signed token, as ``learn`` found; raises what it found."""
        self._guesses.check(address, digest)
        answer = self._verified_signed.get(digest) or self._refused_signed.get(digest)
        if answer is None:  # forgotten since: more tokens come than are remembered
            raise Busy("too many tokens come at one time", hint="ask again in a few seconds")
        if isinstance(answer.found, DrumlinError):
            if isinstance(answer.found, Unauthenticated):
                self._guesses.wrong(address, digest)
            raise answer.found.again()
        if self._now() >= answer.found.expires:
            raise _refused("the token has expired", "sign in again, or have the token renewed")
        self._guesses.accepted(address, digest)
        return answer.found.caller

    # -- the file -----------------------------------------------------------------------------------------------------
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
