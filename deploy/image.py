"""Build the image of the service without a registry: Debian packages and the locked wheels → a root file system → an OCI layout.

``root DIRECTORY`` makes the root file system; deploy/Containerfile runs it too. ``pack ROOT LAYOUT`` writes the layout with the
configuration that the Containerfile states, by umoci. Nothing of it needs root. The same commit and the same packages give the same digest:
all times are ``SOURCE_DATE_EPOCH``, else the commit's. https://github.com/opencontainers/image-spec
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
PYTHON = "python3.11"
UID = 10001
PACKAGES = (
    *("base-files", "netbase", "tzdata", "media-types", "ca-certificates", "tini"),
    *(
        "libc6",
        "libgcc-s1",
        "libstdc++6",
        "libcrypt1",
        "zlib1g",
        "libssl3",
        "libexpat1",
        "libffi8",
        "libbz2-1.0",
        "liblzma5",
    ),
    *("libsqlite3-0", "libuuid1", f"{PYTHON}-minimal", f"lib{PYTHON}-minimal", f"lib{PYTHON}-stdlib"),
)
"""What Debian's Python needs, and no shell. No script of a package runs."""
UNUSED = (
    *(
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "usr/share/lintian",
        "usr/share/bug",
        "usr/share/zoneinfo/right",
    ),
    *(
        "usr/lib/*/gconv",
        "usr/lib/*/perl-base",
        "usr/sbin",
        "sbin",
        "etc/apt",
        "etc/dpkg",
        "etc/update-motd.d",
        "var/lib/dpkg",
    ),
    *("app/site/pyarrow/tests", "app/site/pyarrow/include", "app/site/pyarrow/src", "app/site/pyarrow/*flight*"),
    *("app/site/pyarrow/*s3*", "app/site/pyarrow/**/*.pyx", "app/site/pyarrow/**/*.pxd", "app/site/pyarrow/**/*.pxi"),
    *("app/site/kubernetes/aio", "app/site/zstandard/_cffi*", "app/site/bin", "app/site/**/__pycache__"),
    *("app/site/*.dist-info/RECORD", "app/site/*.dist-info/INSTALLER", "app/site/*.dist-info/REQUESTED"),
)
"""Patterns of what neither Python nor the service reads, a third of all bytes."""
_OPTIONS = {
    "ENV": "env",
    "WORKDIR": "workingdir",
    "VOLUME": "volume",
    "EXPOSE": "exposedports",
    "STOPSIGNAL": "stopsignal",
    "USER": "user",
    "LABEL": "label",
}
"""Instruction of a Containerfile → umoci's option."""
SBOM = "usr/share/doc/drumlin/sbom.cdx.json"


def make_root(root: Path) -> None:
    """Make the root file system in an empty directory: the steps, in their order."""
    if sys.version_info[:2] != (3, 11):
        sys.exit("the image has Debian's Python 3.11, and its wheels are chosen for that: make PYTHON=python3.11 image")
    root.mkdir(parents=True)
    debian = unpack_packages(root)
    python = install_packages(root)
    remove_unused(root)
    strip_libraries(root)
    write_files(root)
    compile_bytecode(root)
    write_sbom(root, debian, python)
    settle(root)


def unpack_packages(root: Path) -> list[tuple[str, str, str]]:
    """Unpack Debian's packages; return name, version and architecture of each."""
    found = []
    with tempfile.TemporaryDirectory() as cache:
        run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=", *PACKAGES, cwd=cache, quiet=True)
        for each in sorted(Path(cache).glob("*.deb")):
            run("dpkg-deb", "-x", str(each), str(root))
            told = run("dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", str(each))
            name, version_, architecture = told.split()
            found.append((name, version_, architecture))
    return found


