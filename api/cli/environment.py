"""The variables ``DRUMLIN_…`` of the environment: one that is misspelt would be passed over in silence, so it is refused.

Kubernetes puts variables of its own into every container of a namespace with a Service that is called ``drumlin`` or ``drumlin-…``; those
are left alone, and so is everything that is near no name of ours.
https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches

from drumlin.kg.errors import InvalidSettings

PREFIX = "DRUMLIN_"
_COMMANDS = frozenset({"DRUMLIN_URL", "DRUMLIN_TOKEN", "DRUMLIN_TOKEN_FILE", "DRUMLIN_CONFIG"})
"""What commands read that is no setting of a service."""
_OF_KUBERNETES = re.compile(r"DRUMLIN_(?:.*_)?(?:SERVICE_(?:HOST|PORT(?:_.*)?)|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_.*)?)?)")
_NEAR = 0.8


def check() -> None:
    """Raise ``InvalidSettings`` for a variable that is surely a misspelt one of ours; what is near none may be somebody else's."""
    given = [each for each in os.environ if each.upper().startswith(PREFIX) and each not in _COMMANDS]
    unknown = [each for each in given if not _OF_KUBERNETES.fullmatch(each)]
    if not unknown:
        return
    known = {each.removeprefix(PREFIX) for each in _COMMANDS} | _settings()
    for each in unknown:
        name, nested, rest = each.upper().removeprefix(PREFIX).partition("__")
        if name in known:  # of what is nested in it the settings judge
            continue
        turned = [other for other in known if sorted(other) == sorted(name)]  # ULR: too short to be near by its order
        if close := turned or get_close_matches(name[:64], known, n=1, cutoff=_NEAR):
            meant = f"{PREFIX}{close[0]}{nested}{rest}"
            raise InvalidSettings(f"there is no setting {each} (environment)", hint=f"did you mean {meant}?")


def _settings() -> set[str]:
    from drumlin.kg.config.settings import Settings

    return {name.upper() for name in Settings.model_fields}
