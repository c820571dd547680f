"""Solutions of a SELECT as a client wants them: a list of plain dictionaries, with a way into data frames.

SPARQL 1.1 Query Results JSON: https://www.w3.org/TR/sparql11-results-json/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drumlin.kg.client import notebook

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_XSD = "http://www.w3.org/2001/XMLSchema#"


def _boolean(text: str) -> bool:
    return text in ("true", "1")


_READERS: Mapping[str, Callable[[str], Any]] = {
    _XSD + "integer": int,
    _XSD + "decimal": float,
    _XSD + "double": float,
    _XSD + "float": float,
    _XSD + "boolean": _boolean,
    _XSD + "dateTime": datetime.fromisoformat,
}


class Rows(list[dict[str, Any]]):
    """Solutions in order; ``columns`` are the variables. Numbers, booleans and times are Python's; an unbound variable is None.

    A triple term is a tuple of its three values.

    ``warnings`` say why there are none, where that was asked for.
    """

    def __init__(
        self, columns: Iterable[str], rows: Iterable[dict[str, Any]] = (), warnings: Iterable[str] = ()
    ) -> None:
        super().__init__(rows)
        self.columns = tuple(columns)
        self.warnings: Sequence[str] = tuple(warnings)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Rows:
        """Read a result document."""
        columns = body["head"].get("vars", [])
        bindings = body["results"]["bindings"]
        return cls(
            columns,
            ({name: _value(row[name]) if name in row else None for name in columns} for row in bindings),
            (each["detail"] for each in body.get("warnings", ())),
        )

    def _repr_html_(self) -> str:
        return notebook.table(self.columns, ([row[name] for name in self.columns] for row in self), len(self))

    def to_arrow(self) -> pyarrow.Table:
        """Return the solutions as an Arrow table."""
        import pyarrow

        return pyarrow.table({name: [row[name] for row in self] for name in self.columns})

    def to_pandas(self) -> pandas.DataFrame:
        """Return the solutions as a pandas frame (extra ``pandas``)."""
        import pandas

        return pandas.DataFrame(list(self), columns=list(self.columns))

    def to_polars(self) -> polars.DataFrame:
        """Return the solutions as a polars frame (extra ``polars``)."""
        import polars

        return polars.DataFrame({name: [row[name] for row in self] for name in self.columns})


def _value(term: Mapping[str, Any]) -> Any:
    if term["type"] == "triple":
        return tuple(_value(term["value"][place]) for place in ("subject", "predicate", "object"))
    reader = _READERS.get(term.get("datatype", ""))
    if reader is None:
        return term["value"]
    try:
        return reader(term["value"])
    except ValueError:
        return term["value"]  # ill-typed or outside Python's range: the text is the truth
