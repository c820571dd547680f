"""Why a server was not reached: from the library's error, through what it wraps, to one of few reasons."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from drumlin.kg.model.connection_errors import lasts, reason_of


class LibraryError(Exception):
    """What an HTTP library raises."""


def wrapped(cause: BaseException, *, cut: bool = False) -> LibraryError:
    """Return the error of a library around what happened, whose cause may be cut off, as connection pools do."""
    try:
        try:
            raise cause
        except type(cause) as error:
            raise LibraryError("it failed") from (None if cut else error)
    except LibraryError as error:
        return error


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("cause", "text", "lasting"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "its name is not known", False),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "the name server does not answer", False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "nobody listens there", False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "no way leads there", False),
        (TimeoutError("timed out"), "it did not answer in time", False),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "the connection broke", False),
        (ssl.SSLEOFError(8, "EOF occurred"), "the connection broke", False),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "it does not speak TLS as this side does", True),
        (ExceptionGroup("all attempts", [OSError("?"), ConnectionRefusedError()]), "nobody listens there", False),
    ],
)
def test_each_cause_has_its_reason(cause: BaseException, text: str, lasting: bool, cut: bool) -> None:
    """Through the library's own errors, also when their cause was cut off; only TLS stays as it is."""
    error = wrapped(cause, cut=cut)
    reason = reason_of(error)
    assert reason is not None
    assert (reason.text, reason.lasting, lasts(error)) == (text, lasting, lasting)


def test_what_happened_before_is_not_the_reason() -> None:
    """An error that the caller was handling does not hide the one of the connection; one that is unknown has no reason."""
    try:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")  # noqa: TRY301 - the error that is being handled
    except ConnectionRefusedError:
        reason = reason_of(wrapped(TimeoutError()))
    assert reason is not None
    assert reason.text == "it did not answer in time"
    assert reason_of(wrapped(ValueError())) is None
    assert not lasts(LibraryError())
