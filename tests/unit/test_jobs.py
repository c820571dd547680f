"""Work in a thread of its own: its turns, their pauses, its end."""

from __future__ import annotations

import threading

import pytest

from drumlin.exporters.jobs import PeriodicJob
from drumlin.kg.errors import StoreUnavailable

PATIENCE = 20.0


class Counting(PeriodicJob):
    """Counts its turns, and is done after so many."""

    def __init__(self, most: int, seconds: float) -> None:
        super().__init__("counting", seconds)
        self.turns = 0
        self.reached = threading.Event()
        self._most = most

    def turn(self) -> bool:
        """Count."""
        self.turns += 1
        if self.turns == self._most:
            self.reached.set()
        return self.turns == self._most


def test_turns_go_on_until_one_was_all_there_is_to_do() -> None:
    """The thread ends by itself then, and stopping it is no trouble."""
    job = Counting(3, 0.001)
    job.start()
    assert job.reached.wait(PATIENCE)
    job._thread.join(PATIENCE)
    assert job.turns == 3
    job.stop()


def test_a_job_ends_in_the_midst_of_its_pause() -> None:
    """Stopping waits for the turn, not for the next one; a job that was never started stops too."""
    job = Counting(-1, 3600.0)
    job.stop()
    assert job.turns == 0
    again = Counting(-1, 3600.0)
    again.start()
    again.stop(timeout=PATIENCE)
    assert not again._thread.is_alive()


@pytest.mark.parametrize(
    ("error", "failure"),
    [(StoreUnavailable("the disk is gone"), "the disk is gone"), (KeyError("x"), "an unexpected error; see the log")],
)
def test_a_turn_that_fails_does_not_end_the_job(error: Exception, failure: str) -> None:
    """It says why as long as that is so, and the next turn comes after the pause."""
    failing, told = [error], []

    class Failing(Counting):
        def turn(self) -> bool:
            told.append(self.failure)
            if failing:
                raise failing.pop()
            return super().turn()

    job = Failing(1, 0.001)
    job.start()
    assert job.reached.wait(PATIENCE)
    job._thread.join(PATIENCE)
    assert told == [None, failure]
    assert job.failure is None
