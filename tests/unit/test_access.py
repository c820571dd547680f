"""Tokens and roles, without a service: the file of tokens, its states, guesses that are slowed, the table of routes."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.callers import ANYBODY, Caller, Role
from drumlin.api.access.guessing import GUESSES, REMEMBERED, WINDOW, GuessLimiter
from drumlin.api.access.rules import ROUTES, AccessRules
from drumlin.api.access.tokens import PATTERN, TokenFile, digest_of
from drumlin.api.http.problems import GuessesThrottled
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import AlreadyExists, InvalidInput, InvalidSettings, ResourceNotFound, Unauthenticated

HERE = "192.0.2.1"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        """Return the time in UTC."""
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        """Return the seconds since it was made."""
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    """A clock of the test's own."""
    return Clock()


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> TokenFile:
    """A file of tokens that does not exist yet, with that clock."""
    return TokenFile(tmp_path / "tokens.json", clock.now)


def asking(file: TokenFile | None, clock: Clock, *, unguarded: bool = True, **settings: object) -> Authenticator:
    """Return what authenticates with the clock."""
    made = Settings.model_validate(settings)
    return Authenticator(made, file, unguarded=unguarded, now=clock.now, clock=clock.monotonic)


def bearing(token: str, scheme: str = "Bearer") -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with a token."""
    return [(b"authorization", f"{scheme} {token}".encode())]


def test_a_token_is_shown_once_and_kept_as_its_digest(file: TokenFile) -> None:
    """The file has the SHA-256, the role and the name, and is for its owner's eyes; two tokens never are the same."""
    record, token = file.create("grafana", Role.reader)
    other = file.create("job", Role.writer)[1]

    assert PATTERN.fullmatch(token)
    assert token != other
    assert record.sha256 == digest_of(token.encode())
    assert token not in file.path.read_text()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.read()] == ["grafana", "job"]


@pytest.mark.parametrize(
    ("name", "role", "bound"),
    [
        ("", Role.reader, {}),
        ("Grafana", Role.reader, {}),
        ("127.0.0.1", Role.reader, {}),
        ("a b", Role.reader, {}),
        ("x" * 64, Role.reader, {}),
        ("anonymous", Role.admin, {}),
        ("a", Role.exporter, {}),
        ("a", Role.reader, {"owners": ("kubernetes",)}),
        ("a", Role.exporter, {"owners": ("a\nb",)}),
        ("a", Role.agent, {}),
        ("a", Role.reader, {"guid": "x"}),
        ("a", Role.agent, {"guid": "../x"}),
    ],
)
def test_a_token_that_makes_no_sense_is_refused(
    file: TokenFile, name: str, role: Role, bound: dict[str, object]
) -> None:
    """Names are none of addresses or of anonymous callers; an exporter has a source, an agent a GUID, and nobody else has."""
    with pytest.raises(InvalidInput) as told:
        file.create(name, role, **bound)  # type: ignore[arg-type]
    assert told.value.hint
    assert file.read() == ()


def test_a_name_has_one_token_until_it_is_rotated(file: TokenFile, clock: Clock) -> None:
    """A second one is refused with what to do; rotated, the old one is accepted for the overlap and the new one lives as long."""
    _, first = file.create("job", Role.writer, lifetime=timedelta(days=90))
    with pytest.raises(AlreadyExists) as told:
        file.create("job", Role.writer)
    assert "rotate job" in str(told.value.hint)
    clock.seconds = 86_400
    record, second = file.rotate("job", timedelta(hours=1))
    assert record.expires == clock.now() + timedelta(days=90)
    authenticator = asking(file, clock)
    for token in (first, second):
        assert (
            authenticator.caller_of(bearing(token), HERE) == Caller("job", Role.writer, token=record.id)
            or token == first
        )
    clock.seconds += 3600
    assert authenticator.caller_of(bearing(second), HERE)
    with pytest.raises(Unauthenticated, match="job .writer. has expired"):
        authenticator.caller_of(bearing(first), HERE)


def test_a_token_ends_when_it_expires(file: TokenFile, clock: Clock) -> None:
    """The last moment is the one before; the refusal names the token and how to make another one."""
    token = file.create("grafana", Role.reader, lifetime=timedelta(seconds=10))[1]
    authenticator = asking(file, clock)
    clock.seconds = 9.9
    caller = authenticator.caller_of(bearing(token), HERE)
    assert caller is not None
    assert (caller.name, caller.role, authenticator.is_accepted(caller)) == ("grafana", Role.reader, True)
    clock.seconds = 10
    assert not authenticator.is_accepted(caller)
    with pytest.raises(Unauthenticated, match="grafana") as told:
        authenticator.caller_of(bearing(token), HERE)
    assert "drumlin token create grafana --role reader" in str(told.value.hint)
    assert told.value.detail["error"] == "invalid_token"