def install_packages(root: Path) -> list[tuple[str, str]]:
    """Copy what the project needs at run time from the environment, where the lock put it by its hashes, and unpack the project's wheel."""
    needed = sorted(runtime_packages())
    site = root / "app" / "site"
    for each in needed:
        for file in distribution(each).files or ():
            if ".." not in file.parts and file.suffix != ".pyc":  # scripts lie elsewhere
                place = site / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), place)
    with tempfile.TemporaryDirectory() as cache:
        build = (
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            cache,
        )
        run(sys.executable, "-m", "pip", *build, str(PROJECT), quiet=True)
        (own,) = Path(cache).glob("drumlin-*.whl")
        with zipfile.ZipFile(own) as wheel:
            wheel.extractall(site)  # noqa: S202  our own
    return [*((each, version(each)) for each in needed), ("drumlin", version("drumlin"))]


def runtime_packages() -> set[str]:
    """Return the names of the packages that the project needs to run, and what these need."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [("drumlin", frozenset[str]())]
    while waiting:
        name, extras = each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        for requirement in map(Requirement, distribution(name).requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
                waiting.append((normal(requirement.name), frozenset(requirement.extras)))
    return {name for name, _ in seen} - {"drumlin"}


def normal(name: str) -> str:
    """Return the normalised name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def remove_unused(root: Path) -> None:
    """Remove what nothing reads; the licences of Debian's packages stay."""
    for licence in sorted(root.glob("usr/share/doc/*/copyright")):
        kept = root / "usr/share/licenses" / licence.parent.name
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(licence, kept / "copyright")  # some are links
    for pattern in UNUSED:
        for each in list(root.glob(pattern)):
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink(missing_ok=True)


def strip_libraries(root: Path) -> None:
    """Take the symbols out of shared libraries that only debuggers read."""
    libraries = [str(each) for each in sorted(root.rglob("*.so*")) if each.is_file() and not each.is_symlink()]
    run("strip", "--strip-unneeded", *(each for each in libraries if Path(each).read_bytes()[:4] == b"\x7fELF"))


def write_files(root: Path) -> None:
    """Write what scripts of packages would have made: the certificates in one file, the user, the directories."""
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(each.read_text(encoding="ascii") for each in certificates), encoding="ascii")
    nobody = "/data:/usr/sbin/nologin\n"
    (root / "etc/passwd").write_text(
        f"root:x:0:0:root:{nobody}drumlin:x:{UID}:{UID}:drumlin:{nobody}", encoding="ascii"
    )
    (root / "etc/group").write_text(f"root:x:0:\ndrumlin:x:{UID}:\n", encoding="ascii")
    for each in ("data", "tmp", "proc", "sys", "dev", "etc/drumlin"):
        (root / each).mkdir(exist_ok=True)


def compile_bytecode(root: Path) -> None:
    """Compile everything once, since the file system is read-only: a start takes 0.8 s less."""
    compiling = (
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(root),
        "-p",
        "/",
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    for each in ("app/site", f"usr/lib/{PYTHON}"):
        run(sys.executable, *compiling, str(root / each), environment=environment)


def write_sbom(root: Path, debian: Sequence[tuple[str, str, str]], python: Sequence[tuple[str, str]]) -> None:
    """Write what the image is made of (https://cyclonedx.org/docs/1.6/json/)."""
    components = [
        component(
            name,
            it,
            f"pkg:deb/debian/{name.replace('+', '%2B')}@{it.replace(':', '%3A')}?arch={architecture}&distro=debian-12",
        )
        for name, it, architecture in debian
    ]
    components += [component(name, it, f"pkg:pypi/{name}@{it}") for name, it in python]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": f"{moment():%Y-%m-%dT%H:%M:%SZ}",
            "component": {"type": "container", "name": "drumlin", "version": version("drumlin")},
        },
        "components": components,
    }
    path = root / SBOM
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


def component(name: str, version_: str, purl: str) -> dict[str, str]:
    """Return one entry of the bill."""
    return {"type": "library", "bom-ref": purl, "name": name, "version": version_, "purl": purl}


def settle(root: Path) -> None:
    """Give all files the same modes on every machine, and the one time: a umask and a clock are in no digest."""
    seconds = moment().timestamp()
    for each in [root, *root.rglob("*")]:
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() or each.stat().st_mode & 0o100 else 0o644)
        os.utime(each, (seconds, seconds), follow_symlinks=False)
    (root / "tmp").chmod(0o1777)
    if os.getuid() == 0:  # in a Containerfile's build; the layer that ``pack`` writes has it in any case
        os.chown(root / "data", UID, UID)


