"""The whole catalogue of metric templates on a real Prometheus."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kg.telemetry import promql
from kg.telemetry.fetch.prometheus import Prometheus
from kg.telemetry.series import Grid, Window
from kg.telemetry.templates import Template, shipped_templates
from tests.integration.conftest import RealPrometheus, at

VALUES = {"namespace": "pay.ments", "pods": "x-[0-9a-f]{6,10}-[0-9a-z]{5}", "node": 'a"b\\c'}


@pytest.mark.parametrize("template", shipped_templates(), ids=lambda each: each.name)
def test_a_real_server_evaluates_the_template(prometheus: RealPrometheus, template: Template) -> None:
    """Each template, also of exporters that are not enabled, is a query that the server runs without an error."""
    with Prometheus(prometheus.datasource()) as client:
        query = promql.render(template.query, VALUES, window=timedelta(minutes=5), datasource=client.datasource)

        client.series(query, Grid.over(Window(at(5), at(60)), timedelta(minutes=5)))
