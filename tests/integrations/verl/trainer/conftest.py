"""Tests of the verl adapter are collected where verl is installed, as in the environment of ``make test-verl``."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("verl") else ["*.py"]


@pytest.fixture(scope="session")
def queue():
    """verl's transfer queue, as its trainers start it: a controller and a storage unit, each a process of Ray's."""
    import ray
    import transfer_queue

    from tests.helpers.tiny_verl import compose_config

    # It waits for ever where Ray thinks there are too few CPUs.
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False)
    transfer_queue.init(compose_config("transfer_queue.backend.SimpleStorage.num_data_storage_units=1").transfer_queue)
    yield transfer_queue
    transfer_queue.close()
    ray.shutdown()