def test_a_revoked_token_ends_when_the_file_is_looked_at_again(file: TokenFile, clock: Clock) -> None:
    """After a second; others go on, and a name without an active token cannot be revoked or rotated."""
    gone, stays = (file.create(name, Role.reader)[1] for name in ("gone", "stays"))
    authenticator = asking(file, clock)
    caller = authenticator.caller_of(bearing(gone), HERE)
    file.revoke("gone")
    clock.seconds = 1.5
    with pytest.raises(Unauthenticated, match="was revoked"):
        authenticator.caller_of(bearing(gone), HERE)
    assert caller is not None
    assert not authenticator.is_accepted(caller)
    assert authenticator.caller_of(bearing(stays), HERE)
    for act in (file.revoke, file.rotate):
        with pytest.raises(ResourceNotFound, match="gone has no active token") as told:
            act("gone")
        assert "stays" in str(told.value.hint)


def test_what_ended_long_ago_is_forgotten(file: TokenFile, clock: Clock) -> None:
    """An ended token is listed for a month, so that the file stays small."""
    file.create("a", Role.reader)
    file.revoke("a")
    clock.seconds = 29 * 86_400
    file.create("b", Role.reader)
    assert [each.name for each in file.read()] == ["a", "b"]
    clock.seconds = 31 * 86_400
    file.create("c", Role.reader)
    assert [each.name for each in file.read()] == ["b", "c"]


def test_without_tokens_everybody_may_do_everything_where_that_is_allowed(file: TokenFile, clock: Clock) -> None:
    """On loopback, whatever token a proxy has asked for; elsewhere nobody; the first token ends it, and removing the file brings it not back."""
    open_, closed = asking(file, clock), asking(file, clock, unguarded=False)
    assert open_.caller_of([], HERE) == open_.caller_of(bearing("of-the-proxy"), HERE) == ANYBODY
    assert closed.caller_of([], HERE) is None
    token = file.create("a", Role.reader)[1]
    clock.seconds = 2
    for each in (open_, closed):
        assert each.caller_of([], HERE) is None
        assert each.caller_of(bearing(token), HERE) is not None
        assert not each.is_accepted(ANYBODY)
    file.path.unlink()
    clock.seconds = 4
    for each in (open_, closed):
        assert each.caller_of([], HERE) is None
        with pytest.raises(Unauthenticated):
            each.caller_of(bearing(token), HERE)


@pytest.mark.parametrize("role", ["reader", "writer", "admin", "none"])
def test_the_setting_says_what_callers_without_a_token_are(file: TokenFile, clock: Clock, role: str) -> None:
    """Before there are tokens, and after; a wrong token is refused all the same."""
    expected = None if role == "none" else Caller("anonymous", Role(role))
    authenticator = asking(file, clock, anonymous=role)
    assert authenticator.caller_of([], HERE) == expected
    file.create("a", Role.reader)
    clock.seconds = 2
    assert authenticator.caller_of([], HERE) == expected
    assert authenticator.caller_of([(b"authorization", b"Basic eDp5")], HERE) == expected
    with pytest.raises(Unauthenticated):
        authenticator.caller_of(bearing("wrong"), HERE)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"format":2,"tokens":[]}', b'{"format":1,"tokens":[{"name":"a"}]}', b"\xff"]
)
def test_a_damaged_file_stops_the_start_and_changes_nothing_later(
    file: TokenFile, clock: Clock, content: bytes
) -> None:
    """A service that runs keeps to what it has read; a command names the file."""
    token = file.create("a", Role.reader)[1]
    running = asking(file, clock)
    file.path.write_bytes(content)
    clock.seconds = 2
    assert running.caller_of(bearing(token), HERE) is not None
    for act in (lambda: asking(file, clock), lambda: file.create("b", Role.reader)):
        with pytest.raises(InvalidSettings, match="tokens.json"):
            act()


SPELLINGS = ("Bearer {}", "bearer {}", "BEARER   {}", "Bearer {} ")
ODD: tuple[tuple[bytes, ...], ...] = (
    (b"",),
    (b"Bearer",),
    (b"Bearer ",),
    (b"Basic Og==",),
    (b"Bearer: x",),
    (b"Negotiate \xff\x00",),
)


def test_the_header_is_read_as_its_standard_says(file: TokenFile, clock: Clock) -> None:
    """The scheme in any case; what holds no bearer token counts as none; two headers are refused, whatever they hold."""
    token = file.create("a", Role.reader)[1]
    authenticator = asking(file, clock)
    for each in SPELLINGS:
        assert authenticator.caller_of([(b"authorization", each.format(token).encode())], HERE), each
    for values in ODD:
        assert authenticator.caller_of([(b"authorization", each) for each in values], HERE) is None
    for second in (token, "x", ""):
        with pytest.raises(Unauthenticated, match="2 Authorization headers"):
            authenticator.caller_of([*bearing(token), *bearing(second)], HERE)


