"""The dump source: everything kubectl prints is read, and what is broken is reported by place and reason, never by value."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import json
import lzma
import tarfile
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from drumlin.api.cli.main import app
from drumlin.exporters.kubectl.dump import STDIN, DumpSource
from drumlin.exporters.kubectl.kubectl_output import Item, items
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.completeness import NOTHING, Completeness
from drumlin.exporters.protocol import Change, Gone, Rejected, Synced, Upserted
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidInput, SourceUnavailable, WrongUsage
from tests.unit.rendering import BY_NAME

NOW = datetime(2026, 11, 27, tzinfo=UTC)
SEEN = Completeness(seen=True)


def pod(name: str, **more: Any) -> dict[str, Any]:
    """A pod of namespace payments."""
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "payments", "uid": name, **more}}


def bare(name: str) -> dict[str, Any]:
    """A pod as a typed list holds it: without kind."""
    return {key: value for key, value in pod(name).items() if key not in ("kind", "apiVersion")}


def a_list(kind: str, *objects: Any) -> dict[str, Any]:
    """A list as kubectl or the API server writes it."""
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": list(objects)}


def read(*paths: Path | str, complete: Completeness = NOTHING) -> tuple[DumpSource, list[Change]]:
    """Read paths as one dump, which is complete for what is said."""
    source = DumpSource(paths, KINDS, clock=lambda: NOW, complete=complete)
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

    _, changes = read(tmp_path / name, complete=SEEN)

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


def archive(content: bytes, mode: str, name: str = "pods.json") -> bytes:
    """A tar archive with one meant file and another."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as made:
        for each, text in (
            (name, content),
            ("README.md", b"not: {read"),
            ("sub/b.yaml", yaml.safe_dump(pod("c")).encode()),
        ):
            member = tarfile.TarInfo(each)
            member.size = len(text)
            made.addfile(member, io.BytesIO(text))
    return out.getvalue()


LISTED = json.dumps(a_list("PodList", bare("a"), bare("b"))).encode()
PACKED = {
    "pods.json.gz": gzip.compress(LISTED),
    "two.json.gz": gzip.compress(LISTED[:40]) + gzip.compress(LISTED[40:]),
    "pods.json.bz2": bz2.compress(LISTED),
    "pods.json.xz": lzma.compress(LISTED),
    "pods.json.zst": zstandard.compress(LISTED),
    "pods.tgz": archive(LISTED, "w:gz"),
    "pods.tar.xz": archive(LISTED, "w:xz"),
    "pods.tar": archive(gzip.compress(LISTED), "w", "pods.json.gz"),
}


@pytest.mark.parametrize("name", PACKED)
def test_compressed_files_and_archives_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name in a directory, by content whatever the name, and from standard input; other members of an archive are left."""
    expected = ["a", "b", "c"] if "tar" in name or "tgz" in name else ["a", "b"]
    (tmp_path / name).write_bytes(PACKED[name])
    (tmp_path / "other").mkdir()
    nameless = tmp_path / "other" / "nameless"
    nameless.write_bytes(PACKED[name])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PACKED[name])))

    for changes in (read(tmp_path)[1], read(nameless)[1], read(STDIN)[1]):
        assert names(changes) == expected
        assert rejected(changes) == []


@pytest.mark.parametrize("name", PACKED)
def test_a_compressed_file_that_breaks_off_is_rejected_whole(name: str, tmp_path: Path) -> None:
    """Half an archive is damaged, and so nothing of a dump is complete; it is no crash."""
    content = PACKED[name].rstrip(b"\0") if name.endswith(".tar") else PACKED[name]
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])

    source, changes = read(tmp_path, complete=SEEN)

    assert not source.whole
    assert synced(changes) == []
    assert rejected(changes)[-1].where.startswith(str(tmp_path / name))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_a_file_that_unpacks_without_end_is_refused(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts unpacked bytes, and only so many are unpacked."""
    monkeypatch.setattr("drumlin.exporters.kubectl.dump.MAX_BYTES", 5000)
    (tmp_path / "bomb.json").write_bytes(pack(b" " * 1_000_000))

    _, changes = read(tmp_path)

    assert [each.reason for each in rejected(changes)] == ["is larger than 5,000 bytes; split it, for instance by kind"]


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_the_events_of_a_watch_are_read(write: Callable[[Any], str], tmp_path: Path) -> None:
    """``kubectl get -w --output-watch-events``: what came is there, what was deleted is gone with its last form, bookmarks are nothing."""
    events = [
        {"type": "ADDED", "object": pod("a")},
        {"type": "ADDED", "object": pod("b")},
        {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}},
        {"type": "MODIFIED", "object": pod("a", labels={"app": "x"})},
        {"type": "DELETED", "object": pod("b", deletionTimestamp="2026-11-27T10:00:00Z")},
        {"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410}},
    ]
    separator = "\n" if write is json.dumps else "---\n"
    (tmp_path / "events.yaml").write_text(separator.join(map(write, events)))

    _, changes = read(tmp_path)

    assert names(changes) == ["a", "b", "a", "b"]
    (gone,) = [each for each in changes if isinstance(each, Gone)]
    assert (gone.manifest.metadata.name, gone.manifest.metadata.deletionTimestamp) == ("b", "2026-11-27T10:00:00Z")
    assert changes.index(gone) == 4
    assert [each.reason for each in rejected(changes)] == ["is an error of the API server, which ended the watch"]


