"""Job → one node document and its run. Source: Job v1 batch."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import InstalledWorkload, PodTemplate
from drumlin.exporters.kubernetes.render.workload import render_workload
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Life
from drumlin.kg.rdf.jsonld import NodeDocument


class JobSpec(msgspec.Struct, frozen=True, gc=False):
    """Size, template and whether it is held back."""

    template: PodTemplate
    parallelism: int | None = None
    suspend: bool | None = None


class JobCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition with the time at which it came true: the end of a Job that failed."""

    type: str
    status: str
    lastTransitionTime: str | None = None


class JobStatus(msgspec.Struct, frozen=True, gc=False):
    """How it ended."""

    completionTime: str | None = None
    conditions: tuple[JobCondition, ...] | None = None


class Job(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a Job."""

    spec: JobSpec
    status: JobStatus = JobStatus()


def render_job(job: Job, context: RenderContext) -> NodeDocument:
    """Describe a Job; ``replicas`` is how many pods may run at one time."""
    parallelism = job.spec.parallelism
    return render_workload(
        "Job",
        job.metadata,
        job.spec.template,
        context,
        phase=_phase(job),
        replicas=1 if parallelism is None else parallelism,
    )


def job_life(job: Job) -> Life:
    """A Job runs from its creation to its completion, or to the moment when it was found to have failed."""
    created = job.metadata.creationTimestamp
    if complete := _true(job, "Complete"):
        return Life(created, job.status.completionTime or complete.lastTransitionTime, "Completed")
    if failed := _true(job, "Failed"):
        return Life(created, failed.lastTransitionTime, "Failed")
    return Life(created)


def _phase(job: Job) -> str:
    if _true(job, "Complete"):
        return "Succeeded"
    if _true(job, "Failed"):
        return "Failed"
    return "Suspended" if job.spec.suspend or job.spec.parallelism == 0 else "Running"


def _true(job: Job, kind: str) -> JobCondition | None:
    found = (each for each in job.status.conditions or () if each.type == kind and each.status == "True")
    return next(found, None)
