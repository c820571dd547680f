"""LogQL stream selectors: https://grafana.com/docs/loki/latest/query/log_queries/#log-stream-selector."""

from __future__ import annotations

import re

from kg.errors import InvalidSettings
from kg.telemetry.datasources import Datasource
from kg.telemetry.quoting import quote

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def selector(namespace: str, pods: str, datasource: Datasource) -> str:
    """Select the log streams of the pods that the regular expression ``pods`` (RE2) matches, in this server's label names."""
    return f"{{{_label('namespace', datasource)}={quote(namespace)},{_label('pod', datasource)}=~{quote(pods)}}}"


def _label(name: str, datasource: Datasource) -> str:
    label = datasource.labels.get(name, name)
    if not _LABEL.fullmatch(label):
        raise InvalidSettings(f"datasource {datasource.name}: {label!r} is not a label name")
    return label