def test_serving_a_dump_that_is_not_there_ends_at_once() -> None:
    """A mistyped path is the operator's error: the command ends with it instead of waiting for a file."""
    run = CliRunner().invoke(app, ["serve", "--source", "dump:nowhere.json", "--port", "0"])

    assert isinstance(run.exception, SourceUnavailable)
    assert "nowhere.json does not exist" in str(run.exception)


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

    _, changes = read(tmp_path, complete=SEEN)

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

    _, changes = read(tmp_path, complete=SEEN)

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
    monkeypatch.setattr("drumlin.exporters.kubectl.dump.MAX_BYTES", 200)
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
    for change in DumpSource([tmp_path], KINDS, clock=lambda: NOW, complete=SEEN).changes(stop):
        found.append(change)
        stop.set()

    assert names(found) == ["a"]
    assert synced(found) == []


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_content_crashes_the_reader(content: str | bytes) -> None:
    """Any text or bytes give objects or reasons."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    assert all(isinstance(each, Item) or each.reason for each in items(raw))


# -- what is complete -------------------------------------------------------------------------------------------------------


def scopes(changes: Sequence[Change]) -> set[tuple[str, str | None]]:
    """Kinds and namespaces that were said to be complete."""
    return {(each.kind.name, each.namespace) for each in changes if isinstance(each, Synced)}


def test_a_dump_is_not_complete_unless_that_is_said(tmp_path: Path) -> None:
    """What a dump lacks may be anything."""
    (tmp_path / "a.json").write_text(json.dumps(a_list("List", pod("a"), pod("b"))))

    assert synced(read(tmp_path)[1]) == []


def test_a_complete_dump_holds_its_kinds_in_its_namespaces(tmp_path: Path) -> None:
    """Complete is each of its kinds in each of its namespaces, the whole of a kind without namespaces, and all with the Namespaces."""
    service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "search"}}
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
    (tmp_path / "a.json").write_text(json.dumps(a_list("List", pod("a"), service, node)))

    both = {(kind, namespace) for kind in ("Pod", "Service") for namespace in ("payments", "search")}
    assert scopes(read(tmp_path, complete=SEEN)[1]) == {*both, ("Node", None)}

    namespace = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "payments"}}
    (tmp_path / "b.json").write_text(json.dumps(namespace))
    assert scopes(read(tmp_path, complete=SEEN)[1]) == {
        (each, None) for each in ("Pod", "Service", "Node", "Namespace")
    }
    listed = Completeness.parse(["jobs,svc/search"], KINDS)
    assert scopes(read(tmp_path, complete=listed)[1]) == {("Job", None), ("Service", "search")}
    both = Completeness.parse([None, "jobs"], KINDS)
    assert scopes(read(tmp_path, complete=both)[1]) >= {("Job", None), ("Pod", None)}


@pytest.mark.parametrize("content", [a_list("List"), a_list("PodList"), {**a_list("PodList"), "items": None}])
def test_an_empty_list_names_no_kind(content: Any, tmp_path: Path) -> None:
    """An empty list is reported by its place; alone it cannot be complete, unless the kinds are named."""
    (tmp_path / "a.json").write_text(json.dumps(content))

    source, changes = read(tmp_path, complete=Completeness.parse(["pods/payments"], KINDS))
    assert source.empty == [f"{tmp_path}/a.json: document 1"]
    assert scopes(changes) == {("Pod", "payments")}
    with pytest.raises(InvalidInput, match="holds no object"):
        read(tmp_path, complete=SEEN)


@pytest.mark.parametrize("content", [None, "# nothing", "---\n---\n"])
def test_nothing_at_all_is_complete_for_nothing(content: str | None, tmp_path: Path) -> None:
    """A directory without files, and a file without a document, remove nothing, whatever is said to be complete."""
    if content is not None:
        (tmp_path / "a.yaml").write_text(content)

    with pytest.raises(InvalidInput, match="holds nothing"):
        read(tmp_path, complete=Completeness.parse(["pods"], KINDS))
    assert read(tmp_path)[1] == []


def test_a_dump_knows_whether_its_files_have_changed(tmp_path: Path) -> None:
    """Files that are written, added, replaced or removed since they were read are news; standard input never is."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps(pod("a")))
    source, _ = read(tmp_path)
    assert not source.has_changed

    steps = (
        lambda: file.write_text(json.dumps(pod("abc"))),
        lambda: (tmp_path / "b.json").write_text(json.dumps(pod("b"))),
        lambda: (tmp_path / "b.json").rename(file),
        file.unlink,
    )
    for step in steps:
        step()
        assert source.has_changed
        list(source.changes(threading.Event()))
        assert not source.has_changed


