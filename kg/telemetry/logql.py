"""LogQL stream selectors: https://grafana.com/docs/loki/latest/query/log_queries/#log-stream-selector."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from kg.errors import InvalidSettings
from kg.telemetry.datasources import Datasource
from kg.telemetry.quoting import quote

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def selector(namespace: str, pods: str, datasource: Datasource) -> str:
    """Select the log streams of the pods that the regular expression ``pods`` (RE2) matches, in this server's label names."""
    return f"{{{_label('namespace', datasource)}={quote(namespace)},{_label('pod', datasource)}=~{quote(pods)}}}"


def containing(query: str, text: str | None) -> str:
    """Keep the lines that have a text."""
    return f"{query} |= {quote(text)}" if text else query


def nanoseconds(at: datetime) -> str:
    """Return the time as Loki takes it, exactly: nanoseconds since the epoch."""
    return f"{(at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}000"


def _label(name: str, datasource: Datasource) -> str:
    label = datasource.labels.get(name, name)
    if not _LABEL.fullmatch(label):
        raise InvalidSettings(f"datasource {datasource.name}: {label!r} is not a label name")
    return label
