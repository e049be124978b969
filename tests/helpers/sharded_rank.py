"""One process of a sharded training run: what it holds after loading and at the end, written to a folder."""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
from accelerate import DistributedType, PartialState
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.run import TrainingRun


def shard_on_the_cpu() -> None:
    """Have accelerate shard between processes of a CPU; it offers that between GPUs alone."""
    torch.distributed.init_process_group("gloo")
    prepare = PartialState._prepare_backend
    PartialState._prepare_backend = lambda *given: (prepare(*given)[0] or "gloo", DistributedType.MULTI_GPU)
    PartialState.set_device = lambda state: setattr(state, "device", torch.device("cpu"))


def held(model: torch.nn.Module) -> dict[str, object]:
    """How many numbers this process holds, on which devices, and the share of parameters that is spread."""
    parameters = list(model.parameters())
    local = [each.to_local() if isinstance(each, DTensor) else each for each in parameters]
    return {
        "numbers": sum(each.numel() for each in local),
        "of": sum(each.numel() for each in parameters),
        "devices": sorted({str(each.device) for each in local}),
        "sharded": sum(isinstance(each, DTensor) for each in parameters) / len(parameters),
    }


def main(config: str, out: str) -> None:
    """Train, and write what was held."""
    shard_on_the_cpu()
    seen = []
    run = TrainingRun(
        load_experiment(config)[0], runs=Path(out) / "runs", progress=lambda part, total: nullcontext(lambda: None)
    )
    load, read, reads = run._start.policy, PreTrainedModel.from_pretrained, []

    @classmethod
    def counted(cls, *given, **options):
        reads.append(cls.__name__)
        return read.__func__(cls, *given, **options)

    def loaded(*given, **options):
        with patch.object(PreTrainedModel, "from_pretrained", counted):
            policy = load(*given, **options)
        seen.append({"step": "loaded", "read": len(reads), **held(policy.model)})
        return policy

    object.__setattr__(run._start, "policy", loaded)
    run.look = lambda policy, step: seen.append({"step": step, **held(policy.model)})
    run.run()
    (Path(out) / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
