"""The election over HTTP, with clocks of its own for each candidate: who holds the Lease when, and what is asked of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from drumlin.exporters.kubernetes.election import Election, LeaseName
from tests.fake_apiserver.clusters import access_to
from tests.fake_apiserver.server import FakeApiServer
from tests.fake_apiserver.state import Json

SECONDS = 10


class Clock:
    """Seconds that only a test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """An API server with no Lease."""
    with FakeApiServer() as fake:
        yield fake


@pytest.fixture
def clock() -> Clock:
    """The clock of all candidates."""
    return Clock()


def candidate(api: FakeApiServer, clock: Clock, holder: str) -> Election:
    """Return a candidate with a token of its own."""
    lease = LeaseName("drumlin", "drumlin", SECONDS, holder)
    return Election(access_to(api.url, token=holder), lease, clock=clock)


def lease(api: FakeApiServer) -> Json:
    """Return the spec of the Lease."""
    spec: Json = api.state.read(api.state.named("leases"), "drumlin", "drumlin")["spec"]
    return spec


@contextmanager
def cut_off(api: FakeApiServer, holder: str) -> Iterator[None]:
    """Answer nothing to a candidate."""
    api.cut_off.add(holder)
    yield
    api.cut_off.discard(holder)


def test_the_first_takes_the_lease_and_the_second_stands_by(api: FakeApiServer, clock: Clock) -> None:
    """The Lease is created as client-go would; another candidate knows its holder and does not touch it."""
    one, two = candidate(api, clock, "one"), candidate(api, clock, "two")
    one.turn()
    two.turn()

    assert (one.leads, two.leads, two.leader) == (True, False, "one")
    assert {"holderIdentity": "one", "leaseDurationSeconds": SECONDS, "leaseTransitions": 0}.items() <= lease(
        api
    ).items()
    assert [each.method for each in api.requests] == ["GET", "POST", "GET"]


def test_a_holder_that_renews_is_never_followed(api: FakeApiServer, clock: Clock) -> None:
    """However long it lasts, a Lease that changes is held; its holder's term does not change."""
    one, two = candidate(api, clock, "one"), candidate(api, clock, "two")
    for _ in range(30):
        one.turn()
        two.turn()
        clock.now += SECONDS / 5
        assert (one.leads, two.leads) == (True, False)
    assert lease(api)["leaseTransitions"] == 0


def test_at_most_one_leads_at_any_time(api: FakeApiServer, clock: Clock) -> None:
    """A holder that is cut off stops writing before the other takes over, which it does within the duration and two looks."""
    one, two = candidate(api, clock, "one"), candidate(api, clock, "two")
    one.turn()
    two.turn()
    began, stopped = clock.now, None
    with cut_off(api, "one"):
        while not two.leads:
            clock.now += 0.25
            assert clock.now - began <= SECONDS + 2 * SECONDS / 5
            one.turn()
            if not one.leads:
                stopped = stopped or clock.now
                two.turn()
            assert not (one.leads and two.leads)
            two.turn()
    assert stopped
    assert clock.now - stopped >= 0.2 * SECONDS
    assert lease(api)["leaseTransitions"] == 1
    one.turn()
    assert (one.leads, one.leader) == (False, "two")


def test_a_process_that_slept_knows_at_once_that_it_may_not_write(api: FakeApiServer, clock: Clock) -> None:
    """The right runs out by elapsed time, without a look at the API server: nothing else can tell a process that was stopped."""
    one = candidate(api, clock, "one")
    one.turn()
    clock.now += 0.69 * SECONDS
    assert one.leads
    clock.now += 0.02 * SECONDS
    assert not one.leads


def test_the_right_counts_from_before_the_request(api: FakeApiServer, clock: Clock) -> None:
    """A renewal whose answer took long is worth less by as much: others count from when the server wrote it."""
    one = candidate(api, clock, "one")
    one.turn()
    write = one._access.write

    def slowly(method: str, path: str, body: Json, *, timeout: float) -> bytes:
        answer = write(method, path, body, timeout=timeout)
        clock.now += 0.6 * SECONDS
        return answer

    one._access.write = slowly  # type: ignore[method-assign]
    one.turn()
    clock.now += 0.2 * SECONDS
    assert not one.leads


def test_of_two_that_take_it_at_once_one_gets_it(api: FakeApiServer, clock: Clock) -> None:
    """The API server refuses the second by the version that both have seen (409), and it stands by."""
    holder, one, two = (candidate(api, clock, name) for name in ("holder", "one", "two"))
    for each in (holder, one, two):
        each.turn()
    clock.now += SECONDS
    seen = two._access.get

    def read_first(path: str, params: Json | None = None, *, timeout: float = 60.0) -> bytes:
        answer = seen(path, params, timeout=timeout)
        one.turn()
        return answer

    two._access.get = read_first  # type: ignore[assignment, method-assign]
    two.turn()

    assert (one.leads, two.leads) == (True, False)
    assert two.trouble is None
    assert lease(api)["holderIdentity"] == "one"


def test_what_is_given_back_is_taken_at_once(api: FakeApiServer, clock: Clock) -> None:
    """A graceful end leaves a Lease that nobody holds."""
    one, two = candidate(api, clock, "one"), candidate(api, clock, "two")
    one.turn()
    two.turn()
    one.release()
    assert "holderIdentity" not in lease(api)
    two.turn()

    assert (one.leads, two.leads) == (False, True)
    one.release()
    assert lease(api)["holderIdentity"] == "two"


def test_a_candidate_that_hears_nothing_does_not_say_who_leads(api: FakeApiServer, clock: Clock) -> None:
    """After a duration without an answer it may be anybody, and since when is said; the reason is that of the last failure."""
    one, two = candidate(api, clock, "one"), candidate(api, clock, "two")
    one.turn()
    two.turn()
    with cut_off(api, "two"):
        clock.now += SECONDS + 1
        two.turn()

    assert (two.leader, two.leaderless) == (None, SECONDS + 1)
    assert "does not answer" in str(two.trouble)


def test_a_forbidden_lease_is_trouble_and_no_leadership(api: FakeApiServer, clock: Clock) -> None:
    """What the API server refuses is reported, with how to get the right; nobody leads by it."""
    api.token = "another"
    one = candidate(api, clock, "one")
    one.turn()

    assert not one.leads
    assert "401" in str(one.trouble)
