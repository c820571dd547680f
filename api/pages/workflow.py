"""The plan of a workflow as a picture and a table: what waits for what, who takes part, how far it is, and why it failed.

The plan is in the workflow's graph, how its tasks are doing in theirs; the saved queries ``job-dag`` and ``why-failed`` find the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from drumlin.api.bootstrap import Services, now
from drumlin.api.pages import results
from drumlin.api.pages.lanes import LanesDrawing, LaneWork, lanes_of
from drumlin.api.pages.layers import NODE_HEIGHT, NODE_WIDTH, LayeredDrawing, layered
from drumlin.api.pages.values import ShownValue, shown_binding, shown_iri, term_of
from drumlin.api.pages.wording import moment, name_of, span
from drumlin.kg.rdf import syntax
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import Lines
from drumlin.queries.catalogue import QueryCatalogue

MAX_STEPS = 200
"""Steps of one plan that are shown."""
_LETTERS = 20
_MAX_FAILURES = 50
_MARKS = {"good": "●", "bad": "▲", "waiting": "◆", "running": "▶", "": "○"}
"""What a state looks like beside its colour."""
_STATES = {"Succeeded": "good", "Failed": "bad", "Running": "running", "": ""}

_Said = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class PartyState:
    """What a domain does in a step: its role, how far it is, and why it failed."""

    what: ShownValue
    role: str
    phase: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of a plan, and the task that carries it out, once it has begun."""

    key: str
    name: str
    what: ShownValue
    own: bool
    phase: str
    state: str
    waits_for: tuple[str, ...]
    parties: tuple[PartyState, ...]
    started: str
    lasted: str
    begun: datetime | None
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step in the picture: its box, two lines of text, and where it leads."""

    x: int
    y: int
    text: str
    under: str
    title: str
    href: str
    state: str
    own: bool


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Who failed in a task, and why."""

    task: ShownValue
    party: ShownValue
    role: str
    reason: str
    pod: ShownValue
    exit_code: str
    end: str


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """A plan as it is shown; ``job`` is the workflow, by short id; ``more_steps`` are those beyond the table."""

    job: str
    steps: tuple[StepRow, ...]
    drawn: tuple[DrawnStep, ...]
    plan: LayeredDrawing
    lanes: LanesDrawing | None
    begin: str
    end: str
    failures: tuple[FailureRow, ...]
    more_steps: int
    counts: tuple[tuple[str, str, int], ...]
    box: tuple[int, int] = (NODE_WIDTH, NODE_HEIGHT)


def plan_of(service: Services, catalogue: QueryCatalogue, iri: str, lines: Lines, kind: str) -> WorkflowView | None:
    """Return the plan of a workflow, or that in which a task has its place; None when there is none."""
    job, told = iri, _told(lines)
    if kind == "Task":
        managers = told.get(iri, {}).get("managedBy", ())
        stored = service.store.read(managers[0]) if managers else None
        if stored is None:
            return None
        job, told = stored.entry.graph, _told(stored.lines)
    keys = sorted(
        each
        for each in told.get(job, {}).get("hasPart", ())
        if f"{NAMESPACE}Step" in told.get(each, {}).get("type", ())
    )
    if not keys:
        return None
    steps = tuple(_step(service, each, told.get(each, {}), iri) for each in keys[:MAX_STEPS])
    plan = layered([each.key for each in steps], _edges(steps, told))
    by_key = {each.key: each for each in steps}
    order = {each.key: each.layer for each in plan.nodes}
    lanes = lanes_of(list(_work(steps)), now())
    return WorkflowView(
        job=service.iris.short(job),
        steps=tuple(sorted(steps, key=lambda each: (order.get(each.key, len(order)), each.name))),
        drawn=tuple(_drawn(by_key[each.key], each.x, each.y) for each in plan.nodes),
        plan=plan,
        lanes=lanes,
        begin=moment(lanes.begin) if lanes else "",
        end=moment(lanes.end) if lanes else "",
        failures=tuple(_failures(service, catalogue, iri)) if any(each.state == "bad" for each in steps) else (),
        more_steps=max(0, len(keys) - MAX_STEPS),
        counts=_counts(steps),
    )


