"""LogQL stream selectors: https://grafana.com/docs/loki/latest/query/log_queries/#log-stream-selector."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from drumlin.kg.errors import InvalidSettings
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of, quote

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def selector(namespace: str | Sequence[str], pods: str, datasource: Datasource, matchers: tuple[Matcher, ...]) -> str:
    """Select the log streams of the pods that the regular expression ``pods`` (RE2) matches, in this server's label names.

    ``namespace``: one, or several. ``matchers`` pick the cluster's streams among the server's.
    """
    several = (namespace,) if isinstance(namespace, str) else tuple(namespace)
    place = ("=", several[0]) if len(several) == 1 else ("=~", any_of(several))
    own = Matcher(_label("namespace", datasource), *place), Matcher(_label("pod", datasource), "=~", pods)
    return f"{{{','.join(map(str, (*matchers, *own)))}}}"


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