def moment() -> datetime:
    """Return the time that everything in the image has."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "-C", str(PROJECT), "log", "-1", "--format=%ct")
    return datetime.fromtimestamp(int(seconds), UTC)


def pack(root: Path, layout: Path) -> str:
    """Write the OCI layout of a root file system, tagged ``drumlin``; return the digest of its manifest."""
    created, image = f"{moment():%Y-%m-%dT%H:%M:%SZ}", f"{layout}:drumlin"
    revision = os.environ.get("REVISION") or run("git", "-C", str(PROJECT), "rev-parse", "HEAD")
    said = {"VERSION": version("drumlin"), "REVISION": revision.strip(), "CREATED": created}
    shutil.rmtree(layout, ignore_errors=True)
    layout.parent.mkdir(parents=True, exist_ok=True)
    run("umoci", "init", "--layout", str(layout))
    run("umoci", "new", "--image", image)
    with tempfile.TemporaryDirectory() as cache:
        layer = Path(cache) / "layer.tar"
        write_layer(root, layer)
        by = ("--history.created", created, "--history.created_by", "deploy/image.py")
        run("umoci", "raw", "add-layer", "--image", image, *by, str(layer))
    options = configuration((HERE / "Containerfile").read_text(encoding="utf-8"), said)
    told = ("--created", created, "--history.created", created, "--history.created_by", "deploy/Containerfile")
    run("umoci", "config", "--image", image, *options, *told)
    run("umoci", "gc", "--layout", str(layout))
    index: dict[str, Any] = json.loads((layout / "index.json").read_bytes())
    return str(index["manifests"][0]["digest"])


def write_layer(root: Path, layer: Path) -> None:
    """Write a root file system as a tar, in the order of names; /data belongs to the service's user, everything else to root."""
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as out:
        for each in sorted(root.rglob("*")):
            name = each.relative_to(root).as_posix()
            entry = out.gettarinfo(each, name)
            entry.uid = entry.gid = UID if name == "data" else 0
            entry.uname = entry.gname = ""
            entry.mtime = int(entry.mtime)  # settled
            if entry.isreg():
                with each.open("rb") as content:
                    out.addfile(entry, content)
            else:
                out.addfile(entry)


def configuration(containerfile: str, said: dict[str, str]) -> list[str]:
    """Return umoci's options for what the last stage of a Containerfile states; ``said`` are the values of its arguments."""
    found: list[str] = []
    for line in containerfile.rpartition("\nFROM ")[2].splitlines()[1:]:
        instruction, _, rest = line.partition(" ")
        value = re.sub(r"\$\{(\w+)\}", lambda hole: said[hole[1]], rest)
        if instruction in ("ENTRYPOINT", "CMD"):
            found += [f"--config.{instruction.lower()}={each}" for each in json.loads(value)]
        elif instruction in _OPTIONS:
            found.append(f"--config.{_OPTIONS[instruction]}={''.join(shlex.split(value))}")
        elif instruction not in ("", "#", "ARG", "COPY"):
            sys.exit(f"deploy/Containerfile: {instruction} is not known to deploy/image.py")
    return found


def run(*command: str, cwd: str | None = None, environment: dict[str, str] | None = None, quiet: bool = False) -> str:
    """Run a command and return what it prints; ends the program with its error when it fails."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own arguments, no shell
    if done.returncode:
        sys.exit(f"{' '.join(command)[:200]} failed: {done.stderr.strip()[-800:]}")
    if done.stderr and not quiet:
        sys.stderr.write(done.stderr)
    return done.stdout


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["root", directory]:
            make_root(Path(directory))
        case ["pack", directory, place]:
            print(pack(Path(directory), Path(place)))
        case _:
            sys.exit("usage: image.py root DIRECTORY | pack ROOT LAYOUT")
