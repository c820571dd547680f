"""Custom resources by configuration: paths, tables, and the mapping for Kuscia that is shipped."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.crd_schema import mismatches
from drumlin.exporters.kubernetes.custom import paths_of
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.kubernetes.paths import Elements, Inside, MemberStep, path, projection, texts
from drumlin.kg.config.custom_resources import ResourceSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings
from tests.unit.rendering import CONTRACT, around, follow, following, upserted

CRDS = Path(__file__).parents[2].parent / "shared" / "data" / "secretflow+kuscia" / "crds" / "v1alpha1"
KUSCIA = files("drumlin.exporters.kuscia").joinpath("kuscia.toml").read_text(encoding="utf-8")
JOB = "https://kg.example/id/prod/cross-domain/kusciajob.kuscia.secretflow/job"
VERSION = "kuscia.secretflow/v1alpha1"


# -- paths ----------------------------------------------------------------------------------------------------------------


def plainly(value: Any, steps: tuple[Any, ...]) -> Iterator[str]:
    """What a path finds, by a plain reading of RFC 9535 over decoded JSON."""
    if value is None:
        return
    if not steps:
        if str(value):
            yield str(value).lower() if isinstance(value, bool) else str(value)
        return
    first, *rest = steps
    if isinstance(first, MemberStep):
        yield from plainly(value.get(first.name), tuple(rest))
    elif isinstance(first, Inside):
        yield from plainly(json.loads(value), tuple(rest))
    else:
        for each in value.values() if isinstance(value, dict) else value:
            if first.key is None or each.get(first.key) == first.text:
                yield from plainly(each, tuple(rest))


SCALAR = st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3)
ITEM = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["Ready", "Other"]), "status": SCALAR, "x.y": SCALAR}
)
OBJECT = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.text("ab", min_size=1), "labels": st.dictionaries(st.sampled_from(["l", "k"]), st.text("ab"))}
        )
    },
    optional={
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "scalar": SCALAR,
                "items": st.lists(ITEM) | st.dictionaries(st.text("pq"), ITEM),
                "secret": SCALAR,
            },
        ),
        "text": st.fixed_dictionaries({"inner": st.lists(st.text("uv"))}).map(json.dumps),
    },
)
PATHS = (
    "$.metadata.name",
    "$.metadata.labels['l']",
    "$.spec.scalar",
    "$.spec.items[*]['x.y']",
    "$.spec.items[?@.type=='Ready'].status",
    "$.text | $.inner[*]",
)


@settings(deadline=None)  # a busy machine is no failure
@given(OBJECT)
def test_a_projection_gives_what_a_plain_reading_gives(document: dict[str, Any]) -> None:
    """Typed structs made from paths find the values that the paths find in the plain JSON, and hold nothing that no path names."""
    steps = [path(each) for each in PATHS]
    read = msgspec.json.decode(json.dumps(document), type=projection("Thing", steps))

    assert [list(texts(read, each)) for each in steps] == [list(plainly(document, each)) for each in steps]
    assert "secret" not in repr(msgspec.inspect.type_info(type(read)))


@pytest.mark.parametrize("text", ["$.", "$.a[0]", "$..a", "$.a[?@.b]", "$.a b", "$.a | b"])
def test_a_path_that_is_none_is_refused_with_its_position(text: str) -> None:
    """A mistake in a mapping is told with the character where it stands."""
    with pytest.raises(InvalidSettings, match=r"is not a path from character \d+ on"):
        path(text)


def test_a_text_that_is_not_json_names_nothing() -> None:
    """Any text may stand in such a field; it neither breaks the object nor stays in memory."""
    steps = path("$.spec.config | $.ids[*]")
    kind = projection("Thing", [steps])

    for text in ("not json: secret", '{"ids": 7}', "[" * 5000, ""):
        read = msgspec.json.decode(json.dumps({"metadata": {"name": "a"}, "spec": {"config": text}}), type=kind)
        assert list(texts(read, steps)) == []
        assert "secret" not in repr(read)


def test_filters_and_wildcards_are_read() -> None:
    """The steps of a path are what they are written as."""
    assert path("$.a[*]['b.c'][?@.d=='e'] | $.f") == (
        MemberStep("a"),
        Elements(),
        MemberStep("b.c"),
        Elements("d", "e"),
        Inside(),
        MemberStep("f"),
    )


# -- tables ---------------------------------------------------------------------------------------------------------------

TABLE = {"group": "example.org", "version": "v1", "plural": "things", "kind": "Thing", "class": "Workflow"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"class": "Wurkflow"}, "'Wurkflow' is not in the vocabulary"),
        ({"value": {"nmae": "$.spec.name"}}, "'nmae' is not in the vocabulary"),
        ({"constant": {"assetType": "Table"}}, "'Table' is not in the vocabulary"),
        ({"phase": {"path": "$.status.phase", "words": {"Up": "Upright"}}}, "'Upright' is not in the vocabulary"),
        ({"run": {"start": "$.s", "outcome": {"path": "$.p", "words": {"Done": "Finished"}}}}, "'Finished' is not in"),
        ({"relation": [{"term": "dependsOn"}]}, "one of owner, selector, name"),
        ({"relation": [{"term": "dependsOn", "name": "$.spec.a"}]}, "go together"),
        ({"relation": [{"term": "needs", "owner": True}]}, "'needs' is not in the vocabulary"),
        ({"value": {"name": "$.spec", "host": "$.spec.host"}}, "both for a value and for what holds values"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    """A word that the ontology does not know, or half a rule, ends the start with a message that names it."""
    with pytest.raises((InvalidSettings, ValueError), match=re.escape(said)):
        kinds_of(Settings(resource=[{**TABLE, **wrong}]))


def test_a_relation_of_a_kind_without_a_graph_is_refused() -> None:
    """A relation or a statement about a kind that nothing maps, or that has no graph, would do nothing: it ends the start."""
    of = {"term": "dependsOn", "of": "endpointslice", "of_name": "$.spec.a", "name": "$.spec.b", "to": "pod"}
    for wrong in (
        {"relation": [of]},
        {"states": [{"of": "other.example.org", "value": {"reason": "$.status.reason"}}]},
    ):
        with pytest.raises(InvalidSettings, match="has no graph to which a relation could be added"):
            kinds_of(Settings(resource=[{**TABLE, **wrong}]))


def test_a_relation_of_a_built_in_kind_is_stated_there() -> None:
    """A mapped object that names pods of another namespace becomes what manages them; a pod with an owner keeps its own."""
    table = {
        **TABLE,
        "relation": [
            {"term": "managedBy", "of": "pod", "each": "$.pods[*]", "of_name": "$.name", "of_namespace": "$.space", "itself": True}
        ],
    }  # fmt: skip
    surroundings = around({**CONTRACT, "resource": [table]})
    kinds = kinds_of(surroundings.settings)
    pod_kind, thing = next(each for each in kinds if each.name == "Pod"), kinds[-1]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "own", "uid": "o", "controller": True}
    named = [{"name": name, "space": "far"} for name in ("free", "owned")]
    documents = [
        (pod_kind, {"metadata": {"name": "free", "namespace": "far", "uid": "a"}}),
        (pod_kind, {"metadata": {"name": "owned", "namespace": "far", "uid": "b", "ownerReferences": [owner]}}),
        (thing, {"metadata": {"name": "t", "namespace": "near", "uid": "c"}, "pods": named}),
    ]
    for order in (documents, documents[::-1]):
        run = following_of(surroundings)
        for kind, document in order:
            run.take(change_of(kind, document))
        run.flush(everything=True)
        managers = {
            line.split("/pod/")[1].split(">")[0]: line.rpartition("<")[2][:-3]
            for line in run._sink.text().splitlines()
            if "ns#managedBy>" in line
        }
        assert managers == {
            "free": "https://kg.example/id/prod/near/thing.example.org/t",
            "owned": "https://kg.example/id/prod/far/job/own",
        }


def test_a_number_that_is_none_is_told_and_the_object_left() -> None:
    """A value that is no number or time is reported without repeating it; the object's other graphs are written."""
    table = {**TABLE, "class": "Grant", "value": {"useLimit": "$.spec.uses"}}
    surroundings = around({**CONTRACT, "resource": [table]})
    run = following_of(surroundings)
    run.take(
        change_of(
            kinds_of(surroundings.settings)[-1],
            {"metadata": {"name": "a", "namespace": "b"}, "spec": {"uses": "s3cret"}},
        )
    )
    run.flush(everything=True)

    (rejected,) = run.summary.rejected
    assert "s3cret" not in str(rejected)


