"""The Helm chart and the Kustomize base: rendered by helm and kubectl, held to Kubernetes' schemas, to `drumlin rbac` and to the settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import kubernetes_validate
import pytest
import yaml

from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.kubernetes.rbac import manifests
from drumlin.kg.config.settings import Settings
from tests import javascript_packages
from tests.fake_apiserver.clusters import real_cluster, why_no_real_cluster

ROOT = Path(__file__).resolve().parents[2]
CHART, TOOLS = ROOT / "deploy" / "chart", ROOT / ".tools"
VALUES = {
    **{each.name.removesuffix("-values.yaml"): each for each in sorted((CHART / "ci").glob("*.yaml"))},
    **{each: ROOT / "examples" / each / "drumlin.yaml" for each in ("glaciation", "kuscia")},
}
KUBERNETES = "1.37"
MEASURED_MB, READER_MB, WORKERS_MB = 463, 40, 128
"""Peak of the service with its store, an idle reader, two workers: docs/benchmarks.md, docs/readers.md, docs/operations.md."""
Manifest = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    if not (TOOLS / "helm").exists():
        reason = "helm and kubectl are not here: make tools"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run helm or kubectl."""
    return subprocess.run([str(TOOLS / command[0]), *command[1:]], capture_output=True, text=True, check=False)


@cache
def rendered(name: str, *options: str) -> tuple[Manifest, ...]:
    """Return the manifests of the chart with a set of values."""
    values = ("--values", str(VALUES[name]), "--namespace", "kg", "--kube-version", f"{KUBERNETES}.0")
    done = run("helm", "template", "drumlin", str(CHART), *values, *options)
    assert done.returncode == 0, done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def of_kind(name: str, *kinds: str) -> list[Manifest]:
    """Return the manifests of some kinds."""
    return [each for each in rendered(name) if each["kind"] in kinds]


def settings_of(name: str, tmp_path: Path) -> Settings:
    """Read the configuration that a release would have, as `drumlin serve` reads it."""
    (found,) = [each for each in of_kind(name, "ConfigMap") if "drumlin.toml" in each["data"]]
    path = tmp_path / "drumlin.toml"
    path.write_text(found["data"]["drumlin.toml"], encoding="utf-8")
    return Settings.load(path)


def pods(name: str) -> Iterator[tuple[str, Manifest]]:
    """Yield the pod templates of a release, by the kind that has them."""
    for each in of_kind(name, "StatefulSet", "Deployment", "CronJob"):
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
        yield each["kind"], spec["template"]["spec"]


@pytest.mark.parametrize("name", VALUES)
def test_each_set_of_values_is_linted_and_valid(name: str) -> None:
    """Helm's strict linter, and the schemas of Kubernetes; prometheus-operator's kinds by the models of its definitions."""
    done = run("helm", "lint", "--strict", str(CHART), "--values", str(VALUES[name]))
    assert done.returncode == 0, done.stdout

    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered(name)]
    assert len(names) == len(set(names))
    own = [each for each in rendered(name) if each["apiVersion"] != "monitoring.coreos.com/v1"]
    for each in own:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    if custom := [each for each in rendered(name) if each not in own]:
        assert invalid(custom) == []
        broken = json.loads(json.dumps(custom[0]).replace('"endpoints"', '"endpoint"'))
        assert invalid([broken])


