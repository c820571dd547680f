"""The run archive: what is kept of past runs, how it folds, and that a file that is missing or wrong is recognised."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import StoreDamaged
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.run_archive import MOST_RUNS, RUNS, RUNS_MARK, ArchivedRun, FoldedRuns, RunArchive

CRON, WEB = "https://kg.example/id/prod/batch/cronjob/tick", "https://kg.example/id/prod/shop/deployment/web"
DAY = 86_400


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[RunArchive]:
    """An archive of the store ``s``."""
    with closing(RunArchive(tmp_path, "s")) as opened:
        yield opened


def run(number: int, start: int, end: int, workload: str = WEB, job: str | None = None) -> ArchivedRun:
    """Make a run."""
    return ArchivedRun(workload, f"u{number}", f"web-{number}", job, start, end)


@pytest.mark.parametrize("newest_first", [True, False])
def test_of_a_job_of_every_minute_two_thousand_runs_are_kept(archive: RunArchive, newest_first: bool) -> None:
    """43,200 runs of thirty days, a day at a time from either end: the newest stay, the others fold to first, last and count."""
    days = range(30)
    for day in reversed(days) if newest_first else days:
        archive.add(run(n, 60 * n, 60 * n + 50, CRON, f"{CRON}/job") for n in range(1440 * day, 1440 * (day + 1)))

    kept = archive.runs([CRON], 0, 31 * DAY)[CRON]
    assert sorted(each.start for each in kept) == [60 * n for n in range(43_200 - MOST_RUNS, 43_200)]
    assert archive.folded(CRON) == FoldedRuns(0, 60 * (43_199 - MOST_RUNS) + 50, 43_200 - MOST_RUNS)
    assert archive.counts() == (MOST_RUNS, 43_200 - MOST_RUNS)
    assert archive.folded(WEB) is None


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 90), st.integers(0, 20)), max_size=12),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_runs_are_merged_by_uid_in_whatever_order_they_come(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, int, int]], size: int, draw: random.Random
) -> None:
    """Of one uid the earliest start and the latest end hold, however often and in which parts it was told."""
    runs = [run(number, start, start + length) for number, start, length in told]
    draw.shuffle(runs)
    folder = tmp_path_factory.mktemp("archive")
    with closing(RunArchive(folder, "s")) as archive:
        for at in range(0, len(runs), size):
            archive.add(runs[at : at + size])
        found = {each.uid: (each.start, each.end) for each in archive.runs([WEB], 0, 1000)[WEB]}
    shutil.rmtree(folder)

    expected = {
        each.uid: (
            min(other.start for other in runs if other.uid == each.uid),
            max(other.end for other in runs if other.uid == each.uid),
        )
        for each in runs
    }
    assert found == expected


def test_a_job_and_its_cron_job_are_both_asked_for(archive: RunArchive) -> None:
    """The CronJob has the runs of all its Jobs, a Job its own; only what overlaps the span is given."""
    jobs = [f"{CRON}-{n}" for n in range(3)]
    archive.add(run(n, 100 * n, 100 * n + 50, CRON, job) for n, job in enumerate(jobs))

    found = archive.runs([CRON, jobs[1]], 60, 1000)

    assert [each.uid for each in found[CRON]] == ["u1", "u2"]
    assert [each.uid for each in found[jobs[1]]] == ["u1"]


def test_what_is_gone_is_forgotten(archive: RunArchive) -> None:
    """Of a workload that nobody can ask for any more nothing is kept, folded or not."""
    archive.add(run(n, n, n + 1, CRON) for n in range(MOST_RUNS + 3))
    archive.add([run(0, 0, 9)])
    archive.forget([CRON])

    assert archive.counts() == (1, 0)
    assert archive.folded(CRON) is None


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10)), max_size=8), st.integers(0, 3))
def test_spans_join_where_they_touch(
    tmp_path_factory: pytest.TempPathFactory, noted: list[tuple[int, int]], bridge: int
) -> None:
    """Whatever the order, the spans cover what was noted, and what lies between two of them is longer than the bridge."""
    folder = tmp_path_factory.mktemp("archive")
    with closing(RunArchive(folder, "s")) as archive:
        for start, length in noted:
            archive.note("known", "prod", ["", "shop"], start, start + length, bridge=bridge)
        spans = archive.spans("known", "prod", [""])
        assert archive.spans("known", "prod", ["shop"]) == spans
        assert archive.spans("read", "prod", [""]) == archive.spans("known", "edge", [""]) == []
    shutil.rmtree(folder)

    for start, length in noted:
        assert any(first <= start and start + length <= last for first, last in spans)
    for (_, last), (first, _) in pairwise(spans):
        assert first - last > bridge
    assert sum(last - first for first, last in spans) <= 50 + bridge * len(noted)


# -- the file ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed store with three archived runs."""
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        store.archive.add([run(1, 0, 9)])
        store.archive.add([run(2, 5, 9), run(3, 7, 20)])
    return tmp_path / "store"


