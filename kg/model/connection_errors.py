"""Why a server was not reached, in words: its name, nobody listening, TLS, or time; and what to do about each.

Apart because each client of a server needs it, whatever its library: the causes are the standard library's own errors.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import NamedTuple


class Reason(NamedTuple):
    """What is wrong (it goes on after "…: "), what to do, and whether it stays so however often one tries."""

    text: str
    hint: str
    lasting: bool = False


REFUSED = Reason("nobody listens there", "check that it runs, and that this is its port")
_BROKEN = Reason("the connection broke", "check that it still runs; a proxy in between may end what takes long")
_SLOW = Reason("it did not answer in time", "it is busy, or a firewall drops what is sent to it")
_NAME = Reason("its name is not known", "check the host name, and the name server of this machine")
_NO_ANSWER_OF_DNS = Reason("the name server does not answer", "look at the network of this machine")
_UNREACHABLE = Reason("no way leads there", "look at the network of this machine, and at the address")
_NO_TLS = Reason(
    "it does not speak TLS as this side does", "check whether it is http:// and not https:// there", lasting=True
)
_UNREACHED = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL})


def reason_of(error: BaseException) -> Reason | None:
    """Return why a connection failed, from an error or what caused it; None when that is not known."""
    return next((found for each in _causes(error) if (found := _reason(each))), None)


def lasts(error: BaseException) -> bool:
    """Return whether a connection fails in a way that waiting does not mend."""
    reason = reason_of(error)
    return reason is not None and reason.lasting


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it came from; the context too, since libraries cut the cause off (``from None``)."""
    if error is None:
        return
    yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    yield from _causes(error.__cause__ or error.__context__)


def _reason(error: BaseException) -> Reason | None:
    match error:
        case socket.gaierror():
            return _NO_ANSWER_OF_DNS if error.errno == socket.EAI_AGAIN else _NAME
        case ssl.SSLCertVerificationError():
            return Reason(
                f"its certificate is not trusted ({error.verify_message})",
                "trust the CA that signed it: name its PEM file (SSL_CERT_FILE), or ask by the name in the certificate",
                lasting=True,
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionResetError() | BrokenPipeError():
            return _BROKEN
        case ssl.SSLError():
            return _NO_TLS
        case ConnectionRefusedError():
            return REFUSED
        case TimeoutError():
            return _SLOW
        case OSError() if error.errno in _UNREACHED:
            return _UNREACHABLE
    return None
