"""A kubeconfig → the official client's configuration; what that passes over in silence is refused here by name.

Its loader goes on as nobody when an exec plugin fails or a user is missing, takes no ``as``, and says neither which file nor which
line is broken. Specification: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
from urllib3 import HTTPHeaderDict

from drumlin.exporters.kubernetes.exec_plugin import PluginCredential, PluginFailed, run_plugin
from drumlin.kg.errors import SourceUnavailable

log = structlog.get_logger()

CHOOSE = (
    "name a kubeconfig in KUBECONFIG and one of its contexts with --context: `kubectl config get-contexts` lists them"
)
SIGN_IN = "check the kubeconfig context, or the service account's token; `kubectl auth whoami` uses the same"
_LISTED = 8  # contexts that an error names


def files_of(named: str | None) -> list[str]:
    """Return the paths of the kubeconfigs that exist.

    ``named`` is a path, else ``KUBECONFIG`` (several, as kubectl reads it) or ``~/.kube/config`` are taken. Raises ``SourceUnavailable``
    when none exists; that some are missing is only logged.
    """
    origin = "the kubeconfig" if named else "KUBECONFIG" if os.environ.get("KUBECONFIG") else "the default kubeconfig"
    listed = named or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [str(Path(each).expanduser()) for each in listed.split(os.pathsep) if each]
    found = [each for each in paths if Path(each).exists()]
    missing = [each for each in paths if each not in found]
    if not found:
        raise SourceUnavailable(
            f"no Kubernetes cluster to connect to: {origin} is {' and '.join(missing)}, which does not exist",
            hint=CHOOSE,
        )
    for each in missing:
        log.warning("kubeconfig_missing", path=each, origin=origin)
    return found


def load_kubeconfig(configuration: Any, named: str | None, context: str | None) -> HTTPHeaderDict:
    """Fill the official client's ``configuration`` from a context (None: the current one); return the headers of impersonation.

    Blocks while an exec plugin runs. Raises ``SourceUnavailable`` that names the file, the context and what is wrong with it.
    """
    from kubernetes.config import kube_config

    official: Any = kube_config  # its functions are not typed
    paths = files_of(named)
    with _named_files(paths):
        merger = official.KubeConfigMerger(os.pathsep.join(paths))
    chosen = context or _current(merger.config_files)
    _check_context(merger.config_files, paths, chosen)
    loader = _loader_class(official)(config_dict=merger.config, active_context=chosen, config_base_path=None)
    loader.load_and_set(configuration)
    return _impersonation(loader.user, chosen or "")


@contextmanager
def _named_files(paths: list[str]) -> Iterator[None]:
    from yaml import MarkedYAMLError, YAMLError

    try:
        yield
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else " and ".join(paths)
        raise SourceUnavailable(f"the kubeconfig {where} is not YAML from here on", hint=CHOOSE) from error
    except YAMLError as error:
        raise SourceUnavailable(f"the kubeconfig {' and '.join(paths)} is not YAML", hint=CHOOSE) from error
    except OSError as error:
        raise SourceUnavailable(
            f"the kubeconfig {error.filename or ' and '.join(paths)} cannot be read: {error.strerror}", hint=CHOOSE
        ) from error
    except (TypeError, AttributeError, KeyError) as error:
        raise SourceUnavailable(f"{' and '.join(paths)} is not a kubeconfig", hint=CHOOSE) from error


def _current(files: Mapping[str, Any]) -> str | None:
    """Return the current context: of several files the first that names one decides, as for kubectl."""
    return next((each["current-context"] for each in files.values() if each.get("current-context")), None)


def _check_context(files: Mapping[str, Any], paths: list[str], chosen: str | None) -> None:
    """Refuse a context that is not there, or names a user or cluster that is not there."""
    shown = " and ".join(paths)
    with _named_files(paths):
        first = [*reversed([*files.values()])]  # of equal names the first file's counts, as for kubectl
        contexts = {each["name"]: each.get("context") or {} for one in first for each in one.get("contexts") or ()}
        users = {each["name"] for one in first for each in one.get("users") or ()}
        clusters = {each["name"]: each.get("cluster") for one in first for each in one.get("clusters") or ()}
        found = contexts.get(chosen) if chosen else None
        if found is not None:
            user, cluster = found.get("user"), found.get("cluster")
            server = (clusters.get(cluster) or {}).get("server")
    if not chosen:
        raise SourceUnavailable(f"{shown} has no current context", hint=CHOOSE)
    if found is None:
        listed = ", ".join(sorted(contexts)[:_LISTED]) or "none"
        raise SourceUnavailable(f"there is no context {chosen!r} in {shown}; there are: {listed}", hint=CHOOSE)
    if user and user not in users:
        raise SourceUnavailable(
            f"context {chosen!r} names the user {user!r}, which {shown} does not have", hint=SIGN_IN
        )
    if cluster not in clusters:
        raise SourceUnavailable(
            f"context {chosen!r} names the cluster {cluster!r}, which {shown} does not have", hint=CHOOSE
        )
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise SourceUnavailable(
            f"the cluster {cluster!r} of context {chosen!r} has no server that begins with https://", hint=CHOOSE
        )
    if not user:
        log.warning("context_without_user", context=chosen, hint="requests are anonymous; name a user in the context")


def _impersonation(user: Any, context: str) -> HTTPHeaderDict:
    """Return the headers by which a user acts as another (``as``, ``as-uid``, ``as-groups``, ``as-user-extra``)."""
    headers = HTTPHeaderDict()
    said: Mapping[str, Any] = user.value if user else {}
    if said.get("as"):
        headers["Impersonate-User"] = str(said["as"])
    elif any(said.get(each) for each in ("as-uid", "as-groups", "as-user-extra")):
        raise SourceUnavailable(
            f"the user of context {context!r} has as-groups, as-uid or as-user-extra without as",
            hint="say as whom it acts: users[].user.as",
        )
    if said.get("as-uid"):
        headers["Impersonate-Uid"] = str(said["as-uid"])
    for each in said.get("as-groups") or ():
        headers.add("Impersonate-Group", str(each))
    for key, values in (said.get("as-user-extra") or {}).items():
        for each in values:
            headers.add(f"Impersonate-Extra-{key}", str(each))
    return headers


def _loader_class(official: Any) -> Any:
    """Return the official loader with a plugin that may fail; made late, as its module takes long to import."""

    class PluginLoader(official.KubeConfigLoader):  # type: ignore[misc]  # the package is not typed
        """Raises what the plugin says instead of going on without credentials."""

        @property
        def user(self) -> Any:
            """The user's settings, None for a context without one."""
            return self._user

        def _load_from_exec_plugin(self) -> bool | None:
            if "exec" not in self._user:
                return None
            directory = self._get_base_path(self._cluster.path)
            try:
                found = run_plugin(self._user["exec"].value, self._cluster.value, directory)
            except PluginFailed as error:
                if self.__dict__.get("expiry", datetime.min.replace(tzinfo=UTC)) <= datetime.now(UTC):
                    raise
                log.warning("exec_plugin_failed", reason=str(error), hint=error.hint)
                return True  # it was to be renewed some minutes early; the old one still counts
            if found.token:
                self.token = f"Bearer {found.token}"
            else:
                data = {"certificate": found.clientCertificateData, "key": found.clientKeyData}
                self.cert_file, self.key_file = (
                    official.FileOrData(data, None, each, directory, base64_file_content=False).as_file()
                    for each in data
                )
            self.__dict__.pop("expiry", None)
            if until := _moment(found):
                self.expiry = until
            return True

    return PluginLoader


def _moment(found: PluginCredential) -> datetime | None:
    """Return until when a credential counts; None when that is not said."""
    if not found.expirationTimestamp:
        return None
    try:
        return datetime.fromisoformat(found.expirationTimestamp).astimezone(UTC)
    except ValueError as error:
        raise PluginFailed(
            "the exec plugin printed an expirationTimestamp that is not a time", hint="it must be RFC 3339"
        ) from error
