"""A resolved query as a command line that a person can run. Credentials are environment variables to set, never values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from drumlin.kg.telemetry.datasources import Datasource

_LONGEST_ARGUMENT = 100_000  # bytes; Linux allows 131,072 for one


def command(datasource: Datasource, path: str, form: Mapping[str, str], *, get: bool = False) -> str:
    """Write a POST (or GET) of ``form`` to a datasource's path: quoted for a POSIX shell, with long queries on standard input."""
    parts = ["curl", "-sS", "--fail-with-body", *(["-G"] if get else []), *_headers(datasource)]
    stdin = ""
    for name, value in form.items():
        if len(value.encode()) > _LONGEST_ARGUMENT:
            parts += ["--data-urlencode", f"{name}@-"]
            stdin = f" <<'END_OF_QUERY'\n{value}\nEND_OF_QUERY"
        else:
            parts += ["--data-urlencode", shlex.quote(f"{name}={value}")]
    return " ".join([*parts, shlex.quote(datasource.url + path)]) + stdin


def _headers(datasource: Datasource) -> list[str]:
    access = datasource.access
    if access is None:
        return []
    found: list[str] = []
    if access.tenant_header:
        found += ["-H", shlex.quote(f"{access.tenant_header.name}: {access.tenant_header.value}")]
    if access.credential:
        variable = "DRUMLIN_" + re.sub(r"[^A-Z0-9]", "_", datasource.name.upper())
        if access.credential.username is None:
            found += ["-H", f'"Authorization: Bearer ${variable}_TOKEN"']
        else:
            found += ["-u", f'"${variable}_USER:${variable}_PASSWORD"']
    return found
