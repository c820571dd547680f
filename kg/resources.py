"""How custom resources become entities: the ``[[resource]]`` tables of ``drumlin.toml`` and of the mappings that Drumlin ships.

One table maps one group, version and plural to a class, values, relations and a phase. Fields are found by JSONPath (RFC 9535: names,
``[*]``, ``[?@.type=='Ready']``); behind ``|`` a path goes on inside a text that is JSON itself. What no path names is never parsed.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from ontology.vocabulary import CLASSES, CONCEPTS, OUTCOMES, PHASES, PROPERTIES

_FROZEN = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
_TITLE = "title"  # the one term of another vocabulary that a value may have
JsonPath = Annotated[str, StringConstraints(pattern=r"^\$")]
Segment = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(\.[a-z0-9.-]+)?$")]


class WordSettings(BaseModel):
    """One word of a closed list, from words of the resource. Of several, the first of ``words`` that occurs decides."""

    model_config = _FROZEN
    path: JsonPath = Field(description="Where the resource's words are.")
    words: dict[str, str] = Field(min_length=1, description="The resource's word → the ontology's.")
    default: str | None = Field(None, description="The ontology's word where none of them occurs.")

    @property
    def given(self) -> set[str]:
        """Every word that may come of it."""
        return {*self.words.values(), *([self.default] if self.default else [])}


class RunSettings(BaseModel):
    """When it ran. Without ``outcome`` it runs until it is deleted."""

    model_config = _FROZEN
    start: JsonPath = Field(description="Time (RFC 3339) of its start.")
    end: JsonPath | None = Field(None, description="Time of its end.")
    outcome: WordSettings | None = Field(None, description="How it ended.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.outcome:
            _among("outcome", self.outcome.given, OUTCOMES)
        return self


class TranslationSettings(BaseModel):
    """A name that stands for another inside the resource, as a task's alias stands for its id."""

    model_config = _FROZEN
    each: JsonPath = Field(description="Where both names stand.")
    written: JsonPath = Field(description="The name that is written, below `each`.")
    meant: JsonPath = Field(description="The name that is meant, below `each`.")


class RelationSettings(BaseModel):
    """Links of one term, by one of three rules: the owner reference, a label selector, or names found by a path."""

    model_config = _FROZEN
    term: str = Field(description="Property of the ontology.")
    owner: bool = Field(False, description="Rule 1: the controller in the owner references.")
    selector: JsonPath | None = Field(None, description="Rule 2: a LabelSelector of workloads of its namespace.")
    name: JsonPath | None = Field(None, description="Rule 3: names of what it refers to.")
    to: Segment | None = Field(
        None, description="Rule 3: their kind, as in ids: `domain`, `kusciajob.kuscia.secretflow`."
    )
    namespace: JsonPath | None = Field(
        None,
        description="Rule 3: their namespaces, if not its own; of several, those that hold such an object, or else all.",
    )
    each: JsonPath | None = Field(None, description="Rule 3: elements that the other paths start from, one by one.")
    translate: TranslationSettings | None = Field(None, description="Rule 3: what the names found stand for.")
    of: Segment | None = Field(None, description="Rule 3: kind of the objects that have the relation, if not itself.")
    of_name: JsonPath | None = Field(None, description="Rule 3: name of the object that has the relation, with `of`.")

    @field_validator("term")
    @classmethod
    def _property(cls, term: str) -> str:
        _among("term", {term}, PROPERTIES)
        return term

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if [self.owner, self.selector is not None, self.name is not None].count(True) != 1:
            raise ValueError("a relation has one of owner, selector, name")
        if (self.name is None) != (self.to is None) or (self.of is None) != (self.of_name is None):
            raise ValueError("name and to, of and of_name go together")
        return self


class ResourceSettings(BaseModel):
    """One kind of custom resource. It is followed when the cluster serves it, also when that begins later."""

    model_config = _FROZEN
    group: str = Field(min_length=1, description="API group, such as kuscia.secretflow.")
    version: str = Field(min_length=1, description="API version, such as v1alpha1.")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$", description="Plural name in the API's paths.")
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$", description="Kind as manifests write it.")
    namespaced: bool = Field(True, description="Whether its objects stand in namespaces.")
    type: str = Field(alias="class", description="Class of the ontology.")
    identity: Literal["object", "domain"] = Field("object", description="domain: the object is the domain of its name.")
    constant: dict[str, str] = Field({}, description="Term → a value that all of them have.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its values are.")
    relation: tuple[RelationSettings, ...] = Field((), description="Its relations.")
    phase: WordSettings | None = Field(None, description="Its phase.")
    run: RunSettings | None = Field(None, description="When it ran; absent: it has no runs.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("class", {self.type}, CLASSES - {"Workload"})
        _among("value", self.value.keys() - {_TITLE}, PROPERTIES)
        _among("constant", self.constant.keys(), PROPERTIES)
        _among("constant", set(self.constant.values()), CONCEPTS)
        if self.phase:
            _among("phase", self.phase.given, PHASES)
        return self


def _among(where: str, given: AbstractSet[str], known: frozenset[str]) -> None:
    if unknown := sorted(given - known):
        raise ValueError(f"{where}: {unknown[0]!r} is not in the vocabulary")