IDS = st.sets(st.sampled_from("abcdef"), max_size=4)


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4),
    st.sets(st.tuples(st.sampled_from(["alice", "bob"]), st.sampled_from("abcdef"))),
)
def test_what_a_job_reads_and_what_it_writes_never_meet(
    tasks: list[tuple[set[str], set[str]]], existing: set[tuple[str, str]]
) -> None:
    """Whatever its tasks read and write, and whoever has data of these names: no data is both an input and an output of a job."""
    document = job()
    document["spec"]["tasks"] = [
        {
            "taskID": f"t{number}",
            "alias": f"t{number}",
            "parties": [{"domainID": "alice"}, {"domainID": "bob"}],
            "taskInputConfig": json.dumps({"sf_input_ids": sorted(reads), "sf_output_ids": sorted(writes)}),
        }
        for number, (reads, writes) in enumerate(tasks)
    ]
    sink, _ = follow([upserted(document), *(upserted(data(*each)) for each in sorted(existing))])

    graph = sink.graphs[JOB]
    inputs, outputs = (
        {line.rpartition("<")[2] for line in graph if f"ns#{term}>" in line and f"<{JOB}> " in line}
        for term in ("dependsOn", "produces")
    )
    assert inputs.isdisjoint(outputs)
    assert {each.rpartition("/")[2][:-3] for each in outputs} == {
        name for _, name in existing if any(name in writes for _, writes in tasks)
    }


