"""Reading requests to ``/sparql``: parameters, gate, format; one that came before is not read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from api.routes.sparql import result_type
from kg.settings import Settings
from kg.sparql import gate, protocol
from kg.store.protocol import Visible
from kg.store.questions import Question
from kg.store.reader_answers import Asking

_READINGS = 4096  # requests whose reading is remembered
_LONGEST = 8192  # bytes of a request that is worth remembering
_type_of = lru_cache(256)(result_type)


class Reading(NamedTuple):
    """What a request asks. ``key`` is None when the result may not be kept."""

    question: Question
    key: tuple[Any, ...] | None


class Readings:
    """The requests read last."""

    def __init__(self, settings: Settings, asking: Asking) -> None:
        self._settings, self._asking = settings, asking
        self._found: OrderedDict[tuple[Any, ...], Reading] = OrderedDict()

    def read(self, method: str, query_string: bytes, headers: Mapping[bytes, bytes], body: bytes) -> Reading:
        """Read a request; raises ``QueryRejected``, ``UnsupportedSyntax`` and ``NotAcceptable``."""
        accept, kind = headers.get(b"accept"), headers.get(b"content-type")
        sent = (method == "POST", query_string, accept, kind, body)
        found = self._found.get(sent)
        if found is not None:
            self._found.move_to_end(sent)
            return found
        reading = self._read("POST" if method == "POST" else "GET", query_string, accept, kind, body)
        if len(body) + len(query_string) <= _LONGEST:
            self._found[sent] = reading
            if len(self._found) > _READINGS:
                self._found.popitem(last=False)
        return reading

    def _read(self, method: str, query_string: bytes, accept: bytes | None, kind: bytes | None, body: bytes) -> Reading:
        settings = self._settings
        sent = protocol.read_query(method, query_string, None if kind is None else kind.decode("latin-1"), body)
        gated = gate.check(sent.query, max_bytes=settings.query_bytes)
        media_type = _type_of(
            None if accept is None else accept.decode("latin-1"), sent.format, protocol.offered(gated.form)
        )
        visible: Visible | None = None
        question = self._asking.question(
            gated.text, media_type=media_type, dataset=sent.dataset, base=settings.base, timeout=sent.seconds
        )
        if gated.volatile:
            return Reading(question, None)
        dataset = sent.dataset
        return Reading(question, (visible, gated.text, dataset.default_graphs, dataset.named_graphs, media_type))
