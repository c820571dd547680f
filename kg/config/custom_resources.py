"""How custom resources become entities: the ``[[resource]]`` tables of ``drumlin.toml`` and of the mappings that Drumlin ships.

One table maps one group, version and plural to a class, values, relations and a phase. Fields are found by JSONPath (RFC 9535: names,
``[*]``, ``[?@.type=='Ready']``); behind ``|`` a path goes on inside a text that is JSON itself. What no path names is never parsed.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, ENTITY_CLASSES, OUTCOMES, PHASES, PROPERTIES

_FROZEN = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
_BORROWED = frozenset(
    {"title", "format", "columnName", "datatype"}
)  # terms of other vocabularies that a value may have
_BORROWED_LINKS = frozenset({"creator"})
_CSVW_COLUMN = "http://www.w3.org/ns/csvw#Column"
_PARTS = (CLASSES - ENTITY_CLASSES) | {_CSVW_COLUMN}
JsonPath = Annotated[str, StringConstraints(pattern=r"^\$")]
PartSegment = Literal["party", "step", "column"]
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
    """Links of one term, by one of four rules: the owner reference, a label selector, names found by a path, or the object itself."""

    model_config = _FROZEN
    term: str = Field(description="Property of the ontology.")
    owner: bool = Field(False, description="Rule 1: the controller in the owner references.")
    selector: JsonPath | None = Field(None, description="Rule 2: a LabelSelector of workloads of its namespace.")
    name: JsonPath | None = Field(None, description="Rule 3: names of what it refers to.")
    itself: bool = Field(
        False,
        description="Rule 4: the object itself, for the objects named with `of`; with `to`, the one of its name of that kind.",
    )
    to: Segment | None = Field(
        None, description="Rule 3: their kind, as in ids: `domain`, `kusciajob.kuscia.secretflow`."
    )
    to_part: PartSegment | None = Field(None, description="Rule 3: they are parts of the object, of this segment.")
    namespace: JsonPath | None = Field(
        None,
        description="Rule 3: their namespaces, if not its own; of several, those that hold such an object, or else all.",
    )
    anywhere: bool = Field(False, description="Rule 3: they are in whichever namespace has an object of that name.")
    existing: bool = Field(False, description="Rule 3: only objects that exist are linked.")
    without: JsonPath | None = Field(None, description="Rule 3: names that are left out, from the whole resource.")
    each: JsonPath | None = Field(None, description="Rule 3: elements that the other paths start from, one by one.")
    translate: TranslationSettings | None = Field(None, description="Rule 3: what the names found stand for.")
    of: Segment | None = Field(
        None,
        description="Kind of the objects that have the relation, if not itself; a built-in kind such as `pod`, too.",
    )
    of_name: JsonPath | None = Field(None, description="Name of the object that has the relation, with `of`.")
    of_namespace: JsonPath | None = Field(None, description="Its namespace, with `of`, if not the resource's own.")

    @field_validator("term")
    @classmethod
    def _property(cls, term: str) -> str:
        _among("term", {term} - _BORROWED_LINKS, PROPERTIES)
        return term

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if [self.owner, self.selector is not None, self.name is not None, self.itself].count(True) != 1:
            raise ValueError("a relation has one of owner, selector, name, itself")
        targets = [self.to, self.to_part].count(None)
        targeted = targets < 2 and not self.itself
        if (self.name is None) == targeted or targets == 0 or (self.of is None) != (self.of_name is None):
            raise ValueError("name and to, of and of_name go together")
        if (self.itself and self.of is None) or (self.of_namespace and self.of is None):
            raise ValueError("itself and of_namespace go with of")
        if self.of and (self.owner or self.selector):
            raise ValueError("of goes with name or itself")
        return self


class BesideSettings(BaseModel):
    """More about the parts of an object, from other elements of the resource that name them."""

    model_config = _FROZEN
    each: JsonPath = Field(description="The elements.")
    name: JsonPath = Field(description="Name of the part, below `each`.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its values are, below `each`.")
    phase: WordSettings | None = Field(None, description="Its phase; the path starts below `each`.")


class PartSettings(BaseModel):
    """Parts of an object that its own graph describes: elements of the resource; those of one name are one part."""

    model_config = _FROZEN
    segment: PartSegment = Field(description="What stands before their names in ids.")
    type: str = Field(alias="class", description="Class of the ontology, or csvw:Column.")
    term: Literal["hasPart", "column"] = Field("hasPart", description="Property by which the object has them.")
    each: JsonPath = Field(description="The elements.")
    name: JsonPath = Field(description="Their names, below `each`.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its values are, below `each`.")
    relation: tuple[RelationSettings, ...] = Field((), description="Their relations; the paths start below `each`.")
    beside: tuple[BesideSettings, ...] = Field((), description="More about them, elsewhere in the resource.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("class", {self.type}, _PARTS)
        _among("value", self.value.keys() - _BORROWED, PROPERTIES)
        for beside in self.beside:
            _among("value", beside.value.keys() - _BORROWED, PROPERTIES)
            _among("phase", beside.phase.given if beside.phase else set(), PHASES)
        if any(each.of or each.owner or each.selector or each.each for each in self.relation):
            raise ValueError("relation: a part's are found by name, below its element")
        return self


class StatementSettings(BaseModel):
    """What a resource says of another object, or of one of its parts: values, and its phase."""

    model_config = _FROZEN
    of: Segment = Field(description="Kind of the object, as in ids.")
    of_name: JsonPath | None = Field(None, description="Its name; absent: the controller in the owner references.")
    anywhere: bool = Field(False, description="It is in whichever namespace has an object of that name.")
    part: PartSegment | None = Field(None, description="Segment of the part that is meant.")
    part_name: JsonPath | None = Field(None, description="Name of the part.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its values are.")
    phase: WordSettings | None = Field(None, description="Its phase.")
    overrides: bool = Field(False, description="Whether that phase counts before what the object says itself.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("value", self.value.keys() - _BORROWED, PROPERTIES)
        _among("phase", self.phase.given if self.phase else set(), PHASES)
        if (self.part is None) != (self.part_name is None):
            raise ValueError("part and part_name go together")
        return self


class CaseSettings(BaseModel):
    """Values that hold in a case; of several cases, the first that is given."""

    model_config = _FROZEN
    when: JsonPath = Field(description="Where something stands when the case is given.")
    equals: str | None = Field(None, description="What stands there; absent: anything.")
    others: bool | None = Field(
        None, description="Whether other objects of the kind are in the case too; absent: either."
    )
    constant: dict[str, str | bool] = Field({}, description="Term → value, of the vocabulary.")
    hosting: str | None = Field(None, description="Term that links to the hosting domain.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("constant", self.constant.keys(), PROPERTIES)
        _among("constant", {each for each in self.constant.values() if isinstance(each, str)}, CONCEPTS)
        _among("hosting", {self.hosting} if self.hosting else set(), PROPERTIES)
        return self


class CopySettings(BaseModel):
    """Which objects are copies: those outside their owner's namespace. They are their original, where that exists."""

    model_config = _FROZEN
    owner: JsonPath = Field(description="Namespace of the original.")
    name: JsonPath | None = Field(None, description="Name of the original, where it is another.")