def test_a_kind_cannot_be_mapped_twice() -> None:
    """Two tables for one kind would write one graph in turns."""
    with pytest.raises(InvalidSettings, match=r"thing\.example\.org is mapped twice"):
        kinds_of(Settings(resource=[TABLE, TABLE]))


def test_a_mapping_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    """``mappings`` takes paths beside the names of what is shipped, and says what is wrong with a file."""
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[resource]]\ngroup = "example.org"\nversion = "v1"\nplural = "things"\nkind = "Thing"\nclass = "Task"\n'
    )

    assert kinds_of(Settings(mappings=[str(file)]))[-1].segment == "thing.example.org"
    file.write_text("[[resource]]\ngroup = 1\n")
    with pytest.raises(InvalidSettings, match=r"mine\.toml: resource\.0\.group"):
        kinds_of(Settings(mappings=[str(file)]))
    with pytest.raises(InvalidSettings, match="No such file"):
        kinds_of(Settings(mappings=[str(tmp_path / "none.toml")]))


SCRAPED = """
[[resource]]
group = "example.org"
version = "v1"
plural = "things"
kind = "Thing"
class = "Task"

[[extension]]
kind = "pod"
value = { host = "$.status.podIP", metricPort = "$.metadata.annotations['x/port']" }
"""


def test_values_of_a_built_in_kind_are_stated_when_all_of_them_are_there(tmp_path: Path) -> None:
    """A pod without the annotation, or without an address yet, states none of them: no address is kept that nobody asks for."""
    file = tmp_path / "mine.toml"
    file.write_text(SCRAPED)
    surroundings = around({**CONTRACT, "mappings": [str(file)]})
    pod_kind = next(each for each in kinds_of(surroundings.settings) if each.name == "Pod")
    annotated = {"annotations": {"x/port": "9100"}}
    run = following_of(surroundings)
    for number, (metadata, status) in enumerate(
        [(annotated, {"podIP": "10.0.0.1"}), ({}, {"podIP": "10.0.0.2"}), (annotated, {})]
    ):
        meta = {"name": f"p{number}", "namespace": "n", "uid": str(number), **metadata}
        run.take(change_of(pod_kind, {"metadata": meta, "status": {"phase": "Running", **status}}))
    run.flush(everything=True)

    said = [line for line in run._sink.text().splitlines() if "ns#host>" in line or "ns#metricPort>" in line]
    assert sorted(re.sub(r".*/pod/(\w+)> <.*#(\w+)> (.*) \.", r"\1 \2 \3", line) for line in said) == [
        'p0 host "10.0.0.1"',
        'p0 metricPort "9100"',
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('value = { hots = "$.metadata.name" }', "hots"),
        ('value = { host = "$.spec.nodeName" }', r"begin with \$\.metadata\. or \$\.status\."),
        ('value = { host = "$.status.phase" }', "phase of this kind are read already"),
    ],
)
def test_an_extension_that_makes_no_sense_is_refused(tmp_path: Path, wrong: str, said: str) -> None:
    """An unknown term, a path to elsewhere, a field that the kind reads itself."""
    file = tmp_path / "mine.toml"
    file.write_text(re.sub(r"value = .*", wrong, SCRAPED))

    with pytest.raises(InvalidSettings, match=said):
        kinds_of(Settings(mappings=[str(file)]))


