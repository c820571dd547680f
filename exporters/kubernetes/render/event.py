"""Event → what befell the run of another object. Only warnings, and of them reason, count, last time and container; notes are never parsed.

Optional. Not an entity: each cluster makes thousands of them, and keeps them for an hour. Source: Event v1 events.k8s.io.
"""

from __future__ import annotations

import re

import msgspec

from drumlin.exporters.kubernetes.manifests import Projection
from drumlin.exporters.kubernetes.render.place import group
from drumlin.exporters.protocol import RunReport, Trouble

WARNINGS = "type=Warning"
"""Field selector of the events that are taken."""
_REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_CONTAINER = re.compile(r"spec\.(?:initC|c)ontainers\{([^{}]+)\}")


class Regarding(msgspec.Struct, frozen=True, gc=False):
    """The object that the event is about."""

    kind: str = ""
    apiVersion: str = ""
    namespace: str | None = None
    name: str = ""
    uid: str = ""
    fieldPath: str = ""


class EventSeries(msgspec.Struct, frozen=True, gc=False):
    """How often it happened."""

    count: int = 1
    lastObservedTime: str | None = None


class EventObject(Projection, frozen=True, kw_only=True):
    """What is taken from an Event."""

    type: str = ""
    reason: str = ""
    regarding: Regarding = Regarding()
    series: EventSeries | None = None
    eventTime: str | None = None
    deprecatedLastTimestamp: str | None = None
    deprecatedCount: int | None = None


def event_report(event: EventObject) -> RunReport | None:
    """Report a warning as a trouble of the run that it is about; None for any other event, and for what is no reason of Kubernetes."""
    about, series = event.regarding, event.series or EventSeries(event.deprecatedCount or 1)
    last = (
        series.lastObservedTime or event.deprecatedLastTimestamp or event.eventTime or event.metadata.creationTimestamp
    )
    if event.type != "Warning" or not last or not about.name or not _REASON.fullmatch(event.reason):
        return None
    container = _CONTAINER.fullmatch(about.fieldPath)
    trouble = Trouble(event.reason, container[1] if container else None, last, count=max(1, series.count))
    return RunReport(about.kind, group(about.apiVersion), about.namespace or None, about.name, about.uid, trouble)
