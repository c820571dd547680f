"""CronJob → one node document. Source: CronJob v1 batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import InstalledWorkload, PodTemplate
from drumlin.exporters.kubernetes.render.workload import render_workload, template_facts
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Topic
from drumlin.kg.rdf.jsonld import NodeDocument


class JobTemplateSpec(msgspec.Struct, frozen=True, gc=False):
    """The pods of a job to be made."""

    template: PodTemplate


class JobTemplate(msgspec.Struct, frozen=True, gc=False):
    """The jobs to be made."""

    spec: JobTemplateSpec


class CronJobSpec(msgspec.Struct, frozen=True, gc=False):
    """When, what, and whether it is held back."""

    jobTemplate: JobTemplate
    schedule: str | None = None
    suspend: bool | None = None


class CronJob(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a CronJob."""

    spec: CronJobSpec


def render_cronjob(cronjob: CronJob, context: RenderContext) -> NodeDocument:
    """Describe a CronJob with its schedule; its Jobs are entities of their own, managed by it."""
    spec = cronjob.spec
    phase = "Suspended" if spec.suspend else "Active"
    document = render_workload("CronJob", cronjob.metadata, spec.jobTemplate.spec.template, context, phase=phase)
    return {**document, "schedule": spec.schedule} if spec.schedule else document


def cronjob_facts(cronjob: CronJob) -> Iterable[tuple[Topic, Any]]:
    """Publish to the Services of the namespace what the pods of its jobs are labelled with."""
    return template_facts("CronJob", cronjob.metadata, cronjob.spec.jobTemplate.spec.template)
