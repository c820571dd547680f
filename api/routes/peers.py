"""``/peers``: the Drumlins that this one follows, how far each is, and what of it was refused."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from drumlin.api.bootstrap import Services, parts
from drumlin.exporters.peers.follower import PeerFollower

router = APIRouter(tags=["peers"])
Service = Annotated[Services, Depends(parts)]


@router.get("/peers", summary="List the services that are followed")
def list_peers(service: Service) -> dict[str, list[dict[str, Any]]]:
    """Return per peer: ``lagSeconds`` since when something may be missing, ``lagGenerations``, ``position`` (the last event), ``error``.

    ``graphs`` are here now; ``written``, ``withdrawn`` and ``refused`` (by reason: ``foreign`` is of no domain of the peer, ``owned`` by
    somebody else here, ``invalid`` breaks a rule for graphs) count since the start.
    """
    return {"items": [_told(service, each) for each in service.peers]}


def _told(service: Services, peer: PeerFollower) -> dict[str, Any]:
    settings, state = peer.settings, peer.state
    return {
        "name": settings.name,
        "url": str(settings.url),
        "base": peer.base,
        "domains": list(settings.domains),
        "graphs": len(service.store.entries(owner=settings.owner)),
        "lagSeconds": round(peer.lag, 3),
        "lagGenerations": state.lag_generations(),
        "position": state.event,
        "compared": state.compared,
        "written": state.written,
        "withdrawn": state.withdrawn,
        "refused": dict(state.refused),
        "error": peer.failure,
    }