def test_owner_and_selector_rules_give_links() -> None:
    """The owner reference and a label selector are rules, too."""
    table = {**TABLE, "class": "DisruptionBudget", "relation": [{"term": "selects", "selector": "$.spec.selector"}]}
    owned = {
        **TABLE,
        "kind": "Step",
        "plural": "steps",
        "class": "Task",
        "relation": [{"term": "managedBy", "owner": True}],
    }
    surroundings = around({**CONTRACT, "resource": [table, owned]})
    thing, step = kinds_of(surroundings.settings)[-2:]
    run = following_of(surroundings)
    place = {"namespace": "shop", "uid": "u"}
    owner = {"apiVersion": "example.org/v1", "kind": "Thing", "name": "a", "uid": "u", "controller": True}
    for kind, document in (
        (thing, {"metadata": {"name": "a", **place}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}),
        (step, {"metadata": {"name": "b", **place, "ownerReferences": [owner]}}),
    ):
        run.take(change_of(kind, document))
    run.take(
        upserted(
            {
                "kind": "Deployment",
                "metadata": {"name": "x", **place},
                "spec": {"template": {"metadata": {"labels": {"app": "x"}}}},
            }
        )
    )
    run.flush(everything=True)

    text = run._sink.text()
    assert (
        "thing.example.org/a> <https://w3id.org/drumlin/ns#selects> <https://kg.example/id/prod/shop/deployment/x> ."
        in text
    )
    assert (
        "step.example.org/b> <https://w3id.org/drumlin/ns#managedBy> <https://kg.example/id/prod/shop/thing.example.org/a> ."
        in text
    )


def following_of(surroundings: Any) -> Any:
    """A run over any kinds."""
    from tests.memory_sink import MemorySink

    return following(MemorySink(), surroundings)


def change_of(kind: Any, document: dict[str, Any]) -> Any:
    """The change that says an object of any kind exists."""
    from drumlin.exporters.protocol import Upserted

    return Upserted(kind, msgspec.json.decode(json.dumps(document), type=kind.projection))


# -- Kuscia ---------------------------------------------------------------------------------------------------------------


def job(**task: Any) -> dict[str, Any]:
    """A job of one task."""
    spec = {
        "initiator": "alice",
        "tasks": [{"taskID": "t", "alias": "t", "parties": [{"domainID": "alice"}, {"domainID": "bob"}], **task}],
    }
    return {
        "kind": "KusciaJob",
        "apiVersion": VERSION,
        "metadata": {"name": "job", "namespace": "cross-domain", "uid": "j"},
        "spec": spec,
    }


def data(domain: str, name: str) -> dict[str, Any]:
    """Data of a domain."""
    return {
        "kind": "DomainData",
        "apiVersion": VERSION,
        "metadata": {"name": name, "namespace": domain, "uid": f"{domain}-{name}"},
        "spec": {},
    }


def produced(graph: Any) -> set[str]:
    """Whose data a job produces."""
    return {line.split("/")[-3] for line in graph if "#produces>" in line}


def test_data_that_comes_later_tells_where_it_is() -> None:
    """An output is linked when one of the parties has it, and only there, whatever the order."""
    document = job(taskInputConfig=json.dumps({"sf_output_ids": ["out"]}))
    early, _ = follow([upserted(document)])
    late, _ = follow([upserted(document), upserted(data("bob", "out"))], one_by_one=True)
    first, _ = follow([upserted(data("bob", "out")), upserted(document)])

    assert produced(early.graphs[JOB]) == set()
    assert produced(late.graphs[JOB]) == produced(first.graphs[JOB]) == {"bob"}


