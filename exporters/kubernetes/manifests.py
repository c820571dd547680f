"""The parts of manifests that several kinds share, as msgspec projections: what is not named here is never parsed.

That is the rule which keeps env values, arguments, certificates and annotations out of the process, not a filter
behind it. Source: Pod v1 core, PodTemplateSpec v1 core, Kubernetes API reference.
"""

from __future__ import annotations

import msgspec

from drumlin.exporters.protocol import Metadata, shared
from drumlin.kg.model.data_urls import cleaned
from drumlin.kg.model.quantities import Written

INJECTION = "fluentd-sidecar-injector.h3poteto.dev/injection"
"""The annotation by which a pod asks for the logging sidecar."""
SCRAPE = "prometheus.io/scrape"
"""The annotation by which a pod or Service asks a Prometheus to scrape it."""
DEPENDS_ON = "drumlin.io/depends-on"
"""The annotation by which people say of a workload what data it depends on: URLs (``kg.model.data_urls``)."""


class Projection(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An object of any kind: its metadata, and below it what the kind's own projection names."""

    metadata: Metadata


class ReleaseAnnotations(msgspec.Struct, frozen=True, gc=False):
    """What Helm and Argo CD write on what they install: the release and its namespace, the tracking application."""

    release: str | None = msgspec.field(default=None, name="meta.helm.sh/release-name")
    release_namespace: str | None = msgspec.field(default=None, name="meta.helm.sh/release-namespace")
    tracking: str | None = msgspec.field(default=None, name="argocd.argoproj.io/tracking-id")


class InstalledMetadata(Metadata, frozen=True):
    """Metadata of what may have been installed with others, with the annotations that say so."""

    annotations: ReleaseAnnotations | None = None


class Installed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An object that may have been installed with others: its metadata, and below it what the kind's own projection names."""

    metadata: InstalledMetadata


class WorkloadAnnotations(ReleaseAnnotations, frozen=True):
    """Also the number of a Deployment's revision, and the data that people say the workload depends on."""

    revision: str | None = msgspec.field(default=None, name="deployment.kubernetes.io/revision")
    depends_on: str | None = msgspec.field(default=None, name=DEPENDS_ON)

    def __post_init__(self) -> None:
        """Let nothing of it into the process that may be secret (``cleaned``)."""
        if self.depends_on:
            msgspec.structs.force_setattr(self, "depends_on", cleaned(self.depends_on))


class WorkloadMetadata(InstalledMetadata, frozen=True):
    """Metadata of a workload."""

    annotations: WorkloadAnnotations | None = None


class InstalledWorkload(Installed, frozen=True, kw_only=True):
    """A workload: its metadata, and below it what the kind's own projection names."""

    metadata: WorkloadMetadata


Resources = dict[str, Written | None]
"""Amounts as written, by the name of the resource; any name may be an extended resource."""


class Demand(msgspec.Struct, frozen=True, gc=False):
    """What a container or pod asks for and what it may use at most."""

    requests: Resources | None = None
    limits: Resources | None = None

    def __post_init__(self) -> None:
        """Hold what thousands of replicas ask for once."""
        for name, amounts in (("requests", self.requests), ("limits", self.limits)):
            if amounts:
                msgspec.structs.force_setattr(self, name, shared(tuple(amounts.items())))

    def __hash__(self) -> int:
        """Let what is computed from it be kept by it."""
        return hash((frozenset((self.requests or {}).items()), frozenset((self.limits or {}).items())))


class Container(msgspec.Struct, frozen=True, gc=False):
    """One container of a pod (template)."""

    name: str
    image: str | None = None
    resources: Demand | None = None
    restartPolicy: str | None = None


class ClaimVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume's reference to a claim."""

    claimName: str


class Volume(msgspec.Struct, frozen=True, gc=False):
    """A volume of a pod, as far as it is a claim."""

    persistentVolumeClaim: ClaimVolume | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False):
    """What pods and pod templates have in common."""

    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    hostNetwork: bool | None = None

    @property
    def running(self) -> list[Container]:
        """The containers that run side by side: the ordinary ones and native sidecars."""
        return [*self.containers, *(each for each in self.initContainers or () if is_sidecar(each))]


class NameReference(msgspec.Struct, frozen=True, gc=False):
    """The name of an object in the same namespace; what is taken from it is never parsed."""

    name: str = ""


class ValueSource(msgspec.Struct, frozen=True, gc=False):
    """Where the value of a variable comes from."""

    configMapKeyRef: NameReference | None = None
    secretKeyRef: NameReference | None = None


class Variable(msgspec.Struct, frozen=True, gc=False):
    """A variable of the environment without its name and value."""

    valueFrom: ValueSource | None = None


class VariablesSource(msgspec.Struct, frozen=True, gc=False):
    """Where many variables come from."""

    configMapRef: NameReference | None = None
    secretRef: NameReference | None = None


class TemplateContainer(Container, frozen=True, gc=False):
    """A container of a template, with what its variables refer to; of running pods that is never parsed, there are too many."""

    env: tuple[Variable, ...] | None = None
    envFrom: tuple[VariablesSource, ...] | None = None


class SecretVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume's reference to a secret."""

    secretName: str = ""


class ProjectedSource(msgspec.Struct, frozen=True, gc=False):
    """One of several sources of a volume."""

    configMap: NameReference | None = None
    secret: NameReference | None = None


class ProjectedVolume(msgspec.Struct, frozen=True, gc=False):
    """A volume of several sources."""

    sources: tuple[ProjectedSource, ...] | None = None


class TemplateVolume(Volume, frozen=True, gc=False):
    """A volume of a template, as far as it is a claim, a ConfigMap or a Secret."""

    configMap: NameReference | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None


class TemplateSpec(PodSpec, frozen=True, gc=False):
    """The pods of a template, with the names of what they refer to."""

    containers: tuple[TemplateContainer, ...] = ()
    initContainers: tuple[TemplateContainer, ...] | None = None
    volumes: tuple[TemplateVolume, ...] | None = None
    imagePullSecrets: tuple[NameReference, ...] | None = None
    serviceAccountName: str | None = None


class ScrapeAnnotation(msgspec.Struct, frozen=True, gc=False):
    """Whether a Prometheus is asked to scrape."""

    scrape: str | None = msgspec.field(default=None, name=SCRAPE)


class TemplateAnnotations(ScrapeAnnotation, frozen=True):
    """The two annotations that are taken from pods."""

    injection: str | None = msgspec.field(default=None, name=INJECTION)


class TemplateMetadata(msgspec.Struct, frozen=True, gc=False):
    """Labels by which Services select, and the requests for a logging sidecar and to be scraped."""

    labels: dict[str, str] | None = None
    annotations: TemplateAnnotations | None = None


class PodTemplate(msgspec.Struct, frozen=True, gc=False):
    """The pods that a workload makes."""

    metadata: TemplateMetadata | None = None
    spec: TemplateSpec = TemplateSpec()


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition without its times and message: they change while nothing does."""

    type: str
    status: str


def is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.restartPolicy == "Always"


def condition(conditions: tuple[Condition, ...] | None, kind: str) -> str | None:
    """Return the status of a condition (True, False, Unknown), or None when it is not there."""
    return next((each.status for each in conditions or () if each.type == kind), None)
