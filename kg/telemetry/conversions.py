"""The unit that a metric is given in: its own, or the first of those that were asked for that fits. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry import dialects, units
from drumlin.kg.telemetry.templates import SHARES, Template, TemplateCatalogue
from drumlin.kg.telemetry.units import Conversion


def in_unit(
    catalogue: TemplateCatalogue, scope: str, template: Template, wanted: Sequence[str], *, custom: bool
) -> tuple[Template, Conversion]:
    """Return the template that gives a metric in the first unit that fits, and its conversion; raises ``InvalidInput``.

    ``%`` of what is no share is another metric. ``custom``: it is the caller's own PromQL.
    """
    share = None if custom else SHARES.get(template.metric)
    for each in () if custom else wanted:
        if found := units.convert(template.unit, each):
            return template, found
        if share and units.parse_unit(each).text == "%" and (other := catalogue.get(scope, share)):
            return other, Conversion("%", dialects.ONE)
    return template, first_fitting(template.metric, template.unit, wanted, custom=custom)


def first_fitting(metric: str, own: str, wanted: Sequence[str], *, custom: bool = False) -> Conversion:
    """Return the conversion into the first unit that fits; into its own where none is wanted. Raises ``InvalidInput``."""
    if not wanted:
        return Conversion(own, dialects.ONE)
    if custom:
        raise InvalidInput("nobody knows the unit of your own PromQL", hint="convert within the query, without unit=")
    for each in wanted:
        if found := units.convert(own, each):
            return found
    raise units.impossible(metric, own, wanted)
