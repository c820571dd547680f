"""How a notebook shows what a client returns (``_repr_html_``): entities, tables and forecasts in the look of the pages.

All text is escaped, whoever wrote it; only http addresses become links. Nothing is fetched, and there is no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import islice
from typing import Any

MAX_ROWS = 20
"""Rows of a table that are shown."""
_MAX_TEXT = 300
_MAX_VALUES = 12  # of one property
_BAD = frozenset({"Failed", "NotReady", "Lost", "Unknown"})
_WAITING = frozenset({"Pending", "Suspended", "Terminating"})
_APART = frozenset({"@context", "id", "type", "name", "phase", "telemetry", "runs"})

STYLE = """<style>.drumlin{color-scheme:light dark;background:light-dark(#ffffff,#14181d);color:light-dark(#1a2129,#e4e9ee);
padding:.5rem 1rem;font:14px/1.5 system-ui,sans-serif;overflow-x:auto}.drumlin table{border-collapse:collapse;margin:.3rem 0}
.drumlin :is(th,td){text-align:left;padding:.2rem .9rem .2rem 0;border-bottom:1px solid light-dark(#cdd5dd,#38424d);
vertical-align:top;background:none}.drumlin :is(th,small){color:light-dark(#4f5c69,#a3b0bd);font-weight:600}
.drumlin td.n{text-align:right}.drumlin a{color:light-dark(#0b57a4,#7fbcff)}.drumlin .good{color:light-dark(#176b32,#69d58b)}
.drumlin .bad{color:light-dark(#ae1c1c,#ff9a91)}.drumlin .waiting{color:light-dark(#805300,#f1bf5c)}</style>"""
"""The colours are those of the pages (``api/pages/static/style.css``)."""


class EntityDocument(dict[str, Any]):
    """A nested JSON-LD document of an entity, as it came."""

    def _repr_html_(self) -> str:
        title = str(self.get("name") or _short(str(self.get("id", ""))))
        phase = str(self.get("phase", ""))
        pairs = [(name, value) for name, value in self.items() if name not in _APART]
        return facts(title, str(self.get("type", "")), _short(str(self.get("id", ""))), phase, pairs)


class Records(list[dict[str, Any]]):
    """Objects as they came: the forecasts of an entity, for example."""

    def _repr_html_(self) -> str:
        columns = tuple(dict.fromkeys(name for each in self for name in each))
        return table(columns, ([each.get(name) for name in columns] for each in self), len(self))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int, title: str = "") -> str:
    """Return rows as a table, the first ``MAX_ROWS`` of ``count``."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(rows, MAX_ROWS))
    more = f"<small>{count - MAX_ROWS:,} more rows</small>" if count > MAX_ROWS else ""
    named = f"<strong>{escape(title)}</strong>" if title else ""
    return _framed(f"{named}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}")


def facts(title: str, kind: str, id: str, phase: str, pairs: Iterable[tuple[str, Any]]) -> str:
    """Return what an entity is: its name, class, id and state, and its properties."""
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{_values(value)}</td></tr>' for name, value in pairs)
    head = f"<strong>{escape(title)}</strong> {_state(phase)} <small>{escape(kind)} {escape(id)}</small>"
    return _framed(f"{head}<table><tbody>{rows}</tbody></table>" if rows else head)


def _framed(content: str) -> str:
    return f'{STYLE}<div class="drumlin">{content}</div>'


def _state(phase: str) -> str:
    if not phase:
        return ""
    kind, mark = ("bad", "▲") if phase in _BAD else ("waiting", "◆") if phase in _WAITING else ("good", "●")
    return f'<span class="{kind}">{mark} {escape(phase)}</span>'


def _cell(value: Any) -> str:
    return f'<td class="n">{_text(value)}</td>' if _is_number(value) else f"<td>{_values(value)}</td>"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _values(value: Any) -> str:
    if not isinstance(value, list):
        return _text(value)
    more = f"<small>, {len(value) - _MAX_VALUES:,} more</small>" if len(value) > _MAX_VALUES else ""
    return ", ".join(map(_text, value[:_MAX_VALUES])) + more


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return _text(value.get("name") or value.get("id") or "…")
    if isinstance(value, datetime):
        return escape(f"{value:%Y-%m-%d %H:%M:%SZ}")
    text = f"{value:,.6g}" if isinstance(value, float) else str(value)
    shown = escape(_short(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"))
    if text.startswith(("http://", "https://")):
        return f'<a href="{escape(text)}" rel="noreferrer noopener">{shown}</a>'
    return shown


def _short(text: str) -> str:
    """Return an IRI of an entity as its short id, one of a term as its name, any other text as it is."""
    if not text.startswith(("http://", "https://")):
        return text
    before, _, id = text.partition("/id/")
    if id and "#" not in before:
        return id
    return text.rpartition("/ns#")[2] or text
