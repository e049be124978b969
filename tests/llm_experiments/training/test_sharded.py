"""A run whose weights are spread over two processes: each holds its half, and the first alone reads the model."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from safetensors.numpy import load_file

from llm_experiments.paper.plan import FSDP
from tests.helpers.processes import TWO, run_module
from tests.llm_experiments.training.test_run import SMALL

pytestmark = pytest.mark.slow
RUN = {key: value for key, value in SMALL.items() if key != "test"}
RUN = RUN | {
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 150, "batch_size": 32}},
    "updates": RUN["updates"] | {"steps": 2, "micro_batch": 4},
}


def sharding() -> dict[str, str]:
    """What ``accelerate launch`` puts into the environment for the shipped configuration."""
    options = load_config_from_file(str(FSDP)).fsdp_config
    named = {key.upper(): str(value) for key, value in options.items() if key.startswith("fsdp_")}
    truths = {"True": "true", "False": "false"}
    return {"ACCELERATE_USE_FSDP": "true", "ACCELERATE_USE_CPU": "true"} | {
        key: truths.get(value, value) for key, value in named.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    (folder / "run.yaml").write_text(yaml.safe_dump(RUN))
    run_module(*TWO, "tests.helpers.sharded_rank", folder / "run.yaml", folder, environment=sharding())
    return folder


def test_each_process_trains_its_half_and_the_first_alone_reads_the_model(folder):
    first, second = (json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert (first[0]["read"], second[0]["read"]) == (1, 0)
    for moment in (*first[1:], *second[1:]):
        assert moment["numbers"] == moment["of"] / 2 and moment["sharded"] == 1.0
        assert moment["devices"] == ["cpu"]


def test_every_shard_began_with_the_weights_that_the_first_process_read(folder):
    runs = folder / "runs"
    (begin,), (end,) = runs.glob("models/*/*.safetensors"), runs.glob("training/small/*/model/*.safetensors")
    begin, end = load_file(begin), load_file(end)
    most = 4 * 1.2 * RUN["updates"]["learning_rate"]  # Adam's four updates of a number
    moved = {name: np.abs(end[name] - weight).max() for name, weight in begin.items()}
    assert 0 < min(moved.values()) and max(moved.values()) < most < np.std(begin["model.embed_tokens.weight"])
