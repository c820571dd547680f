from typing import Literal

Choice = Literal["auto", "exact", "pattern"]
"""How a caller wants a workload's pods to be picked: ``exact`` asks for the known ones only, ``pattern`` for all of such names, ``auto``
for the known ones where all are known, else for the pattern."""
