"""Credentials from an exec plugin (``aws``, ``gke-gcloud-auth-plugin``, …), within a time limit, and why there are none.

The official client logs the failure of a plugin and goes on without credentials; here it is an error with the plugin's own message.
Specification: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from drumlin.kg.errors import SourceUnavailable

TIMEOUT_SECONDS = 60.0
"""How long a plugin may take; one that waits for somebody to sign in would hold up every kind."""

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MESSAGE = 300  # characters of a plugin's own words


class PluginCredential(msgspec.Struct, frozen=True):
    """What a plugin gives: a token, or a client certificate and its key (PEM), and until when (RFC 3339)."""

    token: str | None = None
    clientCertificateData: str | None = None
    clientKeyData: str | None = None
    expirationTimestamp: str | None = None


class _ExecAnswer(msgspec.Struct, frozen=True):
    apiVersion: str = ""
    status: PluginCredential | None = None


class PluginFailed(SourceUnavailable):
    """A plugin gave no credentials: it is missing, failed, took too long, or speaks another version."""


def run_plugin(settings: Mapping[str, Any], cluster: Mapping[str, Any], directory: str) -> PluginCredential:
    """Run the plugin of a kubeconfig's user (``exec``) and return its credential.

    ``cluster`` is the kubeconfig's cluster, which a plugin may ask for; relative commands start from ``directory``. Blocks for at most
    ``TIMEOUT_SECONDS``. Raises ``PluginFailed``.
    """
    command, version = str(settings.get("command") or ""), str(settings.get("apiVersion") or "")
    if not command:
        raise PluginFailed(
            "the exec plugin has no command", hint="name it in the kubeconfig: users[].user.exec.command"
        )
    if version not in VERSIONS:
        raise PluginFailed(
            f"the exec plugin {command!r} is configured for {version or 'no apiVersion'}, which does not exist any more",
            hint=f"write apiVersion: {VERSIONS[0]} in the kubeconfig, and update the plugin if it refuses that",
        )
    if settings.get("interactiveMode") == "Always":
        raise PluginFailed(
            f"the exec plugin {command!r} wants to ask questions, and nobody is there to answer",
            hint="use credentials that need no terminal: a service account's token",
        )
    answer = _printed(settings, command, _about(settings, cluster, version), directory)
    if answer.apiVersion != version:
        raise PluginFailed(
            f"the exec plugin {command!r} speaks {answer.apiVersion or 'no version'}, the kubeconfig asks for {version}",
            hint="make both the same: update the plugin, or users[].user.exec.apiVersion in the kubeconfig",
        )
    found = answer.status or PluginCredential()
    if not found.token and not (found.clientCertificateData and found.clientKeyData):
        raise PluginFailed(
            f"the exec plugin {command!r} printed neither a token nor a client certificate with its key",
            hint="run it in a shell, and sign in anew if it says so",
        )
    return found


def _about(settings: Mapping[str, Any], cluster: Mapping[str, Any], version: str) -> str:
    """Return the plugin's input as JSON: that it cannot ask, and the cluster if it wants to know."""
    spec: dict[str, Any] = {"interactive": False}
    if settings.get("provideClusterInfo"):
        names = {"server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url"}
        spec["cluster"] = {key: value for key, value in cluster.items() if key in names}
        for each in cluster.get("extensions") or ():
            if each.get("name") == "client.authentication.k8s.io/exec":
                spec["cluster"]["config"] = each.get("extension")
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": spec})


def _printed(settings: Mapping[str, Any], command: str, about: str, directory: str) -> _ExecAnswer:
    wanted = {str(each["name"]): str(each["value"]) for each in settings.get("env") or ()}
    try:
        done = subprocess.run(  # noqa: S603 — the operator's own kubeconfig names it, as for kubectl
            [command, *map(str, settings.get("args") or ())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            cwd=directory or None,
            env={**os.environ, **wanted, "KUBERNETES_EXEC_INFO": about},
            check=False,
        )
    except FileNotFoundError as error:
        advice = " ".join(str(settings.get("installHint") or "").split())[:_MESSAGE]
        raise PluginFailed(
            f"the exec plugin {command!r} is not installed",
            hint=advice or "install it, or name it by its full path in the kubeconfig",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PluginFailed(
            f"the exec plugin {command!r} gave nothing within {TIMEOUT_SECONDS:g} s",
            hint="run it in a shell: it may wait for somebody to sign in",
        ) from error
    except OSError as error:
        raise PluginFailed(
            f"the exec plugin {command!r} cannot be run: {error.strerror}", hint="check its path and permissions"
        ) from error
    if done.returncode != 0:
        own = " ".join(done.stderr.decode(errors="replace").split())[:_MESSAGE]
        raise PluginFailed(
            f"the exec plugin {command!r} failed ({done.returncode}){': ' if own else ''}{own}",
            hint="run it in a shell, and sign in anew if it says so",
        )
    try:
        return msgspec.json.decode(done.stdout, type=_ExecAnswer)
    except msgspec.MsgspecError as error:
        raise PluginFailed(
            f"the exec plugin {command!r} printed what is not an ExecCredential",
            hint="it must print one JSON object on stdout, and messages on stderr",
        ) from error