class PastSettings(BaseModel):
    """Runs of pods that the resource remembers: one that nobody saw is rebuilt from it when the pod is gone."""

    model_config = _FROZEN
    each: JsonPath = Field(description="The elements.")
    name: JsonPath = Field(description="Name of the pod, below `each`.")
    namespace: JsonPath = Field(description="Its namespace, below `each`.")
    start: JsonPath = Field(description="When it started, below `each`.")
    node: JsonPath | None = Field(None, description="Name of its node, below `each`.")
    outcome: WordSettings = Field(description="How it ended, with a default; the path starts below `each`.")
    end: JsonPath = Field(description="When all of them had ended, in the whole resource.")

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("outcome", self.outcome.given, OUTCOMES)
        if self.outcome.default is None:
            raise ValueError("outcome needs a default")
        return self


class SharedSettings(BaseModel):
    """Values that other objects look up by a name which they build themselves."""

    model_config = _FROZEN
    topic: str = Field(min_length=1, description="What `lookup` names.")
    each: JsonPath = Field(description="The elements.")
    name: JsonPath = Field(description="Their names, below `each`.")
    value: dict[str, JsonPath] = Field(description="Term → where its values are, below `each`.")


class LookupSettings(BaseModel):
    """Values that other objects share, by a name that is built of this object's: numbers of several are added."""

    model_config = _FROZEN
    topic: str = Field(min_length=1, description="As in `shared`.")
    name: tuple[str, ...] = Field(min_length=1, description="Parts of the name: paths, and texts as they are.")


