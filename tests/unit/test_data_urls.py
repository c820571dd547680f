"""URLs of data: lists of them, their canonical form without what may be secret, and their ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.model.data_urls import MOST, canonical, cleaned, id_of, kind_of, url_of
from drumlin.kg.model.iris import Iris


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("s3://orders/raw", "s3://orders/raw"),
        ("S3://Orders/Raw/", "s3://orders/Raw"),
        (
            "postgresql://app:canary@db.payments:5432/orders?sslmode=require&password=canary#canary",
            "postgres://db.payments:5432/orders",
        ),
        ("kafka://orders.events", "kafka://orders.events"),
        ("abfss://raw@account.dfs.core.windows.net/2026", "abfs://account.dfs.core.windows.net/raw/2026"),
        ("redis://:canary@[fd00::1]:6379/0", "redis://[fd00::1]:6379/0"),
        ("postgres://app:can@ary@db/orders", "postgres://db/orders"),
        ("lakehouse://warehouse/sales", "lakehouse://warehouse/sales"),
    ],
)
def test_a_url_has_one_form(written: str, read: str) -> None:
    """Scheme and host in small letters, aliases of schemes as one, no slash at the end, nothing that may be secret."""
    assert cleaned(written) == canonical(written) == read


@pytest.mark.parametrize(
    "written",
    [
        "orders", "s3:/orders", "s3://", "postgres://app:can/ary@db/orders", "postgres://app:can?ary@db/orders", "postgres://app:can#ary@db/x",
        "jdbc:sqlserver://db;user=sa;password=canary", "s3://orders/../x", "s3://orders//x", "mongodb://a:1,b:2/db", "db@canary",
        "abfss://raw:canary@account/x", "s3://orders/" + "x" * 600, "kafka://topic:canary", "http://x/a;password=canary",
    ],
)  # fmt: skip
def test_what_is_no_url_leaves_no_trace(written: str) -> None:
    """A password that is not escaped, a parameter, a path that climbs: it is an entry that is none, and nothing of it is kept."""
    found = cleaned(written)

    assert "?" in found.split()
    assert "canary" not in found
    assert "ary" not in found


def test_a_list_is_cut_at_commas_blanks_and_line_ends() -> None:
    """The good entries stay, in their order; each bad one is told by its place."""
    found = cleaned("s3://a/b,postgres://u:p@db/x ,\n  oops , kafka://topic,")

    assert found == "s3://a/b postgres://db/x ? kafka://topic"


@pytest.mark.parametrize("password", ["12,45", "12 45", "12, 45@x", "12\n45"])
def test_a_password_with_a_separator_is_not_cut_into_entries(password: str) -> None:
    """Its first part would be a port, and stand in the graph."""
    assert "12" not in cleaned(f"postgres://app:{password}@db/orders, s3://a")


def test_a_list_is_bounded() -> None:
    """A hundred thousand entries are those that are allowed, and one that is none."""
    found = cleaned(",".join(f"s3://a/{number}" for number in range(100_000))).split()

    assert len(found) == MOST + 1
    assert found[-1] == "?"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["," * 262_144, ", a" * 87_381, "@," * 131_072, "s3://" + "@" * 262_000, "a://b," * 43_690, "a" * 262_144]
)
def test_a_hostile_list_takes_no_longer_than_its_length(text: str) -> None:
    """As long as an annotation may be; a reader that goes back would take minutes."""
    assert len(cleaned(text).split()) <= MOST + 1


@pytest.mark.parametrize(
    ("url", "kind"),
    [("s3://a", "objectstore"), ("mysql://db/x", "database"), ("kafka://t", "queue"), ("lakehouse://w", "lakehouse")],
)
def test_the_kind_follows_from_the_scheme(url: str, kind: str) -> None:
    """The list of kinds is open: an unknown scheme is its own word."""
    assert kind_of(url) == kind


@given(st.from_regex(r"[a-z0-9+]{1,5}://[A-Za-z0-9@:,/?#;%.~ -]{0,40}", fullmatch=True))
def test_what_is_kept_is_canonical_and_its_id_leads_back(written: str) -> None:
    """Reading twice changes nothing, and an IRI of the id parses to it."""
    for url in cleaned(written).split():
        if url == "?":
            continue
        assert canonical(url) == url
        assert "@" not in url
        assert url_of(id_of(url)) == url
        iris = Iris("https://kg.example")
        assert iris.parse(iris.of_class("external", id_of(url))).name.name == id_of(url)


@given(
    st.text(st.characters(codec="ascii", exclude_characters="@"), min_size=6).map(lambda text: f"{text}CANARY{text}"),
    st.sampled_from(["postgres", "abfs", "x"]),
)
def test_no_password_is_ever_kept(password: str, scheme: str) -> None:
    """Whatever characters it has, escaped or not: the canary in it does not come out, whole or in parts."""
    assert "canary" not in cleaned(f"{scheme}://user:{password}@db/orders").lower()
