"""Where the feed of a peer goes on, kept in a file: it is written once what came before is in the store, so nothing is ever missed."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import structlog

from drumlin.kg.disk import sync
from drumlin.kg.errors import StoreUnavailable

log = structlog.get_logger()


class PeerPosition(msgspec.Struct, frozen=True):
    """After which ``event`` to go on, in which ``history`` of the giver; ``terms`` are those under which graphs were accepted then."""

    history: str | None
    event: str
    terms: str


class PositionFile:
    """Keeps the position of one peer in ``path``; None keeps it in memory: after a restart, what there is is compared."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: PeerPosition | None = None

    def read(self) -> PeerPosition | None:
        """Return the position; None where there is none, or it cannot be read: comparing finds what is missing."""
        if self._kept is None and self._path is not None:
            try:
                self._kept = msgspec.json.decode(self._path.read_bytes(), type=PeerPosition)
            except FileNotFoundError:
                return None
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("peer_position_lost", path=str(self._path), reason=str(error))
        return self._kept

    def write(self, position: PeerPosition) -> None:
        """Keep a position; a power cut leaves this one or the last one. Raises ``StoreUnavailable``."""
        self._kept = position
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            self._path.parent.mkdir(exist_ok=True)
            with new.open("wb") as file:
                file.write(msgspec.json.encode(position))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            sync(self._path.parent)
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be written: {error.strerror}") from error
