"""``drumlin audit``: a store directory or a running service against the rules, as a table, JSON or SHACL's own report."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from drumlin.api.bootstrap import open_store
from drumlin.api.cli.logs import configure_logging
from drumlin.api.cli.options import connect
from drumlin.api.cli.output import Output, emit, emit_table, emit_value, progress, rebuilding
from drumlin.kg import rdf
from drumlin.kg.client import calls
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import TURTLE
from drumlin.kg.validation.audit import AuditReport, audit, shacl_report

if TYPE_CHECKING:
    from rich.progress import Progress

BROKEN = 3
"""Exit code when a rule is broken."""


class Form(StrEnum):
    """How the report is written."""

    table = "table"
    json = "json"
    yaml = "yaml"
    shacl = "shacl"


def directory(settings: Settings, path: Path, form: Form) -> int:
    """Audit the store in ``path``, which no service may have open, and return the exit code."""
    configure_logging(logging.ERROR)
    with rebuilding() as shown:
        store = open_store(settings, path, shown)
    try:
        report = _audited(store, Iris(settings.base))
    finally:
        store.close()
    if form is Form.shacl:
        emit(rdf.serialize(shacl_report(report), TURTLE))
    else:
        _tell({"conforms": report.conforms, **msgspec.to_builtins(report)}, form)
    return 0 if report.conforms else BROKEN


def _audited(store: Any, iris: Iris) -> AuditReport:
    with _bar() as bar:
        task = bar.add_task("", total=len(store.entries()))
        return audit(store.export(), iris, lambda done: bar.update(task, completed=done))


def _bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TextColumn("graphs"), TimeRemainingColumn())
    return Progress(*columns, console=progress, transient=True)


def service(url: str | None, form: Form) -> int:
    """Have the service at ``url`` audit its store and return the exit code."""
    with connect(url) as client:
        if form is Form.shacl:
            content = client.run(calls.audit(TURTLE.media_type))
            emit(content)
            return BROKEN if b"ValidationResult" in content else 0
        report = _followed(client.stream(calls.audit("application/x-ndjson")))
    _tell(report, form)
    return 0 if report["conforms"] else BROKEN


def _followed(chunks: Iterable[bytes]) -> dict[str, Any]:
    """Show how far the service is, and return the report, which is the last line; raises ``StoreUnavailable`` without one."""
    with _bar() as bar:
        task = bar.add_task("", total=None)
        for text in _lines_of(chunks):
            line: dict[str, Any] = msgspec.json.decode(text)
            if "conforms" in line:
                return line
            bar.update(task, completed=line["done"], total=line["total"])
    raise StoreUnavailable("the service ended the audit before it was whole", hint="its log says why; ask again")


def _lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def _tell(report: Mapping[str, Any], form: Form) -> None:
    if form is not Form.table:
        emit_value(report, Output(form))
        return
    rows = [(each["rule"], each["focus"], each["message"]) for each in report["violations"]]
    rows += [
        ("(dangling link)", each["target"], f"{each['count']:,} links, one from {each['focus']}")
        for each in report["dangling"]
    ]
    if rows:
        emit_table(("rule", "thing", "what"), rows)
    broken = sum(report["rules"].values())
    words = "every rule is kept" if report["conforms"] else f"{broken:,} violations of {len(report['rules'])} rules"
    progress.print(f"{report['graphs']:,} graphs, {report['statements']:,} statements: {words}", highlight=False)
