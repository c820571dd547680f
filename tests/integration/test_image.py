"""The container image: built from Debian packages and the locked wheels, unpacked again, and run in namespaces of its own.

It takes half a minute of processor time, so it runs in CI and by `make image-test`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "deploy" / "image.py"
UID = 10001
INSIDE = """
import json, os, signal, subprocess, sys, time, urllib.request

def ask(path):
    with urllib.request.urlopen("http://127.0.0.1:8080" + path, timeout=5) as answer:
        return json.load(answer)

def status():
    try:
        return ask("/readyz")["status"]
    except OSError:  # not listening yet, or 503
        return None

sample = ["--source", "dump:/app/site/drumlin/api/demo/cluster", "--cluster", "prod"]
service = subprocess.Popen([*json.loads(sys.argv[1]), "serve", "--store", "/data/store", *sample])
deadline = time.monotonic() + 60
while status() != "ready" and service.poll() is None and time.monotonic() < deadline:
    time.sleep(0.1)
try:
    open("/app/x", "w")
    writable = True
except OSError:
    writable = False
with open(f"/proc/{service.pid}/status") as lines:
    capabilities = [line.split()[1] for line in lines if line.startswith(("CapEff", "CapPrm"))]
told = {
    "ready": status(),
    "pods": ask("/search?type=Pod&facet=none&limit=1")["total"],
    "page": ask("/doc/prod/payments/deployment/checkout")["name"],
    "uid": os.getuid(),
    "writable": writable,
    "capabilities": capabilities,
}
service.send_signal(signal.SIGTERM)
print(json.dumps({**told, "exit": service.wait(20)}))
"""


@pytest.fixture(scope="module")
def _needed() -> None:
    if os.environ.get("CI") != "true" and "IMAGE_TEST" not in os.environ:
        pytest.skip("make image-test builds the image and runs it")
    missing = [each for each in ("apt-get", "umoci", "strip", "bwrap") if shutil.which(each) is None]
    if missing or sys.version_info[:2] != (3, 11):
        reason = (
            f"the image is built on Debian 12 with its Python 3.11; not here: {', '.join(missing) or 'Python 3.11'}"
        )
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that another user may enter."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def build(*arguments: str) -> str:
    """Run a step of the build in a process of its own, as the Makefile does."""
    done = subprocess.run([sys.executable, BUILD, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("_needed")
def test_the_image_serves_the_sample_cluster_from_a_read_only_root(place: Path) -> None:
    """As user 10001 without capabilities or a network; ready with all pods, and done within the time of SIGTERM.

    It has no shell; its bill of materials and labels are there.
    """
    root, layout = place / "root", place / "image"
    build("root", str(root))
    build("pack", str(root), str(layout))
    shutil.rmtree(root)
    subprocess.run(["umoci", "unpack", "--rootless", "--image", f"{layout}:drumlin", str(place / "bundle")], check=True)
    (place / "bundle").chmod(0o755)

    rootfs = place / "bundle" / "rootfs"
    config = image_config(layout)
    assert config["User"] == f"{UID}:{UID}"
    assert config["Volumes"] == {"/data": {}}
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert not [
        each for each in ("bin/sh", "usr/bin/sh", "usr/bin/perl", "usr/bin/apt-get") if (rootfs / each).exists()
    ]
    bill = json.loads((rootfs / "usr/share/doc/drumlin/sbom.cdx.json").read_bytes())
    assert {"drumlin", "pyoxigraph", "libc6", "libssl3"} <= {each["name"] for each in bill["components"]}
    size = sum(each.stat().st_size for each in rootfs.rglob("*") if each.is_file() and not each.is_symlink())
    assert size < 360e6

    told = run_inside(rootfs, place, config["Entrypoint"], config["Env"])
    assert (told["ready"], told["pods"], told["page"], told["exit"]) == ("ready", 38, "checkout", 0)
    assert (told["uid"], told["writable"]) == (UID, False)
    assert set(told["capabilities"]) == {"0" * 16}


@pytest.mark.usefixtures("_needed")
def test_the_same_files_give_the_same_digest(place: Path) -> None:
    """Whenever they are packed, in whatever order they were made, and whoever owns them."""
    for name, order in (("a", ("data", "etc", "usr")), ("b", ("usr", "data", "etc"))):
        for each in order:
            (place / name / each).mkdir(parents=True)
            (place / name / each / "file").write_text(each)
            os.utime(place / name / each / "file", (1.0, 1.0))
            os.utime(place / name / each, (1.0, 1.0))

    digests = {build("pack", str(place / each), str(place / f"image-{each}")) for each in ("a", "b")}
    assert len(digests) == 1


def image_config(layout: Path) -> dict[str, Any]:
    """Return the configuration of the one image of a layout."""

    def blob(descriptor: dict[str, Any]) -> Any:
        return json.loads((layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes())

    (manifest,) = json.loads((layout / "index.json").read_bytes())["manifests"]
    found: dict[str, Any] = blob(blob(manifest)["config"])["config"]
    return found


def run_inside(rootfs: Path, directory: Path, entry: list[str], environment: list[str]) -> dict[str, Any]:
    """Run the service in namespaces of its own, with a program beside it that asks it; return what that saw."""
    data = directory / "data"
    data.mkdir()
    root = os.getuid() == 0
    if root:
        os.chown(data, UID, UID)
    become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"] if root else []
    sandbox = [
        *(
            "bwrap",
            "--unshare-all",
            "--uid",
            str(UID),
            "--gid",
            str(UID),
            "--cap-drop",
            "ALL",
            "--die-with-parent",
            "--clearenv",
        ),
        *(
            "--ro-bind",
            str(rootfs),
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            "--bind",
            str(data),
            "/data",
        ),
        *("--chdir", "/data"),
        *(part for each in environment for part in ("--setenv", *each.split("=", 1))),
    ]
    command = [*become, *sandbox, "/usr/bin/python3.11", "-c", INSIDE, json.dumps(entry)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told