def test_two_that_name_each_other_as_original_both_stand() -> None:
    """Data is not lost because somebody wrote a circle; a plain copy comes and goes with its original."""

    def authored(domain: str, author: str) -> dict[str, Any]:
        return {**data(domain, "table"), "spec": {"author": author}}

    def standing(*documents: dict[str, Any]) -> set[str]:
        sink, _ = follow([upserted(each) for each in documents], one_by_one=True)
        return {
            each.split("/")[-3]
            for each, lines in sink.graphs.items()
            if "domaindata" in each and "Tombstone" not in "".join(lines)
        }

    assert standing(authored("alice", "bob"), authored("bob", "alice")) == {"alice", "bob"}
    assert standing(authored("alice", "bob"), authored("bob", "bob")) == {"bob"}
    assert standing(authored("alice", "bob")) == {"alice"}


def test_a_job_counts_in_cross_domain_only() -> None:
    """The job that a master puts into a partner's namespace is the partner's to take: it is no second job, and says nothing of tasks."""
    copied = job(dependencies=["t"])
    copied["metadata"] |= {"namespace": "partner", "uid": "other"}
    sink, run = follow([upserted(job()), upserted(copied)])

    assert [each for each in sink.graphs if "kusciajob" in each] == [JOB]
    assert run.summary.rejected == []


def test_the_hosting_domain_stays_what_is_configured() -> None:
    """A Domain object of the same name does not fight with the configuration over one graph."""
    domain = {"kind": "Domain", "apiVersion": VERSION, "metadata": {"name": "glaciation-node1", "uid": "d"}}
    sink, run = follow([upserted(domain)])

    assert sink.owners["https://kg.example/id/domain/glaciation-node1"] == "drumlin"
    assert run.summary.rejected == []


def test_a_domain_that_is_gone_leaves_a_tombstone_and_a_restart_writes_nothing() -> None:
    """Domains stand outside of the cluster's ids and are remembered all the same."""
    from tests.unit.rendering import gone, synced

    domain = {"kind": "Domain", "apiVersion": VERSION, "metadata": {"name": "bob", "uid": "d"}}
    sink, _ = follow([upserted(domain), *synced()])
    before = sink.generation
    follow([upserted(domain), *synced()], sink)
    assert sink.generation == before
    follow([*synced()], sink)
    assert any("Tombstone" in line for line in sink.graphs["https://kg.example/id/domain/bob"])
    sink, _ = follow([upserted(domain), gone(domain)], one_by_one=True)
    assert any("Tombstone" in line for line in sink.graphs["https://kg.example/id/domain/bob"])


TABLES = [ResourceSettings.model_validate(each) for each in tomllib.loads(KUSCIA)["resource"]]


def test_the_shipped_mapping_names_nothing_that_may_be_secret() -> None:
    """No path of it leads to a certificate, key, token, signature or encrypted field."""
    named = [where for table in TABLES for where in paths_of(table)]

    assert len(named) > 20
    assert [
        each
        for each in named
        if re.search(
            r"cert|key|token|signature|encrypt|secret\b|\.data\b|auth|header|message|terminationLog",
            each,
            re.IGNORECASE,
        )
        and each not in ("$.spec.author", "$.spec.authenticationType")
    ] == []


@pytest.mark.skipif(
    not CRDS.is_dir() and os.environ.get("CI") != "true", reason="no CRDs at ../shared/data/secretflow+kuscia"
)
@pytest.mark.parametrize("table", TABLES, ids=lambda each: each.plural)
def test_every_path_of_the_shipped_mapping_is_a_field_of_the_crd(table: ResourceSettings) -> None:
    """Group, version, scope and each path up to a nested text stand in Kuscia's own definition."""
    definition = yaml.safe_load((CRDS / f"{table.group}_{table.plural}.yaml").read_text())

    assert mismatches(table, definition) == []


def test_a_mapping_that_does_not_fit_its_definition_is_told_line_by_line() -> None:
    """Another scope, kind or version, and each path to a field that the schema does not have, are named."""
    schema = {"properties": {"spec": {"properties": {"steps": {"items": {"properties": {"name": {}}}}}}}}
    definition = {
        "spec": {
            "group": "example.org",
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        }
    }
    table = ResourceSettings.model_validate(
        {**TABLE, "value": {"title": "$.spec.steps[*].name", "host": "$.spec.steps[*].hots"}}
    )

    assert mismatches(table, definition) == [
        "its objects are Cluster, so namespaced = false",
        "$.spec.steps[*].hots is not a field of v1",
    ]
    assert mismatches(table.model_copy(update={"version": "v2", "kind": "Other"}), definition) == [
        "the kind is Thing, not Other",
        "its objects are Cluster, so namespaced = false",
        "there is no version v2",
    ]
