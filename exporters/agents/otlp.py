"""Entity events of OpenTelemetry, as OTLP logs bring them: JSON or protobuf → what an agent registers.

Two shapes are read: the specification's (``eventName`` entity.state or entity.delete, with ``entity.*`` attributes), and that of the
Collector (``otel.entity.event.type``, with ``otel.entity.*``). https://opentelemetry.io/docs/specs/otel/entities/entity-events/.
Other log records are no entity events; they are counted and left where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from drumlin.exporters.agents import protobuf
from drumlin.exporters.agents.protobuf import WireReader
from drumlin.exporters.agents.registration import (
    DEFAULT_INTERVAL,
    MAX_ENTITIES,
    AgentRegistration,
    EntityRegistration,
    EntityType,
)
from drumlin.kg.errors import InvalidDocument

MAX_DEPTH = 8
"""Nesting of the values of attributes."""
_CLASSES: Mapping[str, EntityType] = {
    "host": "Host",
    "container": "ContainerInstance",
    "vm": "VirtualMachine",
}
"""Entity type → class; what Kubernetes reports itself (k8s.*) is its exporter's, and services and processes have no class here."""
_NAMES: Mapping[EntityType, tuple[str, str]] = {
    "Host": ("host.name", "host.id"),
    "ContainerInstance": ("container.name", "container.id"),
    "VirtualMachine": ("host.name", "host.id"),
}
_ABOVE = frozenset(
    {"scheduled_on", "runs_on", "part_of", "hosted_on"}
)  # relations that lead to what an entity is part of
_SHORT_ID = 12  # characters of a container's id that Docker shows


class EntityEvent(NamedTuple):
    """One event. ``interval`` is in seconds, 0 when none is reported; ``above`` are type and id of what the entity is part of."""

    kind: Literal["state", "delete"]
    type: str
    id: Mapping[str, str]
    attributes: Mapping[str, str]
    interval: float
    above: tuple[str, Mapping[str, str]] | None


@dataclass(slots=True)
class CollectorReport:
    """What one resource of a request reports. ``guid`` is its ``service.instance.id``; ``others`` counts what is no entity event."""

    guid: str | None
    name: str
    version: str | None
    events: list[EntityEvent] = field(default_factory=list)
    others: int = 0


# -- the two encodings ----------------------------------------------------------------------------------------------------
class _Value(msgspec.Struct, frozen=True):
    stringValue: str | None = None
    boolValue: bool | None = None
    intValue: str | int | None = None
    doubleValue: float | str | None = None
    arrayValue: _Array | None = None
    kvlistValue: _KeyValues | None = None


class _Array(msgspec.Struct, frozen=True):
    values: list[_Value] = []


class _KeyValue(msgspec.Struct, frozen=True):
    key: str = ""
    value: _Value = _Value()


class _KeyValues(msgspec.Struct, frozen=True):
    values: list[_KeyValue] = []


class _LogRecord(msgspec.Struct, frozen=True):
    eventName: str = ""
    attributes: list[_KeyValue] = []


class _Scope(msgspec.Struct, frozen=True):
    attributes: list[_KeyValue] = []


class _ScopeLogs(msgspec.Struct, frozen=True):
    scope: _Scope = _Scope()
    logRecords: list[_LogRecord] = []


class _Resource(msgspec.Struct, frozen=True):
    attributes: list[_KeyValue] = []


class _ResourceLogs(msgspec.Struct, frozen=True):
    resource: _Resource = _Resource()
    scopeLogs: list[_ScopeLogs] = []


class _Logs(msgspec.Struct, frozen=True):
    resourceLogs: list[_ResourceLogs] = []


_Record = tuple[str, dict[str, Any]]  # event name and attributes
_Resources = Iterator[tuple[dict[str, Any], Iterator[_Record]]]


def from_json(body: bytes) -> list[CollectorReport]:
    """Read a request in JSON; raises ``InvalidDocument``."""
    try:
        logs = msgspec.json.decode(body, type=_Logs)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidDocument(f"the request is not OTLP logs in JSON: {error}") from error

    def resources() -> _Resources:
        for each in logs.resourceLogs:
            records = (
                (record.eventName, _plain_all(record.attributes))
                for part in each.scopeLogs
                for record in part.logRecords
            )
            yield _plain_all(each.resource.attributes), records

    return _reports(resources())


