"""Prometheus' remote write, as much as the tests need: samples, staleness markers, native histograms.

https://prometheus.io/docs/specs/prw/remote_write_spec/: a protobuf message, compressed with snappy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import httpx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The NaN that marks the end of a series."""


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _double(field: int, number: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", number)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def sample(second: int, value: float) -> bytes:
    """Encode one value."""
    return _bytes(2, _double(1, value) + _number(2, second * 1000))


def histogram(second: int, count: int) -> bytes:
    """Encode a native histogram of so many observations in one bucket."""
    bucket = _bytes(11, _number(1, _zigzag(0)) + _number(2, 1)) + _bytes(12, _varint(_zigzag(count)))
    content = _number(1, count) + _double(3, float(count)) + _number(4, _zigzag(0)) + _double(5, 0.001)
    return _bytes(4, content + _number(6, 0) + bucket + _number(15, second * 1000))


def write(url: str, labels: Mapping[str, str], points: Iterable[bytes]) -> None:
    """Send one series to a server that receives remote writes."""
    named = b"".join(
        _bytes(1, _bytes(1, name.encode()) + _bytes(2, value.encode())) for name, value in sorted(labels.items())
    )
    message = _bytes(1, named + b"".join(points))
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    body = pa.compress(message, codec="snappy", asbytes=True)
    # Certificates, which take longer to load than this takes, are not needed on loopback.
    httpx.post(f"{url}/api/v1/write", content=body, headers=headers, verify=False).raise_for_status()


def samples(stamps: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """Encode many values at once; ``stamps`` are milliseconds since the epoch, of this century and the next."""
    count = len(stamps)
    rows = np.empty((count, 18), np.uint8)
    rows[:, :3] = 0x12, 16, 0x09  # a sample of 16 bytes: a double …
    rows[:, 3:11] = np.frombuffer(values.astype("<f8").tobytes(), np.uint8).reshape(count, 8)
    rows[:, 11] = 0x10  # … and an integer of six groups of seven bits
    for group in range(6):
        rows[:, 12 + group] = stamps >> 7 * group & 127 | (128 if group < 5 else 0)
    return rows.tobytes()
