"""Text → the words that it is found by, for an index and for what people type into a search box.

Words are folded: compatibility forms, case and accents do not matter (Unicode NFKD, case folding, no marks). Scripts that are
written without spaces (Han, Kana, Hangul) are cut into overlapping pairs of characters, so that any part of two characters or more
is found, and each single one as a beginning: a tokenizer for words would take a whole sentence for one, one for triples would
find no word of two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

MAX_WORD = 64
"""Characters of a word that count."""

_UNSPACED = r"\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"([{_UNSPACED}]+)|([^\W_{_UNSPACED}]+)")


class SearchTerm(NamedTuple):
    """One word that is looked for: as a whole, or as the beginning of one."""

    word: str
    beginning: bool


def fold(text: str) -> str:
    """Return ``text`` without differences of case, accent or compatibility form."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(each for each in decomposed if not unicodedata.combining(each))
    return unicodedata.normalize("NFC", plain)


def words(text: str) -> Iterator[str]:
    """Yield the words that a text is found by."""
    for match in _RUN.finditer(fold(text)):
        run = match[1]
        if run is None:
            yield match[2][:MAX_WORD]
            continue
        yield from (first + second for first, second in pairwise(run))
        yield run[-1]


def sought(text: str) -> list[SearchTerm]:
    """Return what must all be found: the last part of each word that was typed may be a beginning (``orders-d``)."""
    found: list[SearchTerm] = []
    for typed in text.split():
        runs = list(_RUN.finditer(fold(typed)))
        for place, match in enumerate(runs):
            run = match[1]
            if run is None:
                found.append(SearchTerm(match[2][:MAX_WORD], place == len(runs) - 1))
            elif len(run) == 1:
                found.append(SearchTerm(run, beginning=True))
            else:
                found += [SearchTerm(first + second, beginning=False) for first, second in pairwise(run)]
    return list(dict.fromkeys(found))