SPELLINGS = ["pods", "pod", "po", "PODS", "Pod"]
GROUPED = ["deployments", "deploy", "Deployment", "deployments.apps", "deployment.v1.apps"]
CUSTOM = [
    "kusciajobs",
    "kusciajob",
    "KusciaJob",
    "kusciajobs.kuscia.secretflow",
    "kusciajobs.v1alpha1.kuscia.secretflow",
]


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        *((each, "Pod") for each in SPELLINGS),
        *((each, "Deployment") for each in GROUPED),
        *((each, "KusciaJob") for each in CUSTOM),
    ],
)
def test_kinds_are_named_as_kubectl_names_them(written: str, kind: str) -> None:
    """Plural, singular, short name and kind, in any case, bare or with their group."""
    followed = kinds_of(Settings(mappings=("kuscia",)))

    for said, namespace in ((written, None), (f" {written}/shop ", "shop")):
        ((found, where),) = Completeness.parse([said], followed).listed
        assert (found.name, where) == (kind, namespace)


def test_of_kinds_with_one_name_the_group_decides() -> None:
    """Kubernetes' own kind is meant by the bare name; of several others, one has to be named with its group."""
    pods = BY_NAME["Pod"]
    others = [dataclasses.replace(pods, group=group) for group in ("a.example", "b.example")]

    assert Completeness.parse(["pods"], [*others, pods]).listed == ((pods, None),)
    assert Completeness.parse(["pods.b.example"], [*others, pods]).listed == ((others[1], None),)
    with pytest.raises(WrongUsage, match="one of several") as told:
        Completeness.parse(["pods"], others)
    assert told.value.hint == "say pods.a.example or pods.b.example"


@pytest.mark.parametrize(
    ("arguments", "complete"),
    [
        (["x.json", "--complete"], [None]),
        (["--complete", "x.json"], [None]),
        (["--complete=pods,svc/a", "x.json"], ["pods,svc/a"]),
        (["--complete", "--complete=pods", "x.json"], [None, "pods"]),
        (["--", "x.json"], []),
    ],
)
def test_complete_takes_a_value_after_an_equals_sign_only(
    arguments: list[str], complete: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--complete PATH`` is the option alone and a path; ``--complete=KINDS`` has a value."""
    seen: list[Any] = []
    monkeypatch.setattr("drumlin.api.cli.loading.load", lambda *given, **_: seen.append(given) or 0)

    result = CliRunner().invoke(app, ["load", "--store", "nowhere", *arguments])

    assert result.exit_code == 0, result.output
    ((_, paths, _, _, found),) = seen
    assert paths == [Path("x.json")]
    assert found == Completeness.parse(complete, KINDS)