class ResourceSettings(BaseModel):
    """One kind of custom resource. It is followed when the cluster serves it, also when that begins later."""

    model_config = _FROZEN
    group: str = Field(min_length=1, description="API group, such as kuscia.secretflow.")
    version: str = Field(min_length=1, description="API version, such as v1alpha1.")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$", description="Plural name in the API's paths.")
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$", description="Kind as manifests write it.")
    namespaced: bool = Field(True, description="Whether its objects stand in namespaces.")
    type: str | None = Field(
        None, alias="class", description="Class of the ontology; absent: its objects are no entities, they only state."
    )
    identity: Literal["object", "domain", "function"] = Field(
        "object",
        description="domain: the object is the domain of its name; function: the function of its namespace and name.",
    )
    constant: dict[str, str] = Field({}, description="Term → a value that all of them have.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its values are.")
    relation: tuple[RelationSettings, ...] = Field((), description="Its relations.")
    phase: WordSettings | None = Field(None, description="Its phase.")
    run: RunSettings | None = Field(None, description="When it ran; absent: it has no runs.")
    part: tuple[PartSettings, ...] = Field((), description="Its parts.")
    states: tuple[StatementSettings, ...] = Field((), description="What it says of other objects.")
    case: tuple[CaseSettings, ...] = Field((), description="Values that hold in some cases.")
    shared: tuple[SharedSettings, ...] = Field((), description="Values that others look up.")
    lookup: tuple[LookupSettings, ...] = Field((), description="Values that are looked up.")
    past: tuple[PastSettings, ...] = Field((), description="Runs of pods that it remembers.")
    copy_of: CopySettings | None = Field(None, alias="copy", description="Which of its objects are copies.")
    merged: bool = Field(False, description="Whether an object that another controls is a part of that one.")
    domain: JsonPath | None = Field(None, description="Id of its domain, if not that of its namespace.")
    within: tuple[str, ...] = Field((), description="Namespaces whose objects count; elsewhere they are no entities.")
    telemetry: Literal["DomainRoute", "Domain", "Function"] | None = Field(
        None, description="Scope of the metric templates that are its telemetry."
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        _among("class", {self.type} if self.type else set(), ENTITY_CLASSES)
        _among("value", self.value.keys() - _BORROWED, PROPERTIES)
        _among("constant", self.constant.keys(), PROPERTIES)
        _among("constant", {value for term, value in self.constant.items() if term != "trigger"}, CONCEPTS)
        if self.phase:
            _among("phase", self.phase.given, PHASES)
        return self


class ExtensionSettings(BaseModel):
    """What another system states of a built-in kind: relations and values in labels, annotations and the status."""

    model_config = _FROZEN
    kind: Annotated[str, StringConstraints(pattern=r"^[a-z]+$")] = Field(description="Built-in kind, as in ids: `pod`.")
    relation: tuple[RelationSettings, ...] = Field((), description="Relations that it has none of its own of.")
    value: dict[str, JsonPath] = Field({}, description="Term → where its value is: stated when all of them are there.")

    @model_validator(mode="after")
    def _of_metadata(self) -> Self:
        _among("value", self.value.keys(), PROPERTIES)
        for each in self.relation:
            paths = (each.name, each.namespace)
            if each.of or each.owner or each.selector or each.each or each.translate or each.to_part:
                raise ValueError("relation: an extension's are found by name")
            if not all(path.startswith("$.metadata.") for path in paths if path):
                raise ValueError("relation: paths of an extension begin with $.metadata.")
        if not all(each.startswith(("$.metadata.", "$.status.")) for each in self.value.values()):
            raise ValueError("value: paths of an extension begin with $.metadata. or $.status.")
        return self


def _among(where: str, given: AbstractSet[str], known: frozenset[str]) -> None:
    if unknown := sorted(given - known):
        raise ValueError(f"{where}: {unknown[0]!r} is not in the vocabulary")
