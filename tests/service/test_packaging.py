"""What is installed: one package, from a wheel, from a source archive and from the repository, whatever files lie where it is started."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import ROOT, SAMPLE, Service, until_ready

FOLDERS = ("api", "exporters", "kg", "ontology", "queries")


def _build(tree: Path, target: str, directory: Path) -> Path:
    """Build an archive of a tree as ``pip`` does, and return it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the repository."""
    return _build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files named as the folders of the repository; none may ever be imported."""
    directory = tmp_path_factory.mktemp("hostile")
    for name in FOLDERS:
        (directory / f"{name}.py").write_text('raise ImportError("the file of the folder that this was started in")\n')
    return directory


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of a fresh environment with the wheel; what it depends on is taken from the tests' own environment."""
    directory = tmp_path_factory.mktemp("environment")
    venv.create(directory, with_pip=False)
    scheme = {"base": str(directory), "platbase": str(directory)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = directory / "bin" / "python"
    install = ["-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    return directory / "bin"


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_holds_one_package(wheel: Path) -> None:
    """Nothing called ``api`` or ``ontology`` lands beside what others have installed; data files come along."""
    names = _contents(wheel)

    assert {name.partition("/")[0] for name in names} == {"drumlin"}
    for needed in (
        "py.typed",
        "ontology/metrics.ttl",
        "queries/application.rq",
        "exporters/kuscia/kuscia.toml",
        "exporters/workflows/argo.toml",
    ):
        assert f"drumlin/{needed}" in names


def test_a_source_archive_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Who builds from the source archive installs what the repository does."""
    archive = _build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()

    assert _contents(_build(tree, "wheel", tmp_path / "wheel")) == _contents(wheel)


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_files_where_it_is_started_are_not_imported(editable: bool, installed: Path, hostile: Path) -> None:
    """A data scientist's ``ontology.py`` breaks neither the client nor the command."""
    binaries = Path(sys.executable).parent if editable else installed
    code = "import drumlin, drumlin.api.app, drumlin.exporters.kubectl.dump, drumlin.queries.catalogue; print(drumlin.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    found = subprocess.run(
        [binaries / "python", "-c", code], cwd=hostile, env=environment, capture_output=True, text=True, check=False
    )
    load = [binaries / "drumlin", "load", str(SAMPLE), "--store", str(hostile / f"store-{editable}")]
    loaded = subprocess.run(load, cwd=hostile, env=environment, capture_output=True, text=True, check=False)

    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(str(ROOT if editable else installed.parent))
    assert loaded.returncode == 0, loaded.stderr


@pytest.fixture
def service(installed: Path, hostile: Path) -> Iterator[Service]:
    """An installed service, started among the hostile files."""
    command = [installed / "drumlin", "serve", "--port", "0", "--source", f"dump:{SAMPLE}", "--cluster", "prod"]
    process = subprocess.Popen(command, cwd=hostile, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    running = Service(process)
    try:
        yield running
    finally:
        running.stop()


def test_an_installed_service_and_its_processes_run_anywhere(service: Service) -> None:
    """Queries (run by reader processes), updates (by another) and bulk writes work in a folder with files of those names."""
    until_ready(service)
    count = {"query": "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"}

    assert httpx.get(f"{service.url}/sparql", params=count).status_code == 200
    update = "INSERT { GRAPH <https://x.example/g> { ?s <https://x.example/p> 1 } } WHERE { ?s a ?c }"
    assert httpx.post(f"{service.url}/sparql/update", data={"update": update}).status_code == 204
    assert httpx.get(f"{service.url}/search", params={"q": "checkout"}).json()["items"]