def invalid(objects: Sequence[Manifest]) -> list[str]:
    """Return what models of the custom resources say against objects."""
    javascript_packages.install()
    command = ["node", str(javascript_packages.FOLDER / "models.mjs")]
    done = subprocess.run(command, input=json.dumps(objects), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong: list[str] = json.loads(done.stdout)
    return wrong


@pytest.mark.parametrize("name", VALUES)
def test_pods_meet_the_restricted_standard(name: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted; and nothing is written but to volumes."""
    found = list(pods(name))
    assert found
    for _, pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        kinds = {key for volume in pod["volumes"] for key in volume if key != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        for each in pod["containers"]:
            context = each["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
            assert each["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", VALUES)
def test_the_configuration_is_one_that_drumlin_takes(name: str, tmp_path: Path) -> None:
    """As TOML, with what follows from other values; somebody may call the service, else it would not start."""
    settings = settings_of(name, tmp_path)

    assert {"drumlin", "drumlin.kg", "drumlin.kg.svc"} <= set(settings.hosts)
    assert settings.takes_signed_tokens or settings.anonymous or settings.tokens
    assert kinds_of(settings)
    if name == "glaciation":
        assert {each.id for each in settings.domain.site} == {"gnode-east", "gnode-west"}
        assert {each.kind for each in settings.datasource} == {"prometheus", "loki", "influxdb", "grafana"}
    if name == "remote-store":
        assert (settings.election.lease, settings.election.namespace) == ("drumlin", "kg")


@pytest.mark.parametrize("name", [each for each in VALUES if each != "kuscia"])
def test_rights_are_those_that_drumlin_rbac_prints(name: str, tmp_path: Path) -> None:
    """No right is missing and none is more, in the cluster or in one namespace, with mappings, optional kinds and an election."""
    settings = settings_of(name, tmp_path)
    inside = yaml.safe_load(VALUES[name].read_text()).get("rbac", {}).get("namespace")
    printed = yaml.safe_load_all(manifests(kinds_of(settings), "kg", inside, settings.election))

    def rights(objects: Sequence[Manifest]) -> set[tuple[str, ...]]:
        return {
            (each["kind"], each["metadata"].get("namespace", ""), group, plural, verb, *rule.get("resourceNames", []))
            for each in objects
            if each["kind"] in ("Role", "ClusterRole")
            for rule in each["rules"]
            for group in rule["apiGroups"]
            for plural in rule["resources"]
            for verb in rule["verbs"]
        }

    assert rights(rendered(name)) == rights(list(printed))
    bound = {each["roleRef"]["name"] for each in of_kind(name, "RoleBinding", "ClusterRoleBinding")}
    assert bound - {"system:auth-delegator"} == {
        each["metadata"]["name"] for each in of_kind(name, "Role", "ClusterRole")
    }


def test_a_store_in_a_directory_has_one_process_and_one_elsewhere_several() -> None:
    """A StatefulSet with one replica and a volume; or a Deployment, a budget, and no volume that lasts."""
    (stateful,) = of_kind("defaults", "StatefulSet", "Deployment")
    assert (stateful["kind"], stateful["spec"]["replicas"]) == ("StatefulSet", 1)
    assert [each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]] == ["data"]
    assert not of_kind("defaults", "PodDisruptionBudget")

    (several,) = of_kind("remote-store", "StatefulSet", "Deployment")
    assert (several["kind"], several["spec"]["replicas"]) == ("Deployment", 3)
    assert "--store=sparql+http://oxigraph.rdf.svc:7878" in several["spec"]["template"]["spec"]["containers"][0]["args"]
    assert of_kind("remote-store", "PodDisruptionBudget")


def test_the_memory_limit_counts_the_readers(tmp_path: Path) -> None:
    """The service's measured peak, its workers, and each reader with the largest query that it may run; and SIGTERM has its time."""
    settings = settings_of("defaults", tmp_path)
    ((_, pod),) = pods("defaults")
    limit = int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    readers = (settings.readers or 0) * (settings.query_memory + (READER_MB << 20))

    assert settings.readers
    assert limit >= ((MEASURED_MB + WORKERS_MB) << 20) + readers
    assert pod["terminationGracePeriodSeconds"] >= 15  # it ends within 10


def test_the_table_of_sizes_counts_the_readers_too() -> None:
    """docs/deployment.md, "Sizing": peak, workers, and readers with their queries fit into the limit of each row."""
    text = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8").partition("## Sizing")[2]
    rows = re.findall(r"^\| [\d,]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE)

    assert len(rows) == 3
    for peak, readers, memory, limit in (map(int, row) for row in rows):
        assert peak + WORKERS_MB + readers * (memory + READER_MB) <= limit


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("replica=2", "replica"),
        ("terminationGracePeriodSeconds=5", "terminationGracePeriodSeconds"),
        ("config.cluster=a/b", "cluster"),
        ("store.remote=http://x", "remote"),
        ("secrets={a b}", "secrets"),
    ],
)
def test_values_that_are_wrong_are_refused(value: str, word: str) -> None:
    """values.schema.json names what is misspelt or out of range."""
    done = run("helm", "template", "drumlin", str(CHART), "--set", value)

    assert done.returncode != 0
    assert word in done.stderr


def test_every_value_is_in_the_schema_and_in_the_readme() -> None:
    """The schema is one, knows exactly the values that there are, and the README names each."""
    schema = json.loads((CHART / "values.schema.json").read_bytes())
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    readme = (CHART / "README.md").read_text(encoding="utf-8")

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name, value in values.items():
        if (
            isinstance(value, dict)
            and "properties" in schema["properties"][name]
            and name not in ("config", "resources")
        ):
            assert schema["properties"][name]["properties"].keys() == value.keys(), name
            assert [each for each in value if f".{each}" not in readme] == [], name
        else:
            assert f"`{name}`" in readme, name


def test_links_of_the_graph_lead_to_the_dashboards_that_are_provisioned(tmp_path: Path) -> None:
    """Each dashboard is a ConfigMap that Grafana's sidecar finds; the pages' links have its uid and its variables."""
    maps = [
        each
        for each in of_kind("everything", "ConfigMap")
        if each["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    boards = {board["uid"]: board for each in maps for board in map(json.loads, each["data"].values())}
    (grafana,) = [each for each in settings_of("everything", tmp_path).datasource if each.kind == "grafana"]

    assert len(boards) == 5
    assert set(grafana.dashboards) == {"workload", "node", "domain", "logs"}
    for url in grafana.dashboards.values():
        parts = urlsplit(url)
        board = boards[parts.path.removeprefix("/d/")]
        variables = {f"var-{each['name']}": each for each in board["templating"]["list"]}
        assert parse_qs(parts.query).keys() <= variables.keys()
        assert variables["var-drumlin"]["query"] == "https://kg.example"


def test_what_is_made_of_something_else_is_up_to_date() -> None:
    """The table of rights and the Kustomize base; the base can be built, is valid, and stands in its namespace."""
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts/chart", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr

    built = run("kubectl", "kustomize", str(ROOT / "deploy" / "kustomize" / "base"))
    assert built.returncode == 0, built.stderr
    for each in yaml.safe_load_all(built.stdout):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
        assert each["metadata"].get("namespace", "drumlin") == "drumlin"
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Kustomize"


def test_examples_are_yaml_and_scrape_what_the_service_lists() -> None:
    """Values of other charts are mappings; the addresses of service discovery are lists that there are."""
    lists = {each.stem.removeprefix("targets-") for each in (ROOT / "queries").glob("targets-*.rq")}
    texts = [each.read_text(encoding="utf-8") for each in sorted((ROOT / "examples").glob("*/*.y*ml"))]

    assert all(isinstance(yaml.safe_load(each), dict) for each in texts)
    used = {name for text in texts for name in re.findall(r"/sd/(\w+)", text)}
    assert used
    assert used <= lists


@pytest.mark.skipif(why_no_real_cluster() is not None, reason=str(why_no_real_cluster()))
def test_a_real_api_server_takes_it(tmp_path: Path) -> None:
    """A dry run on the server, where KUBEBUILDER_ASSETS names one; kinds of prometheus-operator are not installed there."""
    with real_cluster(tmp_path) as cluster:
        access = (
            "--server",
            cluster.url,
            "--token",
            str(cluster.token),
            "--certificate-authority",
            str(cluster.ca_file),
        )
        assert run("kubectl", *access, "create", "namespace", "kg").returncode == 0
        for name in VALUES:
            path = tmp_path / f"{name}.yaml"
            known = [each for each in rendered(name) if each["apiVersion"] != "monitoring.coreos.com/v1"]
            path.write_text(
                yaml.safe_dump_all(each for each in known if each["metadata"].get("namespace", "kg") == "kg")
            )
            done = run("kubectl", *access, "create", "--dry-run=server", "--filename", str(path))
            assert done.returncode == 0, done.stderr
