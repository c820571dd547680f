"""Bearer tokens in a file: made, listed, rotated and revoked, also while a service runs that reads it.

A token is 256 random bits, shown once. The file has its SHA-256: nobody can guess 256 bits, so a slow hash would add nothing. Each change
replaces the file whole, under a lock, so that a service reads either state and no change of two processes is lost.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from drumlin.api.access.callers import Caller, Role
from drumlin.kg.disk import sync
from drumlin.kg.errors import AlreadyExists, InvalidInput, InvalidSettings, ResourceNotFound
from drumlin.kg.graphs.owners import check_owner

FILE = "tokens.json"
"""Name of the file in the directory of a store."""
PREFIX = "drumlin_"
"""What every token begins with, so that scanners for leaked secrets find it."""
PATTERN = re.compile(PREFIX + r"[A-Za-z0-9_-]{43}")
REMEMBERED = timedelta(days=30)
"""How long an expired or revoked token stays listed, so that a refusal can give its holder the reason."""
_FORMAT = 1
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_DOMAIN = re.compile(r"[^\x00-\x20\x7f/]{1,200}")
_GUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Clock = Callable[[], datetime]


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token without its secret. ``sha256`` is in hexadecimal digits; times are in UTC."""

    id: str
    name: str
    role: Role
    sha256: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    owners: tuple[str, ...] = ()
    guid: str | None = None
    domains: tuple[str, ...] = ()

    @property
    def caller(self) -> Caller:
        """The caller that holds the token."""
        return Caller(self.name, self.role, self.owners, self.guid, self.id, frozenset(self.domains) or None)

    def state(self, now: datetime) -> str:
        """Return ``active``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "active" if self.expires is None or now < self.expires else "expired"


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    tokens: tuple[TokenRecord, ...]


def utc_now() -> datetime:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def digest_of(token: bytes) -> str:
    """Return the SHA-256 of a token in hexadecimal digits."""
    return hashlib.sha256(token).hexdigest()


class TokenFile:
    """The tokens in the file ``path``, which need not exist. Every method raises ``InvalidSettings`` when it cannot be read or written."""

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        self.path, self._clock = path, clock

    def stamp(self) -> tuple[int, int, int] | None:
        """Return what changes with the file, None when there is no file."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> tuple[TokenRecord, ...]:
        """Return all records, in the order in which they were made."""
        try:
            content = msgspec.json.decode(self.path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._unusable(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged("it is not a file of tokens") from error
        if content.format != _FORMAT:
            raise self._damaged(f"it has format {content.format}, and this version reads {_FORMAT}")
        return content.tokens

    def active(self) -> tuple[TokenRecord, ...]:
        """Return the records of tokens that are accepted now."""
        now = self._clock()
        return tuple(each for each in self.read() if each.state(now) == "active")

    def salvage(self) -> tuple[int, bool]:
        """Write a damaged file anew with the records that are whole; return how many there are, and whether the file was damaged.

        Without one that is whole it stays as it is: a service refuses to start on it, and without the file it would ask for no tokens.
        """
        try:
            return len(self.read()), False
        except InvalidSettings:
            kept = list(_whole_records(self.path.read_bytes()))
        if kept:
            self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
            self._write(kept)
        return len(kept), True

    def create(
        self,
        name: str,
        role: Role,
        *,
        lifetime: timedelta | None = None,
        owners: Sequence[str] = (),
        guid: str | None = None,
        domains: Sequence[str] = (),
    ) -> tuple[TokenRecord, str]:
        """Make a token and return its record and the token itself, which is kept nowhere. Without ``domains`` it is for all.

        Raises ``InvalidInput`` for a name, owners, a GUID or domains that do not fit, ``AlreadyExists`` when the name has an active token.
        """
        _check(name, role, owners, guid)
        _check_domains(domains)
        with self._changing() as records:
            now = self._clock()
            if any(each.name == name and each.state(now) == "active" for each in records):
                raise AlreadyExists(
                    f"{name} has a token", hint=f"replace it: drumlin token rotate {name}, or choose another name"
                )
            record, token = _made(name, role, now, lifetime, tuple(owners), guid, tuple(dict.fromkeys(domains)))
            records.append(record)
        return record, token

    def rotate(
        self, name: str, overlap: timedelta = timedelta(0), *, lifetime: timedelta | None = None
    ) -> tuple[TokenRecord, str]:
        """Make a new token for a name; the old ones end after ``overlap``. Without ``lifetime`` it lives as long as the last one.

        Raises ``ResourceNotFound`` when the name has no active token.
        """
        with self._changing() as records:
            now = self._clock()
            last = _active(records, name, now)[-1]
            if lifetime is None and last.expires is not None:
                lifetime = last.expires - last.created
            for position, each in enumerate(records):
                if each.name == name and each.state(now) == "active":
                    end = _after(now, overlap)
                    records[position] = msgspec.structs.replace(
                        each, expires=end if each.expires is None else min(end, each.expires)
                    )
            record, token = _made(name, last.role, now, lifetime, last.owners, last.guid, last.domains)
            records.append(record)
        return record, token

    def revoke(self, name: str) -> list[TokenRecord]:
        """End all tokens of a name now and return their records. Raises ``ResourceNotFound`` when it has no active one."""
        with self._changing() as records:
            now = self._clock()
            ended = {each.id for each in _active(records, name, now)}
            for position, each in enumerate(records):
                if each.id in ended:
                    records[position] = msgspec.structs.replace(each, revoked=now)
            return [each for each in records if each.id in ended]

    @contextmanager
    def _changing(self) -> Iterator[list[TokenRecord]]:
        """Lock the file, give its records, and write them when the block ends well."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            records = list(self.read())
            yield records
            oldest = self._clock() - REMEMBERED
            self._write([each for each in records if (end := _end(each)) is None or end > oldest])
        finally:
            os.close(lock)

    def _write(self, records: Sequence[TokenRecord]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Content(_FORMAT, tuple(records))), indent=1) + b"\n"
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as opened:
                self._give_to_owner(file)
                opened.write(content)
                opened.flush()
                os.fsync(file)
            made.replace(self.path)
            sync(self.path.parent)
        except OSError as error:
            made.unlink(missing_ok=True)
            raise self._unusable(error) from error

    def _give_to_owner(self, file: int) -> None:
        """Let the service read what an administrator writes: the file belongs to the owner of its directory."""
        if os.geteuid() == 0:
            folder = self.path.parent.stat()
            os.fchown(file, folder.st_uid, folder.st_gid)

    def _unusable(self, error: OSError) -> InvalidSettings:
        return InvalidSettings(
            f"the file of tokens {self.path} cannot be used: {error.strerror}",
            hint="let the user of the service read it, and name a directory that exists",
        )

    def _damaged(self, why: str) -> InvalidSettings:
        return InvalidSettings(
            f"the file of tokens {self.path} cannot be read: {why}",
            hint="put back a copy, keep what is whole (drumlin repair STORE), or remove it and make new tokens (drumlin token create)",
        )


def _whole_records(content: bytes) -> Iterator[TokenRecord]:
    """Yield the records in a damaged file that are whole; each is a JSON object without another one within."""
    for found in re.finditer(rb"\{[^{}]*\}", content):
        try:
            yield msgspec.json.decode(found[0], type=TokenRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue


def _check(name: str, role: Role, owners: Sequence[str], guid: str | None) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:64]!r} cannot be the name of a token",
            hint="1 to 63 lower-case letters, digits, '.', '_' and '-', of which the first is a letter",
        )
    if name == "anonymous":
        raise InvalidInput("anonymous is the name of callers without a token", hint="choose another name")
    if (role is Role.exporter) != bool(owners):
        hint = "say --source kubernetes, or what the exporter writes as" if role is Role.exporter else "leave it out"
        raise InvalidInput("an exporter, and nothing else, is bound to a source", hint=hint)
    if (role is Role.agent) != (guid is not None):
        hint = "say --guid GUID" if role is Role.agent else "leave it out"
        raise InvalidInput("an agent, and nothing else, is bound to a GUID", hint=hint)
    for each in owners:
        check_owner(each)
    if guid is not None and not _GUID.fullmatch(guid):
        raise InvalidInput(f"{guid[:64]!r} is not a GUID", hint="1 to 128 letters, digits, '.', '_' and '-'")


def _check_domains(domains: Sequence[str]) -> None:
    for each in domains:
        if not _DOMAIN.fullmatch(each):
            raise InvalidInput(
                f"{each[:64]!r} is not the id of a domain", hint="give what follows domain/ in its id, such as alice"
            )


def _made(
    name: str,
    role: Role,
    now: datetime,
    lifetime: timedelta | None,
    owners: tuple[str, ...],
    guid: str | None,
    domains: tuple[str, ...],
) -> tuple[TokenRecord, str]:
    token = PREFIX + secrets.token_urlsafe(32)
    expires = None if lifetime is None else _after(now, lifetime)
    record = TokenRecord(
        secrets.token_hex(4),
        name,
        role,
        digest_of(token.encode()),
        now,
        expires,
        owners=owners,
        guid=guid,
        domains=domains,
    )
    return record, token


def _after(now: datetime, length: timedelta) -> datetime:
    try:
        return now + length
    except OverflowError as error:
        raise InvalidInput("a token cannot end after the year 9999", hint="name a shorter time, or no end") from error


def _active(records: Sequence[TokenRecord], name: str, now: datetime) -> list[TokenRecord]:
    found = [each for each in records if each.name == name and each.state(now) == "active"]
    if not found:
        known = sorted({each.name for each in records if each.state(now) == "active"})
        raise ResourceNotFound(
            f"{name[:64]} has no active token", hint=f"those that have one: {', '.join(known) or 'nobody'}"
        )
    return found


def _end(record: TokenRecord) -> datetime | None:
    """Return when a token ended, or will end."""
    ends = [each for each in (record.revoked, record.expires) if each is not None]
    return min(ends, default=None)
