"""Other Drumlins whose graphs this one takes over: where each is, what proves who asks, and for which domains it speaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, StringConstraints, field_validator

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris

_DomainId = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x20\x7f/]{1,200}$")]


class PeerSettings(BaseModel):
    """A Drumlin that this one follows (docs/federation.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(
        pattern=r"^[a-z][a-z0-9._-]{0,62}$", description="Name; its graphs are owned by `peer:NAME` here."
    )
    url: AnyHttpUrl = Field(description="Address of its service.")
    token: Path = Field(
        description="File with the bearer token that it has given, read on every use; it decides what is seen there."
    )
    base: str | None = Field(None, description="Base of its IRIs, where it is another one [the service's own].")
    domains: tuple[_DomainId, ...] = Field(
        description="Domains that it speaks for: graphs of others are refused; none takes back all that it gave."
    )

    @field_validator("url")
    @classmethod
    def _holds_no_secret(cls, url: AnyHttpUrl) -> AnyHttpUrl:
        if url.username or url.password:
            raise ValueError("an address holds no credentials: it is shown; name the file of the token")
        return url

    @field_validator("base")
    @classmethod
    def _base_mints(cls, base: str | None) -> str | None:
        try:
            return None if base is None else Iris(base).base
        except InvalidIdentifier as error:
            raise ValueError(str(error)) from error

    @property
    def owner(self) -> str:
        """The owner of what it gives (``kg.store.preconditions.PEERS``)."""
        return f"peer:{self.name}"
