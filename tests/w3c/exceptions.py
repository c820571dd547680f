"""The cases that the engine passes and the service does not, each with its reason; docs/conformance.md lists the reasons."""

from __future__ import annotations

from collections.abc import Mapping

EXCEPTIONS: Mapping[str, str] = {}
"""Pattern of a case's name (``fnmatch``), without the address of its suites → why it does not pass."""
