"""What the fake API server knows: objects, one growing resourceVersion, the log of events, snapshots of paged lists.

Objects are never changed in place, so the log and the snapshots hold references. Bodies of refusals are those of
kube-apiserver 1.36 (the recordings in ``data/k8s-recorded``).
"""

from __future__ import annotations

import base64
import json
import random
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for none), name

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Resource:
    """One collection that is served; ``custom`` ones are written as a CRD's are."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False

    @property
    def api_version(self) -> str:
        """``group/version`` as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural and group, as refusals name the collection."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """The collection's path over all namespaces."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/{self.plural}"


_BUILTIN = """
 v1 namespaces Namespace -           |  v1 nodes Node -                      |  v1 pods Pod
 v1 services Service                 |  v1 persistentvolumes PersistentVolume -  |  v1 persistentvolumeclaims PersistentVolumeClaim
 v1 configmaps ConfigMap             |  v1 events Event
 apps/v1 deployments Deployment      |  apps/v1 statefulsets StatefulSet     |  apps/v1 daemonsets DaemonSet
 apps/v1 replicasets ReplicaSet      |  batch/v1 jobs Job                    |  batch/v1 cronjobs CronJob
 autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler  |  networking.k8s.io/v1 ingresses Ingress
 policy/v1 poddisruptionbudgets PodDisruptionBudget
 coordination.k8s.io/v1 leases Lease
 events.k8s.io/v1 events Event       |  networking.k8s.io/v1 networkpolicies NetworkPolicy
 rbac.authorization.k8s.io/v1 roles Role  |  rbac.authorization.k8s.io/v1 rolebindings RoleBinding
 rbac.authorization.k8s.io/v1 clusterroles ClusterRole -  |  rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding -
 discovery.k8s.io/v1 endpointslices EndpointSlice  |  storage.k8s.io/v1 storageclasses StorageClass -
"""


def _builtin() -> list[Resource]:
    found = []
    for row in _BUILTIN.replace("|", "\n").strip().splitlines():
        api_version, plural, kind, *cluster_scoped = row.split()
        group, _, version = api_version.rpartition("/")
        found.append(Resource(group, version, plural, kind, namespaced=not cluster_scoped))
    return found


class ApiError(Exception):
    """A refusal: the Status body and the HTTP status it goes with."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        } | more  # fmt: skip
        if not reason:
            del self.body["reason"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event as etcd would tell it; ``previous`` decides what a selecting watch sees."""

    version: int
    type: str
    resource: Resource
    object: Json
    previous: Json | None


