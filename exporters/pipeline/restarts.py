"""Restarts: the lives of the containers of a pod's run that ended and were followed by another, the newest of each container.

Pure. The kubelet reports the last one only; earlier ones are remembered. Containers that never restarted have none: the run says it all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drumlin.exporters.protocol import ContainerEnd, without_nulls
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument

MOST = 5
"""Restarts of one container of a run; of more, the newest are kept."""


@dataclass(frozen=True, slots=True)
class ContainerRun:
    """A life of a container, the ``number``-th, from 0; times are UTC in RFC 3339 to the second."""

    container: str
    number: int
    start: str | None
    end: str
    reason: str | None = None
    exit_code: int | None = None

    def document(self, run: str) -> NodeDocument:
        """Describe it as a part of its run (an IRI)."""
        return without_nulls(
            {
                "id": Iris.container_run(run, self.container, self.number),
                "type": "ContainerRun",
                "containerName": self.container,
                "startedAt": self.start,
                "endedAt": self.end,
                "reason": self.reason,
                "exitCode": self.exit_code,
            }
        )


def remembered(prior: tuple[ContainerRun, ...], ends: Iterable[ContainerEnd]) -> tuple[ContainerRun, ...]:
    """Return the restarts that are known after a manifest reports ``ends``, sorted; of each container ``MOST`` at most."""
    found = {(each.container, each.number): each for each in prior}
    for end in ends:
        start = min(end.start, end.end) if end.start else None
        found[end.container, end.number] = ContainerRun(
            end.container, end.number, start, end.end, end.reason, end.exit_code
        )
    by_container: dict[str, list[ContainerRun]] = defaultdict(list)
    for _, each in sorted(found.items()):
        by_container[each.container].append(each)
    return tuple(each for runs in by_container.values() for each in runs[-MOST:])


def container_run_of(row: Mapping[str, str], number: str) -> ContainerRun:
    """Return what a look-up found of one (``exporters.pipeline.restore``)."""
    code = row.get("code")
    return ContainerRun(
        row["container"], int(number), row.get("start"), row["end"], row.get("reason"), int(code) if code else None
    )