def _told(lines: Lines) -> dict[str, dict[str, list[str]]]:
    """Return what a graph says: values by subject and by the local name of the property."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in sorted(lines):
        subject, predicate, value = syntax.terms(line)
        found.setdefault(subject.value, {}).setdefault(term_of(predicate.value), []).append(value.value)
    return found


def _edges(steps: Sequence[StepRow], told: Mapping[str, _Said]) -> Iterator[tuple[str, str]]:
    for each in steps:
        yield from ((before, each.key) for before in told.get(each.key, {}).get("dependsOn", ()))


def _step(service: Services, key: str, said: _Said, own: str) -> StepRow:
    task = _first(said, "task")
    stored = service.store.read(task) if task else None
    of_task = _told(stored.lines) if stored else {}
    phase = _word(_first(of_task.get(task, {}), "phase") or _first(said, "phase"))
    started, ended = _run(of_task)
    name = _first(said, "name") or name_of(key)
    return StepRow(
        key=key,
        name=name,
        what=shown_iri(task, service.iris) if stored else ShownValue(""),
        own=task == own,
        phase=phase,
        state=_state(phase),
        waits_for=tuple(name_of(each) for each in said.get("dependsOn", ()) if "/step/" in each),
        parties=tuple(_parties(service, said, of_task)),
        started=moment(started) if started else "",
        lasted=span(((ended or now()) - started).total_seconds()) if started else "",
        begun=started,
        ended=ended,
    )


def _parties(service: Services, said: _Said, of_task: Mapping[str, _Said]) -> Iterator[PartyState]:
    """Yield the parties of a task, or those that the plan names where there is no task yet."""
    found = [each for each in of_task.values() if f"{NAMESPACE}Party" in each.get("type", ())]
    for each in found:
        phase = _word(_first(each, "phase"))
        role, reason = ", ".join(each.get("partyRole", ())), _first(each, "reason")
        yield PartyState(shown_iri(_first(each, "domain"), service.iris), role, phase, _state(phase), reason)
    if not found:
        for domain in said.get("party", ()):
            yield PartyState(shown_iri(domain, service.iris), "", "", "", "")


def _run(of_task: Mapping[str, _Said]) -> tuple[datetime | None, datetime | None]:
    """Return when the newest run of a task began and ended."""
    runs = [each for each in of_task.values() if f"{NAMESPACE}Run" in each.get("type", ())]
    times = [(_time(_first(each, "startedAtTime")), _time(_first(each, "endedAtTime"))) for each in runs]
    begun = [(started, ended) for started, ended in times if started is not None]
    return max(begun, key=lambda each: each[0]) if begun else (None, None)


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _first(said: _Said, term: str) -> str:
    return next(iter(said.get(term, ())), "")


def _word(iri: str) -> str:
    return iri.rpartition("#")[2]


def _state(phase: str) -> str:
    return _STATES.get(phase, "waiting")


def _drawn(step: StepRow, x: int, y: int) -> DrawnStep:
    under = " ".join(each for each in (_MARKS[step.state], step.phase, step.lasted) if each)
    return DrawnStep(
        x, y, _short(step.name), under, f"{step.name} {step.phase}".strip(), step.what.href, step.state, step.own
    )


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS // 2]}…{text[-_LETTERS // 2 + 1 :]}"


def _work(steps: Sequence[StepRow]) -> Iterator[LaneWork]:
    """Yield what each party did in each step that has begun; a step without parties has a lane with the others without."""
    for step in steps:
        if step.begun is None:
            continue
        for party in step.parties or (PartyState(ShownValue("–"), "", step.phase, step.state, ""),):
            phase, state = party.phase or step.phase, party.state or step.state
            words = (step.name, party.role, phase, party.reason, step.lasted)
            said = ", ".join(each for each in words if each)
            yield LaneWork(party.what.text, _short(step.name), step.begun, step.ended, state, said)


def _counts(steps: Sequence[StepRow]) -> tuple[tuple[str, str, int], ...]:
    """Count the steps by phase: phase, state, number; those that have not begun have no phase."""
    found: dict[str, int] = {}
    for each in steps:
        found[each.phase] = found.get(each.phase, 0) + 1
    return tuple((phase, _state(phase), number) for phase, number in sorted(found.items()))


def _failures(service: Services, catalogue: QueryCatalogue, iri: str) -> Iterator[FailureRow]:
    rows, _ = results.saved(service, catalogue, "why-failed", {"work": iri}, _MAX_FAILURES)
    for row in rows:
        shown = {name: shown_binding(row.get(name), service.iris) for name in ("task", "party", "pod", "end")}
        said = {name: row.get(name, {}).get("value", "") for name in ("role", "reason", "exitCode")}
        yield FailureRow(
            shown["task"],
            shown["party"],
            said["role"],
            said["reason"],
            shown["pod"],
            said["exitCode"],
            shown["end"].text,
        )