def _plain_all(values: Iterable[_KeyValue], depth: int = 0) -> dict[str, Any]:
    return {each.key: _plain(each.value, depth) for each in values}


def _plain(value: _Value, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidDocument(f"an attribute is nested more than {MAX_DEPTH} deep")
    if value.kvlistValue is not None:
        return _plain_all(value.kvlistValue.values, depth + 1)
    if value.arrayValue is not None:
        return [_plain(each, depth + 1) for each in value.arrayValue.values]
    if value.intValue is not None:  # a number of 64 bits is a text in JSON
        return _whole(value.intValue)
    for found in (value.stringValue, value.boolValue, value.doubleValue):
        if found is not None:
            return found
    return None


def _whole(value: str | int) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise InvalidDocument(f"{value[:40] if isinstance(value, str) else value!r} is no whole number") from error


def from_protobuf(body: bytes) -> list[CollectorReport]:
    """Read a request in protobuf (``opentelemetry.proto.collector.logs.v1``); raises ``InvalidDocument``."""
    read = WireReader()

    def resources() -> _Resources:
        for each in _messages(read, body, 1):
            resource: dict[str, Any] = {}
            for number, value in read.fields(each):
                if number == 1 and isinstance(value, bytes):
                    resource |= _key_values(read, value, 1)
            yield (
                resource,
                (_record(read, record) for part in _messages(read, each, 2) for record in _messages(read, part, 2)),
            )

    return _reports(resources())


def _messages(read: WireReader, data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in read.fields(data) if number == wanted and isinstance(value, bytes))


def _record(read: WireReader, data: bytes) -> _Record:
    name, attributes = "", dict[str, Any]()
    for number, value in read.fields(data):
        if number == 12:
            name = protobuf.text(value)
        elif number == 6 and isinstance(value, bytes):
            attributes |= _key_value(read, value, 0)
    return name, attributes


def _key_values(read: WireReader, data: bytes, wanted: int, depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in _messages(read, data, wanted):
        found |= _key_value(read, each, depth)
    return found


def _key_value(read: WireReader, data: bytes, depth: int) -> dict[str, Any]:
    key, found = "", None
    for number, value in read.fields(data):
        if number == 1:
            key = protobuf.text(value)
        elif number == 2 and isinstance(value, bytes):
            found = _any_value(read, value, depth)
    return {key: found}


def _any_value(read: WireReader, data: bytes, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InvalidDocument(f"an attribute is nested more than {MAX_DEPTH} deep")
    found: Any = None
    for number, value in read.fields(data):
        if number == 1:
            found = protobuf.text(value)
        elif number == 2:
            found = bool(value)
        elif number == 3 and isinstance(value, int):
            found = protobuf.signed(value)
        elif number == 4 and isinstance(value, bytes) and len(value) == 8:
            found = protobuf.double(value)
        elif number == 5 and isinstance(value, bytes):
            found = [_any_value(read, each, depth + 1) for each in _messages(read, value, 1)]
        elif number == 6 and isinstance(value, bytes):
            found = _key_values(read, value, 1, depth + 1)
    return found


# -- records → events -----------------------------------------------------------------------------------------------------
def _reports(resources: _Resources) -> list[CollectorReport]:
    found: list[CollectorReport] = []
    for resource, records in resources:
        guid, version = resource.get("service.instance.id"), resource.get("service.version")
        name = resource.get("service.name") or resource.get("host.name") or "opentelemetry-collector"
        report = CollectorReport(str(guid) if guid else None, str(name), str(version) if version else None)
        for event_name, attributes in records:
            event = _event(event_name, attributes)
            if event is None:
                report.others += 1
            else:
                report.events.append(event)
        found.append(report)
    return found


def _event(name: str, said: Mapping[str, Any]) -> EntityEvent | None:
    """Return the entity event that a record is; None for any other record."""
    if name in ("entity.state", "entity.delete"):
        kind: Literal["state", "delete"] = "state" if name == "entity.state" else "delete"
        seconds = _number(said.get("entity.report.interval"))
        described = _texts(said.get("entity.description"))
        relations = said.get("entity.relationships")
        return _checked(kind, said.get("entity.type"), said.get("entity.id"), described, seconds, relations)
    old = said.get("otel.entity.event.type")
    if old in ("entity_state", "entity_delete"):
        kind = "state" if old == "entity_state" else "delete"
        seconds = _number(said.get("otel.entity.interval")) / 1000
        described = _texts(said.get("otel.entity.attributes"))
        return _checked(kind, said.get("otel.entity.type"), said.get("otel.entity.id"), described, seconds, None)
    return None


def _checked(
    kind: Literal["state", "delete"], type: Any, id: Any, described: Mapping[str, str], seconds: float, relations: Any
) -> EntityEvent | None:
    ids = _texts(id)
    if not isinstance(type, str) or not type or not ids:
        return None
    return EntityEvent(kind, type, ids, described, seconds, _related(relations))


def _related(relations: Any) -> tuple[str, Mapping[str, str]] | None:
    for each in relations if isinstance(relations, list) else ():
        if isinstance(each, dict) and each.get("relationship.type") in _ABOVE and each.get("entity.type") in _CLASSES:
            id = _texts(each.get("entity.id"))
            return (str(each["entity.type"]), id) if id else None
    return None


def _texts(value: Any) -> dict[str, str]:
    """Return the texts of a map; nothing else of it is looked at."""
    if not isinstance(value, dict):
        return {}
    return {key: each for key, each in value.items() if isinstance(each, str) and each}


def _number(value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if 0 < found < 1e9 else 0.0


# -- events → a registration ----------------------------------------------------------------------------------------------
class CollectorRegistration(NamedTuple):
    """What the events of one agent amount to.

    ``marks`` are the labels of entities by key, ``above`` the mark of what each is part of by key, ``ended`` the marks of what is gone;
    ``left_out`` counts entities by types that are not registered.
    """

    registration: AgentRegistration
    marks: Mapping[str, tuple[str, ...]]
    above: Mapping[str, str]
    ended: tuple[str, ...]
    left_out: Mapping[str, int]


def observed(report: CollectorReport) -> CollectorRegistration:
    """Turn the events of a report into what is registered; the last event of an entity counts. Raises ``InvalidDocument``."""
    entities: dict[str, EntityRegistration] = {}
    marks: dict[str, tuple[str, ...]] = {}
    above: dict[str, str] = {}
    ended: dict[str, None] = {}
    left_out: dict[str, int] = {}
    for event in report.events:
        kind = _CLASSES.get(event.type)
        if kind is None:
            left_out[event.type[:64]] = left_out.get(event.type[:64], 0) + 1
            continue
        key = _key(event.type, event.id)
        mark = _mark(event.id)
        if event.kind == "delete":
            ended[mark] = None
            entities.pop(key, None)
            continue
        ended.pop(mark, None)
        entities[key] = _entity(key, kind, event)
        marks[key] = (mark,)
        if event.above is not None:
            above[key] = _mark(event.above[1])
    if len(entities) > MAX_ENTITIES:
        raise InvalidDocument(
            f"the request has {len(entities):,} entities of one agent; the limit is {MAX_ENTITIES:,}",
            hint="set send_batch_max_size of the Collector's batch processor",
        )
    interval = round(max((event.interval for event in report.events), default=0)) or DEFAULT_INTERVAL
    try:
        said = AgentRegistration(
            name=report.name[:253],
            version=report.version,
            interval=min(interval, 86_400),
            entities=list(entities.values()),
        )
        msgspec.convert(msgspec.to_builtins(said), AgentRegistration)  # what it holds is as bounded as any registration
    except msgspec.ValidationError as error:
        raise InvalidDocument(f"an entity cannot be registered: {error}") from error
    return CollectorRegistration(said, marks, above, tuple(ended), left_out)


def _key(type: str, id: Mapping[str, str]) -> str:
    return f"{type}:{_mark(id)}"[:253]


def _mark(id: Mapping[str, str]) -> str:
    """Return the label by which an entity is found again: its id as the agent gives it, the first part by name."""
    name, value = min(id.items())
    return f"{name.replace('=', '_').replace(' ', '_')}={value[:512]}"


def _entity(key: str, kind: EntityType, event: EntityEvent) -> EntityRegistration:
    said = {**event.attributes, **event.id}
    named, identified = _NAMES[kind]
    name = said.get(named) or said.get(identified) or min(event.id.items())[1]
    if kind == "ContainerInstance" and named not in said:
        name = name[:_SHORT_ID]
    return EntityRegistration(
        key=key,
        type=kind,
        name=name.strip()[:253],
        platform="docker"
        if kind == "ContainerInstance" and said.get("container.runtime", "docker") == "docker"
        else None,
        image=said.get("container.image.name"),
        architecture=said.get("host.arch"),
    )
