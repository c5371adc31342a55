"""Workers, nodes and the driver are killed in the middle of work, and every byte is as it should be."""

import pytest

pytest.importorskip("ray")


def test_kills_of_workers_nodes_and_the_driver_lose_and_double_nothing(ray_paths):
    from chaos.cluster import chaos

    done, failures = chaos(3, kinds=("worker", "node", "driver"), num_shards=20)
    assert not failures
    assert done["worker"] == done["node"] == done["driver"] == 1
