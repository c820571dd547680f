"""Forms of documents: taken apart as clients write them, counted before anything is read, refused in words when malformed."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.http import multipart
from drumlin.api.http.multipart import MAX_PARTS, parts_of
from drumlin.kg.errors import DrumlinError, InvalidDocument, TooLarge, UnsupportedSyntax

TYPE = "multipart/form-data; boundary=x"


def form(*parts: tuple[str, bytes], boundary: str = "x", end: bytes = b"\r\n") -> bytes:
    """Return a form of parts, each with its headers and content."""
    written = b"".join(
        b"--" + boundary.encode() + end + headers.encode().replace(b"\n", end) + end + end + content + end
        for headers, content in parts
    )
    return written + b"--" + boundary.encode() + b"--" + end


@given(
    contents=st.lists(st.binary(max_size=60).filter(lambda each: b"--x" not in each), min_size=1, max_size=5),
    end=st.sampled_from([b"\r\n", b"\n"]),
)
def test_parts_come_back_as_they_were(contents: list[bytes], end: bytes) -> None:
    """Whatever bytes they hold, in their order."""
    if end == b"\n":
        contents = [each.rstrip(b"\r") for each in contents]  # a line's end is the delimiter's
    body = form(*(("Content-Type: text/turtle", each) for each in contents), end=end)

    assert [each.content for each in parts_of(TYPE, body)] == contents


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ("Content-Type: text/turtle", "turtle"),
        ("content-disposition: form-data; name=a; filename=a.nt", "ntriples"),
        ('Content-Disposition: form-data; name="a"; filename="a \\"b\\"; c.TTL"', "turtle"),
        ("Content-Disposition: form-data;\n filename*=UTF-8''%C3%A4.trig", "trig"),
        ("Content-Disposition: form-data; filename=a.nq\nContent-Type: application/octet-stream", "nquads"),
    ],
)
def test_the_syntax_is_the_content_types_or_the_file_names(headers: str, name: str) -> None:
    """As browsers, curl and libraries write them."""
    (part,) = parts_of('multipart/form-data; charset=utf-8; boundary="a (b"', form((headers, b"x"), boundary="a (b"))

    assert (part.syntax.name, part.content) == (name, b"x")


def test_a_content_transfer_encoding_is_undone() -> None:
    """RFC 7578 deprecates it; some clients send it all the same."""
    typed = "Content-Type: text/turtle\nContent-Transfer-Encoding:"
    body = form((f"{typed} base64", base64.b64encode(b"<a:a>")), (f"{typed} quoted-printable", b"=3Ca:b>"))

    assert [each.content for each in parts_of(TYPE, body)] == [b"<a:a>", b"<a:b>"]


def test_parts_are_counted_before_anything_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 parts are refused with the limit, and none of them is looked at; the limit itself is allowed."""
    part = ("Content-Type: text/turtle", b"<a:a> <a:b> <a:c> .")
    assert len(parts_of(TYPE, form(*[part] * MAX_PARTS))) == MAX_PARTS
    monkeypatch.setattr(multipart, "_part", pytest.fail)

    with pytest.raises(TooLarge, match=f"at most {MAX_PARTS} parts"):
        parts_of(TYPE, form(*[part] * 20_000))


@pytest.mark.parametrize(
    ("content_type", "body", "error"),
    [
        ("multipart/form-data", form(("", b"")), InvalidDocument),
        (f"multipart/form-data; boundary={'x' * 71}", b"", InvalidDocument),
        (TYPE, b"", InvalidDocument),
        (TYPE, b"--x--", InvalidDocument),
        (TYPE, b"--x\r\nContent-Type: text/turtle\r\n\r\nno end", InvalidDocument),
        (TYPE, b"--x\r\nno empty line\r\n--x--", InvalidDocument),
        (TYPE, form(("Content-Type: multipart/mixed; boundary=y", b"--y\r\n\r\n--y--")), InvalidDocument),
        (TYPE, form(("Content-Type: text/turtle\nContent-Transfer-Encoding: base64", b"a")), InvalidDocument),
        (TYPE, form(("Content-Disposition: form-data; filename=a.png", b"")), UnsupportedSyntax),
        (TYPE, form(("A: b\n" * 2000, b"")), TooLarge),
    ],
)
def test_a_malformed_form_is_refused_in_words(content_type: str, body: bytes, error: type[Exception]) -> None:
    """Without a boundary, an end or headers, of no parts, with parts in parts, with headers without end."""
    with pytest.raises(error):
        parts_of(content_type, body)


SOUND = form(
    ("Content-Disposition: form-data; name=a; filename*=utf-8''a.nt\nContent-Transfer-Encoding: base64", b"eA=="),
    ("Content-Type: text/turtle", b"x"),
)
PIECES = [b"\r\n", b"\n", b"--x", b"--", b":", b";", b'"', b"=?utf-8?q?=ff?=", b"''%ff", b"\xff", b"\0", b"multipart/"]


@given(
    st.lists(
        st.tuples(st.integers(0, len(SOUND)), st.integers(0, 9), st.sampled_from(PIECES) | st.binary(max_size=2)),
        max_size=4,
    )
)
def test_any_mutant_is_parts_or_an_error_of_ours(changes: list[tuple[int, int, bytes]]) -> None:
    """No header makes the reader fail, as the standard library's did."""
    body = bytearray(SOUND)
    for at, length, piece in changes:
        body[at : at + length] = piece
    with suppress(DrumlinError):
        parts_of(TYPE, bytes(body))
