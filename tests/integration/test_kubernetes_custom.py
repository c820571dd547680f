"""A custom resource that is mapped: followed where it is served, waited for where it is not."""

from __future__ import annotations

from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.protocol import KindUnavailable
from tests.fake_apiserver.clusters import fake_cluster
from tests.fake_apiserver.following import FAST, PODS, Following
from tests.fake_apiserver.state import Resource
from tests.unit.rendering import BY_NAME

DOMAINS = BY_NAME["Domain"]


def test_a_crd_that_is_installed_later_is_picked_up() -> None:
    """A kind that is not served is told aside, once, so that nobody waits for it; when it comes, so do its objects."""
    with (
        fake_cluster() as cluster,
        Following(KubernetesSource(cluster.access(), [PODS, DOMAINS], "prod", timing=FAST)) as seen,
    ):
        assert cluster.fake
        seen.until_synced(PODS)
        seen.until(lambda: KindUnavailable(DOMAINS) in seen.changes)
        seen.until(lambda: cluster.fake is not None and seen.status(DOMAINS).absent)
        state = cluster.fake.state
        domains = state.register(
            Resource("kuscia.secretflow", "v1alpha1", "domains", "Domain", namespaced=False, custom=True)
        )
        state.create(domains, "", {"metadata": {"name": "alice"}, "spec": {"cert": "never read"}})
        seen.until_synced(DOMAINS)
        state.create(domains, "", {"metadata": {"name": "bob"}, "status": {"nodeStatuses": [{"status": "Ready"}]}})
        seen.until(lambda: seen.names(DOMAINS) == {"alice", "bob"})

        assert seen.count("KindUnavailable Domain") == 1
        assert "never read" not in repr(seen.changes)
