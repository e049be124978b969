"""TRL's trainer with our baselines, keeping a record of every step: rewards, lengths, weights, errors, noise."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kaestat.core.storage import write_atomically
from kaestat.integrations.trl import BaselineGRPOTrainer
from kaestat.integrations.trl.completion_weights import loss_mask
from llm_experiments.seeding import seed_of
from llm_experiments.training.config import GradientNoiseConfig
from llm_experiments.training.trl.gradient_noise import GradientNoise, gradient_noise


class RecordingTrainer(BaselineGRPOTrainer):
    """A `BaselineGRPOTrainer` that writes one small file for each training step.

    Parameters
    ----------
    *args, **kwargs
        Those of `BaselineGRPOTrainer`.
    records : Path
        Folder of the files, ``000000.json`` for step 0; a resumed run writes them over, with the same content.
    gradient : GradientNoiseConfig or None
        When the noise of the gradient is measured; see there.
    """

    def __init__(self, *args: Any, records: Path, gradient: GradientNoiseConfig | None = None, **kwargs: Any):
        self._records, self._begin = records, time.perf_counter()
        self._gradient, self._noise = gradient, None
        self._rehearsing = False
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        due = self._gradient is not None and self.model.training and not self._rehearsing
        if due:
            self._noise = self._measured(inputs) if self.generation % self._gradient.every == 0 else None
        return super()._generate_and_score_completions(inputs)

    def _measured(self, inputs: list[dict[str, Any]]) -> GradientNoise:
        """Noise of this step's gradient, from completions drawn besides those that are trained on."""

        def draw(number: int) -> list[torch.Tensor]:
            with self._rehearsal(seed_of(self.args.seed, "gradient", self.generation, number)):
                return self._policy_gradient(self._generate_and_score_completions(inputs))

        return gradient_noise(draw, self._gradient.pairs)

    @contextmanager
    def _rehearsal(self, seed: int) -> Iterator[None]:
        """A step that leaves no trace: history, counters, metrics and random states are put back."""
        names = ("session", "_metrics", "_logs", "generation")
        kept = {name: getattr(self, name) for name in names}
        tokens = self.state.num_input_tokens_seen
        devices = [self.accelerator.device] if self.accelerator.device.type == "cuda" else []
        for name in names:
            setattr(self, name, deepcopy(kept[name]))
        self._rehearsing = True
        try:
            with torch.random.fork_rng(devices):
                torch.manual_seed(seed)
                yield
        finally:
            self._rehearsing = False
            self.state.num_input_tokens_seen = tokens
            for name, value in kept.items():
                setattr(self, name, value)

    def _policy_gradient(self, output: dict[str, Any]) -> list[torch.Tensor]:
        """Gradient of ``-(1/N) sum A log pi`` over a generation batch, a float32 tensor for each trained parameter."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        total = [torch.zeros_like(parameter, dtype=torch.float32) for parameter in parameters]
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        attention = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        mask, width, n = loss_mask(output), output["completion_ids"].size(1), len(ids)
        for start in range(0, n, self.args.per_device_train_batch_size):
            rows = slice(start, start + self.args.per_device_train_batch_size)
            log_probs, _, _ = self._get_per_token_logps_and_entropies(self.model, ids[rows], attention[rows], width)
            loss = -(output["advantages"][rows, None] * log_probs * mask[rows]).sum() / n
            for sum_, part in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                sum_ += part
        return total

    def _advantages(self, scored: Any, weights: torch.Tensor | None) -> torch.Tensor:
        step = self.generation
        advantages = super()._advantages(scored, weights)
        self._scored_last = step, scored, advantages
        if self._norms_to_come is None:
            self._write_last()
        return advantages

    def _record_norms(self, norms: torch.Tensor) -> None:
        super()._record_norms(norms)
        self._write_last()

    def _write_last(self) -> None:
        if self.accelerator.is_main_process and not self._rehearsing:
            self._write(*self._scored_last)

    def _write(self, step: int, scored: Any, advantages: torch.Tensor) -> None:
        graded = ~scored.rewards.isnan().all(dim=1)
        rewards = scored.rewards.nansum(dim=1).cpu().double()
        now = time.perf_counter()
        metrics = {name: values[-1] for name, values in self._metrics["train"].items() if values}
        record = {
            "step": step,
            "ids": [str(key) for key in scored.ids],
            "rewards": [one if known else None for one, known in zip(rewards.tolist(), graded.tolist(), strict=True)],
            **self.measures,
            "advantage_std": float(np.std(advantages.numpy())),
            "metrics": {name: float(value) for name, value in metrics.items() if _is_number(value)},
            "seconds": round(now - self._begin, 3),
            **({} if self._noise is None else {"gradient": asdict(self._noise)}),
        }
        self._begin = now
        write_atomically(self._records / f"{step:06d}.json", json.dumps(record))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1)