def test_it_survives_a_restart(directory: Path) -> None:
    """What was kept is there when the store is opened again; a store without past runs has no such file."""
    with closing(EmbeddedStore(directory)) as store:
        assert sorted(each.uid for each in store.archive.runs([WEB], 0, 30)[WEB]) == ["u1", "u2", "u3"]
    with closing(EmbeddedStore(directory.parent / "other")) as store:
        assert store.archive.counts() == (0, 0)
        assert store.archive.runs([WEB], 0, 30) == {WEB: []}
    assert not (directory.parent / "other" / RUNS).exists()


def _missing(directory: Path) -> None:
    for each in directory.glob(f"{RUNS}*"):
        each.unlink()


def _emptied(directory: Path) -> None:
    (directory / RUNS).write_bytes(b"")


def _not_a_database(directory: Path) -> None:
    (directory / RUNS).write_bytes(b"x" * 4096)


def _flipped(directory: Path) -> None:
    """Change one digit of a uid's neighbour: the end of a run."""
    content = bytearray((directory / RUNS).read_bytes())
    at = content.index(b"u3web-3") + len("u3web-3")
    content[at + 1] ^= 0x40
    (directory / RUNS).write_bytes(content)


def _of_another_store(directory: Path) -> None:
    with closing(RunArchive(directory.parent, "another")) as other:
        other.add([run(1, 0, 9)])
    shutil.copy(directory.parent / RUNS, directory / RUNS)


def _older(directory: Path) -> None:
    shutil.copy(directory / RUNS, directory.parent / "older")
    with closing(EmbeddedStore(directory)) as store:
        store.archive.add([run(4, 1, 2)])
    shutil.copy(directory.parent / "older", directory / RUNS)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (_missing, "is missing, and runs.mark shows that there was a run archive"),
        (_emptied, "is missing, and runs.mark shows that there was a run archive"),
        (_not_a_database, "cannot be read: file is not a database"),
        (_flipped, "is damaged: its runs are not those that were written"),
        (_of_another_store, "is of another store, another, not of"),
        (_older, "ends at generation 2, but generation 3 was written"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_file_that_is_missing_or_wrong_is_named(directory: Path, harm: Callable[[Path], None], reason: str) -> None:
    """The store does not open as if nothing were missing; the error names the file and says what to do, and doing it helps."""
    harm(directory)

    with pytest.raises(StoreDamaged, match=f"runs.sqlite.*{reason}") as error:
        EmbeddedStore(directory)

    assert "drumlin repair STORE" in (error.value.hint or "")
    for each in (*directory.glob(f"{RUNS}*"), directory / RUNS_MARK):
        each.unlink(missing_ok=True)
    with closing(EmbeddedStore(directory)) as store:
        assert store.archive.counts() == (0, 0)


def test_a_backup_has_it(directory: Path, tmp_path: Path) -> None:
    """Restored, the store has the archived runs under its new id, and a backup without its archive is refused."""
    with closing(EmbeddedStore(directory)) as store, backups.filling(tmp_path / "backup") as made:
        backups.take(store, "https://kg.example", made, datetime(2026, 11, 28, tzinfo=UTC))
        assert backups.verify(made).runs == 3
    backups.restore(tmp_path / "backup", tmp_path / "restored")
    with closing(EmbeddedStore(tmp_path / "restored")) as store:
        assert len(store.archive.runs([WEB], 0, 30)[WEB]) == 3

    (tmp_path / "backup" / RUNS).unlink()
    with pytest.raises(Exception, match="0 archived runs instead of 3"):
        backups.restore(tmp_path / "backup", tmp_path / "again")
