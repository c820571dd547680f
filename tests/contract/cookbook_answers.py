"""The answers to the cookbook's questions, computed from plain manifests. Knows Kubernetes and the IRI table; never the graph.

Each function is named for its query and takes the objects (kind → manifests) and the query's parameters; it returns rows of the
query's columns as text (IRIs in full, numbers as exact decimals), without order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

B = "https://kg.example/id/"
NS = "https://w3id.org/drumlin/ns#"
Manifest = dict[str, Any]
Objects = Mapping[str, list[Manifest]]
Row = tuple[Any, ...]
KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
NODE_METRICS = {
    "cpu_usage": "{cpu}", "cpu_utilisation": "%", "mem_usage": "By", "disk_usage": "By", "energy_joules": "J",
    "network_receive": "By/s", "network_transmit": "By/s",
}  # fmt: skip
QUANTITY = {
    "cpu_usage": "cpu", "cpu_utilisation": "cpu", "mem_usage": "memory", "disk_usage": "disk", "energy_joules": "energy",
    "network_receive": "network", "network_transmit": "network",
}  # fmt: skip
PROMETHEUS, LOKI = f"{B}datasource/prometheus-main", f"{B}datasource/loki-main"
ENDPOINTS = {PROMETHEUS: "http://prometheus.monitoring.svc:9090", LOKI: "http://loki.monitoring.svc:3100"}
GRAFANA = f"{B}datasource/grafana-main"
DOMAIN = f"{B}domain/glaciation-node1"


# -- reading manifests ----------------------------------------------------------------------------------------------------


def iri(obj: Manifest, kind: str) -> str:
    """Name an object as the IRI table says."""
    meta = obj["metadata"]
    return f"{B}prod/{meta.get('namespace', '-')}/{kind.lower()}/{meta['name']}"


def owner(obj: Manifest) -> Manifest | None:
    """Return the controller's reference."""
    found: list[Manifest] = [each for each in obj["metadata"].get("ownerReferences", []) if each.get("controller")]
    return found[0] if found else None


def workloads(objects: Objects) -> Iterator[tuple[str, str, Manifest]]:
    """Yield IRI, kind and manifest of each workload; a ReplicaSet that something owns is not one."""
    for kind in KINDS:
        for each in objects.get(kind, []):
            if kind != "ReplicaSet" or not owner(each):
                yield iri(each, kind), kind, each


def template(workload: Manifest) -> Manifest:
    """Return the pod's spec that a workload makes pods of."""
    spec = workload["spec"]
    found: Manifest = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]
    return found


def manager(pod: Manifest, objects: Objects) -> str | None:
    """Return the workload that manages a pod; a ReplicaSet's owner stands for it."""
    reference = owner(pod)
    if reference is None:
        return None
    space = pod["metadata"]["namespace"]
    if reference["kind"] == "ReplicaSet":
        for each in objects["ReplicaSet"]:
            if (each["metadata"]["namespace"], each["metadata"]["name"]) == (space, reference["name"]):
                reference = owner(each) or reference
    return f"{B}prod/{space}/{reference['kind'].lower()}/{reference['name']}"


_SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9)}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def amount(text: str) -> Decimal:
    """Read a Kubernetes quantity."""
    if text[-2:] in _BINARY:
        return Decimal(text[:-2]) * _BINARY[text[-2:]]
    suffix = text[-1] if text[-1].isalpha() else ""
    return Decimal(text.removesuffix(suffix)) * _SUFFIXES[suffix]


def ask(container: Manifest, resource: str) -> Decimal | None:
    """Return what a container requests; a limit alone is also the request."""
    resources = container.get("resources", {})
    found = resources.get("requests", {}).get(resource) or resources.get("limits", {}).get(resource)
    return amount(found) if found else None


def limit(container: Manifest, resource: str) -> Decimal | None:
    """Return a container's limit."""
    found = container.get("resources", {}).get("limits", {}).get(resource)
    return amount(found) if found else None


def pod_request(pod: Manifest, resource: str) -> Decimal:
    """Return the larger of what the containers ask for together and what one init container asks for."""
    together = sum((ask(each, resource) or Decimal() for each in pod["spec"]["containers"]), Decimal())
    initial = [ask(each, resource) or Decimal() for each in pod["spec"].get("initContainers", [])]
    return max([together, *initial])


