"""The dump source: everything kubectl prints is read, and what is broken is reported by place and reason, never by value."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporters.dump import STDIN, DumpSource
from exporters.kubernetes.kinds import KINDS
from exporters.printout import Item, items
from exporters.protocol import Change, Rejected, Synced, Upserted
from kg.errors import SourceUnavailable

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def pod(name: str, **more: Any) -> dict[str, Any]:
    """A pod of namespace payments."""
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "payments", "uid": name, **more}}


def bare(name: str) -> dict[str, Any]:
    """A pod as a typed list holds it: without kind."""
    return {key: value for key, value in pod(name).items() if key not in ("kind", "apiVersion")}


def a_list(kind: str, *objects: Any) -> dict[str, Any]:
    """A list as kubectl or the API server writes it."""
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": list(objects)}


def read(*paths: Path | str) -> tuple[DumpSource, list[Change]]:
    """Read paths as one dump."""
    source = DumpSource(paths, KINDS, clock=lambda: NOW)
    return source, list(source.changes(threading.Event()))


def names(changes: Sequence[Change]) -> list[str]:
    """Names of the objects that came."""
    return [each.manifest.metadata.name for each in changes if isinstance(each, Upserted)]


def rejected(changes: Sequence[Change]) -> list[Rejected]:
    """What was rejected."""
    return [each for each in changes if isinstance(each, Rejected)]


def synced(changes: Sequence[Change]) -> list[str]:
    """Kinds that were said to be complete."""
    return [each.kind.name for each in changes if isinstance(each, Synced)]


FORMS = {
    "list.json": json.dumps(a_list("List", pod("a"), pod("b"))),
    "indented.json": "\n" + json.dumps(a_list("List", pod("a"), pod("b")), indent=4),
    "typed.json": json.dumps(a_list("PodList", bare("a"), bare("b"))),
    "rows.json": json.dumps(pod("a")) + "\n" + json.dumps(pod("b")) + "\n",
    "bom.json": "\ufeff" + json.dumps(a_list("PodList", bare("a"), bare("b"))),
    "list.yaml": yaml.safe_dump(a_list("List", pod("a"), pod("b"))),
    "typed.yml": yaml.safe_dump(a_list("PodList", bare("a"), bare("b"))),
    "documents.yaml": "# two pods\n---\n"
    + yaml.safe_dump_all([pod("a"), pod("b")], explicit_start=True)
    + "---\n# none\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_that_kubectl_prints_is_read(name: str, tmp_path: Path) -> None:
    """Lists, typed lists, rows and documents, in JSON and YAML, give their objects and then the end of their kind."""
    (tmp_path / name).write_text(FORMS[name], encoding="utf-8")

    _, changes = read(tmp_path / name)

    assert names(changes) == ["a", "b"]
    assert rejected(changes) == []
    assert synced(changes) == ["Pod"]


def test_a_single_object_is_read(tmp_path: Path) -> None:
    """One object needs no list; a namespace that is not written is the default one, and a cluster has none."""
    hand_written = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "web"},
        "spec": {"template": {}},
    }
    (tmp_path / "a.json").write_text(json.dumps(hand_written))
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "namespace": "wrong"}}
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(node))

    _, changes = read(tmp_path)

    assert [each.manifest.metadata.namespace for each in changes if isinstance(each, Upserted)] == ["default", None]


def test_directories_are_read_in_order_and_other_files_left(tmp_path: Path) -> None:
    """All .json, .yaml and .yml files below a directory are one dump."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "z.yml").write_text(yaml.safe_dump(pod("c")))
    (tmp_path / "a.json").write_text(json.dumps(pod("a")))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(pod("b")))
    (tmp_path / "README.md").write_text("not: {read")

    assert names(read(tmp_path)[1]) == ["a", "b", "c"]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` is what is piped in."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(pod("a")).encode())))

    assert names(read(STDIN)[1]) == ["a"]


def test_unknown_kinds_are_counted(tmp_path: Path) -> None:
    """Kinds that are not in the table, or are of another group, are no errors."""
    others = [{"kind": "Secret", "apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "example.com/v1"}]
    (tmp_path / "a.json").write_text(json.dumps(a_list("List", pod("a"), *others)))

    source, changes = read(tmp_path)

    assert source.skipped == {"Secret": 1, "Pod": 1}
    assert rejected(changes) == []


def test_a_broken_object_is_rejected_by_place_and_the_others_load(tmp_path: Path) -> None:
    """The place names file, document, item and object; the reason names types, never the value."""
    broken = pod("x", labels={"a": ["secret"]})
    (tmp_path / "a.json").write_text(json.dumps(a_list("List", pod("a"), broken, pod("b"))))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump_all([pod("c"), a_list("List", pod("d"), broken)]))

    _, changes = read(tmp_path)

    assert names(changes) == ["a", "b", "c", "d"]
    assert [(each.where.removeprefix(f"{tmp_path}/"), each.reason) for each in rejected(changes)] == [
        ("a.json: document 1, item 2 (Pod payments/x)", "Expected `str`, got `array` at $.metadata.labels[...]"),
        ("b.yaml: document 2, item 2 (Pod payments/x)", "Expected `str`, got `array` at $.metadata.labels[...]"),
    ]
    assert synced(changes) == [], "what cannot be read may be what seems to be missing"


@pytest.mark.parametrize("items_before", [0, 1, 3])
def test_a_truncated_list_gives_what_stands_before_the_cut(items_before: int, tmp_path: Path) -> None:
    """A dump that breaks off loads as far as it goes, says where it breaks off, and takes nothing for gone."""
    text = json.dumps(a_list("PodList", *(bare(f"pod-{number}") for number in range(5))), indent=1)
    cut = text.index(f'"pod-{items_before}"') + 3
    (tmp_path / "a.json").write_text(text[:cut])
    (tmp_path / "b.json").write_text(json.dumps(pod("other")))

    _, changes = read(tmp_path)

    assert names(changes) == [*(f"pod-{number}" for number in range(items_before)), "other"]
    (only,) = rejected(changes)
    line = text[:cut].count("\n") + 1
    assert only.where.startswith(f"{tmp_path}/a.json: line {line}, column ")
    assert only.reason == "the JSON breaks off here"
    assert synced(changes) == []


@given(st.data())
def test_no_cut_loses_or_invents_an_object(data: st.DataObject) -> None:
    """Wherever JSON is cut, exactly the objects that are whole are read, and the cut is reported."""
    text = json.dumps(a_list("PodList", *(bare(f"pod-{number}") for number in range(4)))).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    whole = sum(text[:cut].count(json.dumps(bare(f"pod-{number}")).encode()) for number in range(4))

    found = list(items(text[:cut]))

    assert [each.names.name for each in found if isinstance(each, Item)] == [f"pod-{number}" for number in range(whole)]
    assert len(found) == whole + 1


NOT_KUBERNETES = {
    "prose.yaml": "hello",
    "number.json": "[1]",
    "config.yaml": "server: {port: secret}",
    "empty.json": "",
    "nothing.yaml": "---\n---\n",
    "binary.yaml": "\x00\x01secret",
    "items.json": '{"kind": "List", "apiVersion": "v1", "items": "secret"}',
    "tag.yaml": "!!python/object:os.system secret",
    "tabs.yaml": "a:\n\tsecret: b",
    "alias.yaml": "a: *secret",
    "open.json": '{"secret": ',
    "trailing.json": json.dumps(pod("a")) + " secret",
}


@pytest.mark.parametrize("name", NOT_KUBERNETES)
def test_what_is_not_kubernetes_is_reported_without_its_text(name: str, tmp_path: Path) -> None:
    """A file of something else is one line, and never quoted."""
    (tmp_path / name).write_text(NOT_KUBERNETES[name])

    _, changes = read(tmp_path)

    if name != "nothing.yaml":
        assert rejected(changes)
    assert "secret" not in str(rejected(changes))
    assert names(changes) == (["a"] if name == "trailing.json" else [])


def test_one_broken_document_costs_only_itself(tmp_path: Path) -> None:
    """YAML goes on after a document that cannot be read, and its line is the file's."""
    (tmp_path / "a.yaml").write_text(
        f"{yaml.safe_dump(pod('a'))}---\nfine: yes\nkind: [\n---\n{yaml.safe_dump(pod('b'))}"
    )

    _, changes = read(tmp_path)

    assert names(changes) == ["a", "b"]
    (only,) = rejected(changes)
    assert "a.yaml: document 2, line " in only.where
    assert only.reason == "is not YAML from here on"


def test_times_and_words_stay_text_in_yaml(tmp_path: Path) -> None:
    """A time without quotes is the text that Kubernetes would send."""
    (tmp_path / "a.yaml").write_text(
        "kind: Pod\napiVersion: v1\nmetadata: {name: a, uid: u, creationTimestamp: 2026-11-27T21:50:28Z}\n"
    )

    (only,) = [each for each in read(tmp_path)[1] if isinstance(each, Upserted)]

    assert only.manifest.metadata.creationTimestamp == "2026-11-27T21:50:28Z"


def test_bombs_are_refused(tmp_path: Path) -> None:
    """Aliases that multiply, and nesting without end, are refused before they are built."""
    laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 20)}]\n" for n in range(1, 20))
    (tmp_path / "aliases.yaml").write_text(laughs + "kind: Pod\napiVersion: v1\n")
    (tmp_path / "deep.yaml").write_text("a: " + "[" * 100_000)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    merges = "a: &a {x: 1}\n<<: *a\n" + yaml.safe_dump(pod("merged"))
    (tmp_path / "merge.yaml").write_text(merges)

    _, changes = read(tmp_path)

    assert names(changes) == ["merged"]
    assert ["aliases" in each.reason for each in rejected(changes)] == [True, False, False]


def test_a_file_that_is_too_large_or_unreadable_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message carries the limit; other files load."""
    monkeypatch.setattr("exporters.dump.MAX_BYTES", 200)
    (tmp_path / "a.json").write_text(json.dumps(pod("a")))
    (tmp_path / "b.json").write_text(json.dumps(pod("b", padding="x" * 200)))

    _, changes = read(tmp_path)

    assert names(changes) == ["a"]
    assert [each.reason for each in rejected(changes)] == ["is larger than 200 bytes; split it, for instance by kind"]


def test_a_missing_path_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    """A mistyped path is told at once."""
    (tmp_path / "a.json").write_text(json.dumps(pod("a")))

    with pytest.raises(SourceUnavailable, match=r"nowhere\.json does not exist"):
        read(tmp_path / "a.json", tmp_path / "nowhere.json")


def test_stop_ends_the_reading(tmp_path: Path) -> None:
    """After ``stop`` no more changes come, and nothing is said to be complete."""
    (tmp_path / "a.json").write_text(json.dumps(a_list("PodList", bare("a"), bare("b"))))
    stop = threading.Event()
    found = []
    for change in DumpSource([tmp_path], KINDS, clock=lambda: NOW).changes(stop):
        found.append(change)
        stop.set()

    assert names(found) == ["a"]
    assert synced(found) == []


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_content_crashes_the_reader(content: str | bytes) -> None:
    """Any text or bytes give objects or reasons."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    assert all(isinstance(each, Item) or each.reason for each in items(raw))
