"""What weights by norms add to a step of TRL: a forward pass over the generation for norms with respect to the logits,
a forward and a backward pass for those in all parameters, plain or in Adam's units.

Timed within the steps of one run of `BaselineGRPOTrainer` with each kind of weights, after two: the pass that makes
the weights; the forward and backward passes of the loss; the whole step, from one generation to the next. A generation
is one micro-batch and one optimizer step. The model is an untrained one on characters, of a million parameters, and
nearly all completions reach the longest length. Processor time, since others used the machine, and one thread. Where
generation takes more of a step, as it mostly does on GPUs, the share of the pass is smaller.
"""

import os
import tempfile
import time
from collections import defaultdict
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, ratio

CODE = ("kaestat/integrations/trl", "kaestat/core/weighted_noise.py")
CLAIM = (
    "Score norms cost less than half of what the loss's forward and backward passes cost in TRL; norms in all "
    "parameters no more than twice as much"
)
SIZES = {"full": ((32, 32, 30), (32, 128, 30)), "tiny": ((4, 4, 3),)}
WARM_UP = 2
PASS, LOSS, STEP = "weights", "forward and backward of the loss", "whole step"
AT_MOST = {"score_norm": 0.5, "exact": 2.0, "adam": 2.0}  # of the loss's forward and backward


def run(size: str = "full") -> list[Row]:
    """Milliseconds of the pass, the loss and the step, and shares of them, by weights and length of the completions."""
    return [row for weights in AT_MOST for shape in SIZES[size] for row in _rows(weights, *shape)]


def _rows(weights: str, completions: int, tokens: int, steps: int) -> list[Row]:
    case = f"{weights}, {completions} completions × {tokens} tokens"
    if not find_spec("trl"):
        note = "Score norms were not measured: TRL is not installed."
        return [Row(case, f"{PASS} / {LOSS}", "ratio", None, at_most=AT_MOST[weights], note=note)]
    spent = _run_of_trl(weights, completions, tokens, steps)
    return [
        *(Row(case, name, "ms", estimate(1e3 * seconds)) for name, seconds in spent.items()),
        Row(case, f"{PASS} / {LOSS}", "ratio", ratio(spent[PASS], spent[LOSS]), at_most=AT_MOST[weights]),
        Row(case, f"{PASS} / {STEP}", "ratio", ratio(spent[PASS], spent[STEP])),
    ]


def _run_of_trl(weights: str, completions: int, tokens: int, steps: int) -> dict[str, np.ndarray]:
    """Processor seconds of each part, one number per step."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from datasets import Dataset
    from trl import GRPOConfig

    from kaestat import AdvantageEstimator
    from kaestat.integrations.trl import BaselineGRPOTrainer
    from llm_experiments.policies.tiny import tiny_model, tiny_tokenizer

    clock, begun = time.process_time, []
    spent: defaultdict[str, list[float]] = defaultdict(list)

    class Timed(BaselineGRPOTrainer):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            begun.append(clock())
            return super()._generate_and_score_completions(inputs)

        def _completion_weights(self, output: dict[str, Any]) -> torch.Tensor | None:
            start = clock()
            weights = super()._completion_weights(output)
            spent[PASS].append(clock() - start)
            return weights

        def _prepare_inputs(self, batch: Any) -> Any:
            inputs = super()._prepare_inputs(batch)
            self._loss_from = clock()
            return inputs

        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss = super().training_step(*args, **kwargs)
            spent[LOSS].append(clock() - self._loss_from)
            return loss

    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left"
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=completions,
            num_generations=4,
            max_completion_length=tokens,
            max_steps=WARM_UP + steps + 1,  # the last step has no end
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            gradient_checkpointing=False,
        )
        Timed(
            model=tiny_model(tokenizer, seed=0),
            reward_funcs=lambda completion_ids, **_: [float(sum(ids) % 2) for ids in completion_ids],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [f"{k}+1=" for k in range(completions)]}),
            processing_class=tokenizer,
            advantage_estimator=AdvantageEstimator("kae"),
            weights=weights,
        ).train()
    kept = slice(WARM_UP, WARM_UP + steps)
    parts = {name: np.array(seconds)[kept] for name, seconds in spent.items()}
    return parts | {STEP: np.diff(begun)[kept]}