def alive(objects: Objects) -> list[Manifest]:
    """Return the pods that are on a node and have not ended."""
    return [
        each
        for each in objects["Pod"]
        if each["spec"].get("nodeName") and each["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def node_iri(name: str) -> str:
    """Name a node."""
    return f"{B}prod/-/node/{name}"


def concept(name: str) -> str:
    """Name a concept or class."""
    return NS + name


def metrics(workload: Manifest) -> set[str]:
    """Return the metrics that a workload can have: no utilisation without a limit, no traffic of its own on the host's network."""
    spec = template(workload)
    found = set(NODE_METRICS)
    if not any(limit(each, "cpu") for each in spec["containers"]):
        found.discard("cpu_utilisation")
    return found - {"network_receive", "network_transmit"} if spec.get("hostNetwork") else found


def claims(kind: str, workload: Manifest) -> set[str]:
    """Return the claims that the pods of a workload mount, those of a StatefulSet's templates included."""
    space, name = workload["metadata"]["namespace"], workload["metadata"]["name"]
    found = {
        each["persistentVolumeClaim"]["claimName"]
        for each in template(workload).get("volumes", [])
        if "persistentVolumeClaim" in each
    }
    if kind == "StatefulSet":
        for each in workload["spec"].get("volumeClaimTemplates", []):
            found |= {f"{each['metadata']['name']}-{name}-{number}" for number in range(workload["spec"]["replicas"])}
    return {f"{B}prod/{space}/persistentvolumeclaim/{each}" for each in found}


# -- the answers ----------------------------------------------------------------------------------------------------------


def workload_metrics(objects: Objects) -> Iterator[Row]:
    """Queries are left out: telemetry's own tests compute them."""
    for name, _, each in workloads(objects):
        for metric in metrics(each):
            yield name, metric, NODE_METRICS[metric], PROMETHEUS, ENDPOINTS[PROMETHEUS], ...


def node_metrics(objects: Objects) -> Iterator[Row]:
    """Answer: Which metrics has every node?"""
    for each in objects["Node"]:
        for metric, unit in NODE_METRICS.items():
            yield iri(each, "Node"), metric, unit, ...


def site_metrics(objects: Objects) -> Iterator[Row]:
    """Answer: Which metrics has the whole site?"""
    del objects
    for site, kind in ((DOMAIN, "GlaciationNode"), (f"{B}cluster/prod", "Cluster")):
        for metric, unit in NODE_METRICS.items():
            yield site, concept(kind), metric, unit, ...


def metrics_of_quantity(objects: Objects, quantity: str) -> Iterator[Row]:
    """Answer: What measures one quantity?"""
    asked = {metric for metric, each in QUANTITY.items() if concept(each) == quantity}
    for name, _, each in workloads(objects):
        yield from ((name, metric, NODE_METRICS[metric], ...) for metric in metrics(each) & asked)
    for site in (DOMAIN, f"{B}cluster/prod", *(iri(each, "Node") for each in objects["Node"])):
        yield from ((site, metric, NODE_METRICS[metric], ...) for metric in asked)


def units(objects: Objects) -> Iterator[Row]:
    """Answer: Which metrics are there, in which units?"""
    count = Counter(metric for _, _, each in workloads(objects) for metric in metrics(each))
    for metric, unit in NODE_METRICS.items():
        yield metric, unit, Decimal(count[metric] + len(objects["Node"]) + 2)


def datasources(objects: Objects) -> Iterator[Row]:
    """Answer: Which datasources are there, and how much do they hold?"""
    found = list(workloads(objects))
    held = sum(len(metrics(each)) for _, _, each in found) + 7 * (len(objects["Node"]) + 2)
    yield PROMETHEUS, concept("prometheus"), ENDPOINTS[PROMETHEUS], Decimal(held)
    yield LOKI, concept("loki"), ENDPOINTS[LOKI], Decimal(len(found))
    yield GRAFANA, concept("grafana"), "https://grafana.example", Decimal(0)


def logs(objects: Objects) -> Iterator[Row]:
    """Answer: Where are the logs of each workload?"""
    for name, _, _each in workloads(objects):
        yield name, ..., ENDPOINTS[LOKI]


def dashboards(objects: Objects) -> Iterator[Row]:
    """Answer: Where can I look at it?"""
    for name, _, each in workloads(objects):
        yield name, f"https://grafana.example/d/{each['metadata']['namespace']}/{each['metadata']['name']}"


def pods_on_node(objects: Objects, node: str) -> Iterator[Row]:
    """Answer: Which pods are on a node now?"""
    for each in alive(objects):
        if node_iri(each["spec"]["nodeName"]) == node:
            yield iri(each, "Pod"), manager(each, objects), each["status"]["startTime"]


def pods_per_node(objects: Objects) -> Iterator[Row]:
    """Answer: How many pods are on each node?"""
    for node, count in Counter(each["spec"]["nodeName"] for each in alive(objects)).items():
        yield node_iri(node), Decimal(count)


def requests_per_node(objects: Objects) -> Iterator[Row]:
    """Answer: How much is reserved on each node?"""
    for node in objects["Node"]:
        pods = [each for each in alive(objects) if each["spec"]["nodeName"] == node["metadata"]["name"]]
        if pods:
            cpu, memory = (sum(pod_request(each, what) for each in pods) for what in ("cpu", "memory"))
            given = node["status"]["allocatable"]
            yield iri(node, "Node"), cpu, memory, amount(given["cpu"]), amount(given["memory"])


def capacity(objects: Objects) -> Iterator[Row]:
    """Answer: What can each node hold?"""
    for node in objects["Node"]:
        labels, has = node["metadata"]["labels"], node["status"]["capacity"]
        gpus = has.get("nvidia.com/gpu")
        zone, arch = labels.get("topology.kubernetes.io/zone"), labels.get("kubernetes.io/arch")
        yield iri(node, "Node"), arch, zone, amount(has["cpu"]), amount(has["memory"]), gpus and Decimal(gpus)


def gpu_pods(objects: Objects) -> Iterator[Row]:
    """Answer: Who asks for GPUs?"""
    for pod in objects["Pod"]:
        if count := sum(ask(each, "nvidia.com/gpu") or Decimal() for each in pod["spec"]["containers"]):
            yield iri(pod, "Pod"), count, node_iri(pod["spec"]["nodeName"]) if pod in alive(objects) else None


def unavailable_nodes(objects: Objects) -> Iterator[Row]:
    """Answer: Which nodes take no pods?"""
    for node in objects["Node"]:
        ready = next((each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"), "Unknown")
        phase = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
        cordoned = node["spec"].get("unschedulable", False)
        if cordoned or phase != "Ready":
            yield iri(node, "Node"), concept(phase), str(cordoned).lower()


def container_demand(objects: Objects) -> Iterator[Row]:
    """Answer: What does each workload's container ask for?"""
    for name, _, each in workloads(objects):
        for container in template(each)["containers"]:
            numbers = (
                ask(container, "cpu"), limit(container, "cpu"), ask(container, "memory"), limit(container, "memory"),
            )  # fmt: skip
            yield name, container["name"], *numbers


def without_limits(objects: Objects) -> Iterator[Row]:
    """Answer: Which containers may use all memory of their node?"""
    for name, _, each in workloads(objects):
        yield from ((name, own["name"]) for own in template(each)["containers"] if limit(own, "memory") is None)


def images(objects: Objects) -> Iterator[Row]:
    """Answer: Which images run where?"""
    for name, _, each in workloads(objects):
        yield from ((own["image"], name, own["name"]) for own in template(each)["containers"])


def workloads_with_image(objects: Objects, text: str) -> Iterator[Row]:
    """Answer: Which workloads use this image?"""
    yield from {(workload, image) for image, workload, _ in images(objects) if text in image}


def workloads_with_label(objects: Objects, label: str) -> Iterator[Row]:
    """Answer: Which workloads bear a label?"""
    key, _, value = label.partition("=")
    for name, _, each in workloads(objects):
        if each["metadata"].get("labels", {}).get(key) == value:
            yield name, each["metadata"]["namespace"]


def application(objects: Objects, application: str) -> Iterator[Row]:
    """Answer: What belongs to an application?"""
    own = {}
    for name, kind, each in workloads(objects):
        labels = each["metadata"].get("labels", {})
        part = labels.get("app.kubernetes.io/name") or labels.get("app.kubernetes.io/instance")
        if application in (part, labels.get("app.kubernetes.io/part-of")):
            own[name] = (name, concept(kind), each["metadata"]["name"])
    yield from own.values()
    for service in {service for service, workload in services(objects) if workload in own}:
        yield service, concept("Service"), service.rpartition("/")[2]


def same_name(objects: Objects) -> Iterator[Row]:
    """Answer: Which workloads share a name?"""
    count = Counter(each["metadata"]["name"] for _, _, each in workloads(objects))
    yield from ((name, Decimal(number)) for name, number in count.items() if number > 1)


def data_dependencies(objects: Objects) -> Iterator[Row]:
    """Answer: Which data does each workload need?"""
    sizes = {
        iri(each, "PersistentVolumeClaim"): amount(each["spec"]["resources"]["requests"]["storage"])
        for each in objects["PersistentVolumeClaim"]
    }
    for name, kind, each in workloads(objects):
        yield from ((name, claim, None, sizes[claim]) for claim in claims(kind, each) if claim in sizes)
        yield from (
            (name, asset, {"s3": "objectstore", "postgres": "database"}[scheme], None) for scheme, asset in stated(each)
        )


def stated(workload: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the external data that a workload's annotation names: scheme and asset; it has no password with a comma or slash."""
    for url in workload["metadata"].get("annotations", {}).get("drumlin.io/depends-on", "").split(", "):
        if url:
            scheme, _, rest = url.partition("://")
            yield scheme, f"{B}external/{scheme}~{rest.rpartition('@')[2].replace('/', '~')}"


def users_of_data(objects: Objects, asset: str) -> Iterator[Row]:
    """Answer: Who needs this data?"""
    for name, kind, each in workloads(objects):
        if asset in claims(kind, each) | {found for _, found in stated(each)}:
            yield name, concept(kind)


def blast_radius(objects: Objects, entity: str) -> Iterator[Row]:
    """Answer: What would feel its loss? Of data: its users, what they manage, services, ingresses and autoscalers."""
    found = {row[0]: str(row[1]).removeprefix(NS) for row in users_of_data(objects, entity)}
    found |= {iri(pod, "Pod"): "Pod" for pod in objects["Pod"] if manager(pod, objects) in found}
    found |= {service: "Service" for service, workload in services(objects) if workload in found}
    for each in objects.get("Ingress", []):
        paths = [path for rule in each["spec"].get("rules", []) for path in rule.get("http", {}).get("paths", [])]
        space = each["metadata"]["namespace"]
        if any(f"{B}prod/{space}/service/{path['backend']['service']['name']}" in found for path in paths):
            found[iri(each, "Ingress")] = "Ingress"
    for each in objects.get("HorizontalPodAutoscaler", []):
        target = each["spec"]["scaleTargetRef"]
        if f"{B}prod/{each['metadata']['namespace']}/{target['kind'].lower()}/{target['name']}" in found:
            found[iri(each, "HorizontalPodAutoscaler")] = "Autoscaler"
    yield from ((name, concept(kind)) for name, kind in found.items())


def _brought(objects: Objects) -> Iterator[tuple[str, str, str]]:
    """Yield the workloads that Helm installed, with their kinds and releases; the recorded cluster's other objects were applied."""
    for name, kind, each in workloads(objects):
        annotations = each["metadata"].get("annotations", {})
        if release := annotations.get("meta.helm.sh/release-name"):
            yield name, kind, f"helm:{annotations['meta.helm.sh/release-namespace']}/{release}"


def release(objects: Objects, name: str) -> Iterator[Row]:
    """Answer: What did this release bring?"""
    for workload, kind, found in _brought(objects):
        if found == name or found.endswith(f"/{name}"):
            yield workload, concept(kind), found
            jobs = [iri(each, "Job") for each in objects["Job"] if manager(each, objects) == workload]
            yield from ((job, concept("Job"), found) for job in jobs)
            pods = [iri(pod, "Pod") for pod in objects["Pod"] if manager(pod, objects) in (workload, *jobs)]
            yield from ((pod, concept("Pod"), found) for pod in pods)


def releases(objects: Objects) -> Iterator[Row]:
    """Answer: What is installed, and by what?"""
    for found, count in Counter(found for _, _, found in _brought(objects)).items():
        yield found, Decimal(count)


def receivers(objects: Objects, service: str) -> Iterator[Row]:
    """Answer: Which pods of this service receive requests now?"""
    running = {iri(pod, "Pod"): pod for pod in objects["Pod"] if pod["status"]["phase"] == "Running"}
    for each in objects["EndpointSlice"]:
        space, of = each["metadata"]["namespace"], each["metadata"]["labels"]["kubernetes.io/service-name"]
        for endpoint in each["endpoints"] if f"{B}prod/{space}/service/{of}" == service else []:
            pod = f"{B}prod/{space}/pod/{endpoint['targetRef']['name']}"
            if endpoint["conditions"]["ready"] and pod in running:
                yield pod, node_iri(running[pod]["spec"]["nodeName"])


def who_may_reach(objects: Objects, workload: str) -> Iterator[Row]:
    """Answer: Who may reach this workload? The only policy of the troubled cluster is for the pods of checkout, and admits those of ledger."""
    named = {name for name, _, _ in workloads(objects)}
    policies = objects.get("NetworkPolicy", [])
    if workload in named and workload.endswith("/payments/deployment/checkout") and policies:
        yield iri(policies[0], "NetworkPolicy"), f"{B}prod/payments/deployment/ledger", None
        yield iri(policies[0], "NetworkPolicy"), None, "10.0.0.0/8"
    elif workload in named:
        yield None, None, "*"


def who_may_read_secret(objects: Objects, namespace: str, name: str) -> Iterator[Row]:
    """Answer: Who may read this Secret? Its pods, and by the only binding of the troubled cluster the account of ledger."""
    for workload, account in ((each, row[2]) for each, _, row in _takers(objects, namespace, name)):
        yield account, workload, None, None
    if objects.get("RoleBinding") and (namespace, name) == ("payments", "other"):
        binding = f"{B}prod/payments/rolebinding/readers"
        yield "payments/ledger", f"{B}prod/payments/deployment/ledger", binding, "Role/readers"


def _takers(objects: Objects, namespace: str, name: str) -> Iterator[tuple[str, str, tuple[str, str, str]]]:
    for workload, kind, role in users_of_configuration(objects, namespace, name):
        if role == "Secret":
            spec = next(template(each) for found, _, each in workloads(objects) if found == workload)
            yield workload, kind, ("", "", f"{namespace}/{spec.get('serviceAccountName', 'default')}")


def services(objects: Objects) -> Iterator[Row]:
    """Answer: Which workloads does each service lead to?"""
    for service in objects["Service"]:
        selector = service["spec"].get("selector") or {}
        for name, _, each in workloads(objects):
            spec = each["spec"]
            made = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]
            labels = made.get("metadata", {}).get("labels", {})
            same_space = each["metadata"]["namespace"] == service["metadata"]["namespace"]
            if selector and same_space and selector.items() <= labels.items():
                yield iri(service, "Service"), name


def pods_of_workload(objects: Objects, workload: str) -> Iterator[Row]:
    """Answer: Which pods does a workload have?"""
    for pod in objects["Pod"]:
        if manager(pod, objects) == workload:
            yield iri(pod, "Pod"), concept(pod["status"]["phase"])


def pending_pods(objects: Objects) -> Iterator[Row]:
    """Answer: Which pods do not run?"""
    for pod in objects["Pod"]:
        if (phase := pod["status"]["phase"]) not in ("Running", "Succeeded"):
            yield iri(pod, "Pod"), concept(phase), manager(pod, objects)


def job_state(job: Manifest) -> str:
    """Return the condition that a job ended with, or nothing."""
    return next(
        (each["type"] for each in job["status"].get("conditions", []) if each["status"] == "True" and each["type"] in ("Complete", "Failed")), ""
    )  # fmt: skip


def jobs(objects: Objects) -> Iterator[Row]:
    """Answer: How did the jobs end?"""
    for job in objects["Job"]:
        state = job_state(job)
        phase = {"Complete": "Succeeded", "Failed": "Failed"}.get(state, "Running")
        outcome = {"Complete": concept("Completed"), "Failed": concept("Failed")}.get(state)
        failed = (
            each for each in job["status"].get("conditions", []) if (each["type"], each["status"]) == ("Failed", "True")
        )
        end = job["status"].get("completionTime") or next((each["lastTransitionTime"] for each in failed), None)
        yield iri(job, "Job"), concept(phase), job["metadata"]["creationTimestamp"], end, outcome


def troubled(objects: Objects) -> Iterator[Row]:
    """Answer: Which workloads do not run?"""
    for name, kind, each in workloads(objects):
        stuck = any(
            one["type"] == "Progressing" and one["status"] == "False"
            for one in each.get("status", {}).get("conditions", [])
        )
        replicas = each["spec"].get("replicas", 1) if kind not in ("DaemonSet", "CronJob", "Job") else None
        if kind == "Job" and job_state(each) == "Failed":
            yield name, concept("Failed"), Decimal(each["spec"].get("parallelism", 1))
        elif replicas == 0 or (kind == "CronJob" and each["spec"].get("suspend")):
            yield name, concept("Suspended"), None if replicas is None else Decimal(replicas)
        elif kind == "Deployment" and stuck:
            yield name, concept("Failed"), Decimal(replicas or 0)


def schedules(objects: Objects) -> Iterator[Row]:
    """Answer: What starts on a schedule?"""
    for each in objects["CronJob"]:
        phase = "Suspended" if each["spec"].get("suspend") else "Active"
        yield iri(each, "CronJob"), each["spec"]["schedule"], concept(phase)


def domain_of(namespace: str, objects: Objects) -> str:
    """Return the domain of a namespace: its Kuscia label's, else the hosting one."""
    labels = next(each for each in objects["Namespace"] if each["metadata"]["name"] == namespace)["metadata"]["labels"]
    own = labels.get("kuscia.secretflow/domain-name")
    return f"{B}domain/{own}" if own else DOMAIN


def namespaces(objects: Objects) -> Iterator[Row]:
    """Answer: Which namespaces belong to which domain?"""
    for each in objects["Namespace"]:
        name = each["metadata"]["name"]
        yield iri(each, "Namespace"), name, domain_of(name, objects)


def workloads_of_domain(objects: Objects, domain: str) -> Iterator[Row]:
    """Answer: What runs for a domain?"""
    for name, kind, each in workloads(objects):
        if domain_of(each["metadata"]["namespace"], objects) == domain:
            yield name, concept(kind), each["metadata"]["namespace"]


def zones(objects: Objects) -> Iterator[Row]:
    """Answer: How are pods spread over zones?"""
    of = {
        each["metadata"]["name"]: each["metadata"]["labels"].get("topology.kubernetes.io/zone")
        for each in objects["Node"]
    }
    pods: dict[str, list[str]] = defaultdict(list)
    for pod in alive(objects):
        if zone := of.get(pod["spec"]["nodeName"]):
            pods[zone].append(pod["spec"]["nodeName"])
    yield from ((zone, Decimal(len(set(nodes))), Decimal(len(nodes))) for zone, nodes in pods.items())


def _names(value: Any, key: str, name: str) -> bool:
    """Return whether something below a manifest refers to an object of that name by one of its keys."""
    if isinstance(value, list):
        return any(_names(each, key, name) for each in value)
    if not isinstance(value, dict):
        return False
    mine = {
        "ConfigMap": {"configMapKeyRef", "configMapRef", "configMap"},
        "Secret": {"secretKeyRef", "secretRef", "secret"},
    }
    for field, inner in value.items():
        if field in mine[key] and name in (inner.get("name"), inner.get("secretName")):
            return True
        if key == "Secret" and field == "imagePullSecrets" and {"name": name} in inner:
            return True
        if _names(inner, key, name):
            return True
    return False


def users_of_configuration(objects: Objects, namespace: str, name: str) -> Iterator[Row]:
    """Answer: Who uses this ConfigMap, Secret or service account?"""
    for each, kind, workload in workloads(objects):
        if workload["metadata"]["namespace"] != namespace:
            continue
        for used in ("ConfigMap", "Secret"):
            if _names(template(workload), used, name):
                yield each, concept(kind), used
        if template(workload).get("serviceAccountName") == name:
            yield each, concept(kind), "ServiceAccount"


def node_software(objects: Objects) -> Iterator[Row]:
    """Answer: What runs on the nodes themselves?"""
    for node in objects["Node"]:
        info, pool = node["status"]["nodeInfo"], node["metadata"]["labels"].get("cloud.google.com/gke-nodepool")
        taints = [
            f"{each['key']}{'=' if 'value' in each else ''}{each.get('value', '')}:{each['effect']}"
            for each in node["spec"].get("taints", [])
        ]
        for taint in taints or [None]:
            yield (
                iri(node, "Node"), pool, taint, info["kernelVersion"], info["containerRuntimeVersion"],
                info["kubeletVersion"],
            )  # fmt: skip


def targets_hosts(objects: Objects, port: str) -> Iterator[Row]:
    """Answer: Which machines can be scraped?"""
    for node in objects["Node"]:
        name = node["metadata"]["name"]
        yield f"{name}:{port}", name, iri(node, "Node"), "Node", f"{B}cluster/prod", DOMAIN


ANSWERS: Mapping[str, Callable[..., Iterator[Row]]] = {
    name.replace("_", "-"): found
    for name, found in globals().items()
    if callable(found) and getattr(found, "__annotations__", {}).get("return") == "Iterator[Row]"
}
"""Query → its answer from manifests. ``runs``, ``runs-on-node``, ``runs-of-workload``, ``requests-on-node``, ``classes`` and ``what-is`` are answered in the test itself."""
