"""A real Ray cluster of two small nodes on this machine, in which things go wrong."""

import os
import sys
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
ray = pytest.importorskip("ray")

from tercet.distributed.settings import ClusterSettings  # noqa: E402

STORE_BYTES = 100_000_000


@pytest.fixture(scope="session")
def ray_paths():
    """Workers find Tercet and the tests where this process does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
        yield


def start_cluster():
    """Return a cluster with a head that does nothing, and two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    cluster.wait_for_nodes()
    return cluster


@pytest.fixture(scope="module")
def nodes(ray_paths):
    """Keep one cluster for the tests of a file that leave its nodes alone."""
    cluster = start_cluster()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def settings(nodes):
    return ClusterSettings(address=nodes.address, workers=2)


@pytest.fixture
def one_worker(settings):
    return settings.model_copy(update={"workers": 1})
