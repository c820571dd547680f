"""The rights that are asked for are the kinds that are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from drumlin.api.cli.main import app
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.kubernetes.rbac import manifests
from drumlin.kg.errors import InvalidSettings

ROOT = Path(__file__).resolve().parents[2]


def _role() -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy" / "rbac.yaml").read_text(encoding="utf-8"))
    role: dict[str, Any] = next(each for each in documents if each["kind"] == "ClusterRole")
    return role


def test_the_role_names_exactly_the_kinds_that_are_followed() -> None:
    """A kind without its right would be forbidden, a right without its kind would be too much."""
    granted = {
        (group, plural) for rule in _role()["rules"] for group in rule["apiGroups"] for plural in rule["resources"]
    }

    assert granted == {(kind.group, kind.plural) for kind in KINDS}


def test_the_shipped_manifest_is_what_the_table_of_kinds_gives() -> None:
    """The file is generated; ``drumlin rbac > deploy/rbac.yaml`` writes it anew."""
    assert (ROOT / "deploy" / "rbac.yaml").read_text(encoding="utf-8") == manifests(KINDS)


def test_events_are_not_followed() -> None:
    """Rule 7: Events are not in the API server's watch cache, and their watches end in busy loops."""
    assert not [kind for kind in KINDS if kind.plural == "events"]


def test_no_right_is_asked_for_what_holds_secrets() -> None:
    """Secrets, ConfigMaps, subresources and wildcards are nowhere in the role."""
    granted = {plural for rule in _role()["rules"] for plural in rule["resources"]}

    assert not granted & {"secrets", "configmaps", "*", "nodes/proxy", "pods/exec", "pods/log"}
    assert not [plural for plural in granted if "/" in plural or "*" in plural]
    assert not [rule for rule in _role()["rules"] if "*" in rule["apiGroups"]]


def test_the_role_only_reads() -> None:
    """No verb changes anything, and no wildcard hides one."""
    assert {verb for rule in _role()["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_the_page_on_kubernetes_names_every_kind() -> None:
    """What is read is documented, kind by kind."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")

    assert [kind.plural for kind in KINDS if kind.plural not in page] == []


def test_the_command_prints_the_rights_of_custom_resources_too(tmp_path: Path) -> None:
    """A mapped kind needs its right; the printed manifest has it, and still reads only."""
    config = tmp_path / "drumlin.toml"
    config.write_text('mappings = ["kuscia"]\n')
    run = CliRunner().invoke(app, ["rbac", "--config", str(config), "--account", "ops"])
    account, role, binding = yaml.safe_load_all(run.stdout)

    assert run.exit_code == 0
    (kuscia,) = [each for each in role["rules"] if each["apiGroups"] == ["kuscia.secretflow"]]
    assert kuscia["resources"] == sorted(kuscia["resources"])
    assert {"domains", "kusciajobs", "domaindatagrants"} <= set(kuscia["resources"])
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert account["metadata"]["namespace"] == binding["subjects"][0]["namespace"] == "ops"


def test_one_namespace_takes_a_role_there_and_nothing_of_the_cluster() -> None:
    """``--namespace`` gives exactly the kinds that stand in namespaces, in a Role and a RoleBinding, to the account elsewhere."""
    run = CliRunner().invoke(app, ["rbac", "--namespace", "shop"])
    account, role, binding = yaml.safe_load_all(run.stdout)

    assert run.exit_code == 0
    assert (role["kind"], binding["kind"], binding["roleRef"]["kind"]) == ("Role", "RoleBinding", "Role")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "shop"
    assert account["metadata"]["namespace"] == binding["subjects"][0]["namespace"] == "drumlin"
    granted = {(group, plural) for rule in role["rules"] for group in rule["apiGroups"] for plural in rule["resources"]}
    assert granted == {(kind.group, kind.plural) for kind in KINDS if kind.namespaced}
    assert all(rule["resources"] for rule in role["rules"])


@pytest.mark.parametrize("option", ["--namespace", "--account"])
def test_what_is_no_namespace_gives_no_manifest(option: str) -> None:
    """A name that no namespace can have is refused before anything is printed that kubectl would be given."""
    run = CliRunner().invoke(app, ["rbac", option, "Bad Name!"])

    assert run.exit_code == 1
    assert isinstance(run.exception, InvalidSettings)
    assert run.stdout == ""


def test_an_election_takes_the_right_to_one_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Lease in the settings the command grants that one by name, where it stands, and no other right to write."""
    monkeypatch.setenv("DRUMLIN_ELECTION__LEASE", "map")
    monkeypatch.setenv("DRUMLIN_ELECTION__NAMESPACE", "monitoring")
    documents = list(yaml.safe_load_all(CliRunner().invoke(app, ["rbac"]).stdout))
    role, binding = documents[-2:]

    assert [each["kind"] for each in (role, binding)] == ["Role", "RoleBinding"]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {"monitoring"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "drumlin", "namespace": "drumlin"}]
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in role["rules"]] == [
        (["create"], None),
        (["get", "update"], ["map"]),
    ]
    assert {(*rule["apiGroups"], *rule["resources"]) for rule in role["rules"]} == {("coordination.k8s.io", "leases")}
    reading = next(each for each in documents if each["kind"] == "ClusterRole")
    assert all(set(rule["verbs"]) == {"get", "list", "watch"} for rule in reading["rules"])