@given(st.binary(max_size=200))
def test_no_other_bytes_are_a_token(sent: bytes) -> None:
    """Whatever stands in the header, nobody is let in by it, and nothing but a refusal comes of it."""
    authenticator = Authenticator(Settings(anonymous="none"), None, unguarded=False)
    authenticator._asks = True
    with suppress(Unauthenticated, GuessesThrottled):
        assert authenticator.caller_of([(b"authorization", sent)], HERE) is None


def guessing(limiter: GuessLimiter, address: str, count: int, prefix: str = "") -> None:
    """Try wrong tokens, as far as they are looked at."""
    for number in range(count):
        limiter.check(address, f"{prefix}{number}")
        limiter.wrong(address, f"{prefix}{number}")


def test_an_address_that_guesses_has_to_wait(clock: Clock) -> None:
    """After twenty wrong tokens within a minute; others do not, nor do tokens that were accepted from there; then it may try again."""
    limiter = GuessLimiter(clock=clock.monotonic)
    limiter.accepted(HERE, "good")
    guessing(limiter, HERE, GUESSES)
    with pytest.raises(GuessesThrottled) as told:
        limiter.check(HERE, "right, perhaps")
    assert told.value.detail["retryAfter"] == WINDOW
    limiter.check(HERE, "good")
    limiter.check("192.0.2.2", "right, perhaps")
    clock.seconds = WINDOW
    limiter.check(HERE, "right, perhaps")


def test_one_old_token_sent_again_and_again_is_no_guessing(clock: Clock) -> None:
    """A client whose token was replaced holds nobody up behind the same address."""
    limiter = GuessLimiter(clock=clock.monotonic)
    for _ in range(1000):
        limiter.check(HERE, "old")
        limiter.wrong(HERE, "old")
    limiter.check(HERE, "another")


def test_proxies_and_networks(clock: Clock) -> None:
    """A proxy brings many clients and is left alone; all of a /64 is one address, and an IPv4 address is itself in either form."""
    limiter = GuessLimiter(["192.0.2.9"], clock.monotonic)
    guessing(limiter, "192.0.2.9", 100)
    guessing(limiter, "2001:db8::1", GUESSES)
    with pytest.raises(GuessesThrottled):
        limiter.check("2001:db8::ffff:1", "x")
    limiter.check("2001:db8:0:1::1", "x")
    guessing(limiter, "::ffff:192.0.2.3", GUESSES)
    with pytest.raises(GuessesThrottled):
        limiter.check("192.0.2.3", "x")


def test_what_is_remembered_of_guesses_is_bounded(clock: Clock) -> None:
    """However many addresses and tokens there are."""
    limiter = GuessLimiter(clock=clock.monotonic)
    for number in range(REMEMBERED + 100):
        limiter.wrong(f"host-{number}", "x")
        limiter.accepted(f"host-{number}", "x")
    for number in range(100):
        limiter.wrong(HERE, str(number))
    assert len(limiter) == REMEMBERED
    assert len(limiter._accepted) == REMEMBERED
    assert len(limiter._wrong[HERE]) <= GUESSES


def test_an_address_without_an_entry_is_closed() -> None:
    """Neither a path that the table lacks nor a method of one that it has is found; HEAD is GET."""
    rules = AccessRules()
    for path in (
        "/none",
        "/subgraph",
        "/livez/",
        "//livez",
        "/LIVEZ",
        "/ns/a/b",
        "/queries/",
        "/admin",
        "/docs/",
        "/redoc",
    ):
        assert rules.find(path) is None, path
    found = rules.find("/subgraphs")
    assert found is not None
    assert (found.rule("BREW"), found.rule("PUT"), found.rule("HEAD")) == (None, None, ROUTES["GET /subgraphs"])
    assert found.methods == ["GET", "HEAD", "OPTIONS", "POST"]


def test_an_agent_has_its_own_guid_only() -> None:
    """The graph of another agent, and everything else, is closed to it."""
    rules, agent = AccessRules(), Caller("a", Role.agent, guid="g-1")
    for path, expected in (
        ("/subgraph/agent/g-1", True),
        ("/subgraph/agent/g-2", False),
        ("/subgraph/agent/g-1/x", False),
        ("/subgraph/agent/", False),
        ("/subgraph/", False),
    ):
        place = rules.find(path)
        assert place is not None
        rule = place.rule("PUT")
        assert rule is not None
        assert rule.allows(agent, path) is expected, path


def test_the_file_is_plain_json(file: TokenFile) -> None:
    """Other tools can read it: names, roles, times in ISO 8601."""
    file.create("prod", Role.exporter, owners=("kubernetes:prod",), lifetime=timedelta(days=1))
    content = msgspec.json.decode(file.path.read_bytes())
    assert content["tokens"][0] | {"id": "", "sha256": ""} == {
        "id": "", "name": "prod", "role": "exporter", "sha256": "", "created": "2026-01-01T00:00:00Z",
        "expires": "2026-01-02T00:00:00Z", "revoked": None, "owners": ["kubernetes:prod"], "guid": None, "domains": [],
    }  # fmt: skip
