"""Settings of the data that workloads depend on (`[[depends_on]]` tables): a selector of workloads, and URLs of data."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field, field_validator

from drumlin.kg.model.data_urls import SYNTAX, canonical


class DependsOnSettings(BaseModel):
    """Data that some workloads depend on. Of the URLs only scheme, host, port and path are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    namespaces: tuple[str, ...] = Field((), description="Patterns of the workloads' namespaces [all].")
    names: tuple[str, ...] = Field((), description="Patterns of the workloads' names [all].")
    labels: dict[str, str] = Field({}, description="Labels that the workloads have, all of them.")
    data: tuple[str, ...] = Field(min_length=1, description="URLs of the data: s3://orders/raw.")

    @field_validator("data")
    @classmethod
    def _urls(cls, data: tuple[str, ...]) -> tuple[str, ...]:
        """Keep what is not secret; a message names the place of a bad one and never quotes it."""
        found = [canonical(each) for each in data]
        if None in found:
            raise ValueError(f"entry {found.index(None) + 1} is no URL of data: write {SYNTAX}")
        return tuple(each for each in found if each)

    def matches(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a workload is meant."""
        return (
            _any(self.namespaces, namespace) and _any(self.names, name) and self.labels.items() <= dict(labels).items()
        )


def _any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, each) for each in patterns)