def merged(target: Any, patch: Any) -> Any:
    """Return ``target`` with a JSON merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def selects(selector: str, found: Json | None) -> bool:
    """Return whether an equality-based label selector matches an object."""
    labels = ((found or {}).get("metadata") or {}).get("labels") or {}
    for term in filter(None, selector.split(",")):
        key, operator, value = term.partition("!=") if "!=" in term else term.replace("==", "=").partition("=")
        if operator == "!=" and labels.get(key) == value:
            return False
        if operator == "=" and labels.get(key) != value:
            return False
        if not operator and key not in labels:
            return False
    return found is not None


class ApiState:
    """The objects of one cluster; every method is safe from any thread and wakes the watches that wait on ``changed``."""

    def __init__(self, seed: int = 0) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1
        self.compacted = 0
        self.log: list[LogEntry] = []
        self.resources: dict[str, Resource] = {each.path: each for each in _builtin()}
        self._objects: dict[Resource, dict[Key, Json]] = {}
        self._snapshots: dict[tuple[int, Resource], list[Json]] = {}
        self._random = random.Random(seed)

    def register(self, resource: Resource) -> Resource:
        """Serve one more collection, as installing a CRD does."""
        with self.changed:
            self.resources[resource.path] = resource
            return resource

    def unregister(self, resource: Resource) -> None:
        """Stop serving a collection; its objects go with it."""
        with self.changed:
            for namespace, name in list(self._objects.get(resource, {})):
                self.remove(resource, namespace, name)
            del self.resources[resource.path]

    def named(self, plural: str) -> Resource:
        """Return the collection called ``plural``."""
        return next(each for each in self.resources.values() if each.plural == plural)

    # -- reading ------------------------------------------------------------------------------------------------------
    def objects(self, resource: Resource, namespace: str = "", selector: str = "") -> list[Json]:
        """Return what exists, ordered by namespace and name as etcd's keys are."""
        with self.changed:
            found = sorted(self._objects.get(resource, {}).items())
            return [each for (inside, _), each in found if namespace in {"", inside} and selects(selector, each)]

    def read(self, resource: Resource, namespace: str, name: str) -> Json:
        """Return one object or refuse with 404."""
        with self.changed:
            found = self._objects.get(resource, {}).get((namespace, name))
        if found is None:
            raise ApiError(
                404,
                "NotFound",
                f'{resource.qualified} "{name}" not found',
                details={"name": name}
                | ({"group": resource.group} if resource.group else {})
                | {"kind": resource.plural},
            )
        return found

    def page(
        self, resource: Resource, namespace: str, selector: str, limit: int, token: str
    ) -> tuple[list[Json], int, str, int]:
        """Return one page of a list, its version, the token of the next and how many are left; bound to one snapshot."""
        with self.changed:
            version, start = _read_token(token) if token else (self.version, "")
            if not token and limit:
                self._snapshots[version, resource] = self.objects(resource)
            if version > 0 and token and (version, resource) not in self._snapshots:
                raise ApiError(
                    410, "Expired", CONTINUE_EXPIRED, metadata={"continue": _write_token(-1, start.lstrip("/"))}
                )
            whole = self._snapshots.get((version, resource)) or self.objects(resource)
            found = [
                each for each in whole
                if namespace in {"", each["metadata"].get("namespace", "")} and selects(selector, each) and _place(each) >= start
            ]  # fmt: skip
            if not limit or len(found) <= limit:
                return found, max(version, 0) or self.version, "", 0
            following = _write_token(version, _place(found[limit - 1]) + "\0")
            return found[:limit], max(version, 0) or self.version, following, len(found) - limit

    # -- writing ------------------------------------------------------------------------------------------------------
    def create(self, resource: Resource, namespace: str, body: Json) -> Json:
        """Create an object: uid, creationTimestamp, generation and resourceVersion are the server's."""
        given = body.get("metadata") or {}
        with self.changed:
            name = given.get("name") or f"{given['generateName']}{self._random.randrange(36**5):05x}"
            if (namespace, name) in self._objects.get(resource, {}):
                raise ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists')
            meta = given | {
                "name": name,
                "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                "generation": 1,
            }
            meta["creationTimestamp"] = _stamp()
            if resource.namespaced:
                meta["namespace"] = namespace
            return self._store("ADDED", resource, body | {"metadata": meta})

    def replace(self, resource: Resource, namespace: str, name: str, body: Json) -> Json:
        """Write an object again; a stale resourceVersion or another uid conflicts, equal content changes nothing."""
        with self.changed:
            old = self.read(resource, namespace, name)
            given, kept = body.get("metadata") or {}, old["metadata"]
            for field in ("resourceVersion", "uid"):
                if given.get(field, kept[field]) != kept[field]:
                    raise ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource.qualified} "{name}"')
            fixed = (
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "resourceVersion",
                "generation",
                "deletionTimestamp",
            )
            new = body | {"kind": resource.kind, "apiVersion": resource.api_version}
            new["metadata"] = given | {key: kept[key] for key in fixed if key in kept}
            if new == old:
                return old
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = kept.get("generation", 1) + 1
            if "deletionTimestamp" in kept and not new["metadata"].get("finalizers") and kept.get("finalizers"):
                return self.remove(resource, namespace, name)
            return self._store("MODIFIED", resource, new)

    def patch(self, resource: Resource, namespace: str, name: str, patch: Json) -> Json:
        """Apply a JSON merge patch, also to the status."""
        with self.changed:
            return self.replace(resource, namespace, name, merged(self.read(resource, namespace, name), patch))

    def delete(self, resource: Resource, namespace: str, name: str, grace: int | None = None) -> Json:
        """Delete an object; one with finalizers, or a scheduled pod with a grace period, is only marked at first.

        A pod is marked even when its end is immediate: a watch sees MODIFIED with ``deletionTimestamp`` before DELETED (as recorded).
        """
        with self.changed:
            old = self.read(resource, namespace, name)
            pod, held = resource.plural == "pods", bool(old["metadata"].get("finalizers"))
            if not (pod or held):
                return self.remove(resource, namespace, name)
            running = pod and bool((old.get("spec") or {}).get("nodeName"))
            seconds = (30 if grace is None else grace) if running else 0
            meta = old["metadata"]
            if "deletionTimestamp" not in meta or seconds < meta["deletionGracePeriodSeconds"]:
                again = 0 if "deletionTimestamp" in meta else 1
                old = self._store("MODIFIED", resource, _marked(old, seconds, again))
            return old if seconds or held else self.remove(resource, namespace, name)

    def remove(self, resource: Resource, namespace: str, name: str) -> Json:
        """Take an object away at once."""
        with self.changed:
            old = self.read(resource, namespace, name)
            return self._store("DELETED", resource, old)

    def record(self, kind: str, resource: Resource, found: Json, *, times: int = 1) -> None:
        """Make a recorded event (ADDED, MODIFIED, DELETED) happen again, with its own uid and resourceVersion."""
        with self.changed:
            for _ in range(times):
                self._store(kind, resource, found, version=int(found["metadata"]["resourceVersion"]))

    def compact(self) -> None:
        """Forget the log and the snapshots up to now: older versions and tokens are answered 410."""
        with self.changed:
            self.compacted = self.version
            self._snapshots.clear()

    def advance(self, version: int) -> None:
        """Let the version be at least ``version``; recordings bring their own."""
        with self.changed:
            self.version = max(self.version, version)

    def _store(self, kind: str, resource: Resource, found: Json, version: int | None = None) -> Json:
        self.version = max(self.version, version) if version else self.version + 1
        meta = found["metadata"] | {"resourceVersion": str(version or self.version)}
        new = {"kind": resource.kind, "apiVersion": resource.api_version} | found | {"metadata": meta}
        key = (meta.get("namespace", ""), meta["name"])
        held = self._objects.setdefault(resource, {})
        previous = held.get(key)
        if kind != "DELETED":
            held[key] = new
        elif previous is not None and previous["metadata"]["uid"] == meta["uid"]:
            del held[key]
        self.log.append(LogEntry(self.version, kind, resource, new, previous))
        self.changed.notify_all()
        return new


def _marked(found: Json, seconds: int, generations: int) -> Json:
    meta = found["metadata"]
    marks = {
        "generation": meta.get("generation", 1) + generations,
        "deletionTimestamp": _stamp(seconds),
        "deletionGracePeriodSeconds": seconds,
    }
    return found | {"metadata": meta | marks}


def _stamp(later: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(found: Json) -> str:
    meta = found["metadata"]
    return f"/{meta['namespace']}/{meta['name']}" if "namespace" in meta else f"/{meta['name']}"


def _write_token(version: int, start: str) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        read = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(read["rv"]), "/" + str(read["start"]).lstrip("/")
    except (ValueError, KeyError) as error:
        raise ApiError(400, "BadRequest", "continue key is not valid") from error
