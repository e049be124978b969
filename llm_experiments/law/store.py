"""Scores of prompts and Adam's mean squares on disk: whole or absent, and refused where they are of other weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import nn

from kaestat.core.storage import save_state, write_atomically
from llm_experiments.gradient.store import ScoreFiles

from .prompt_scores import METRICS, MetricScores, PromptScores


class LawStore(ScoreFiles):
    """The scores of a cell."""

    kind = ("kaestat-law", 1)

    def write(self, step: int, row: int, checkpoint: str, scores: PromptScores, logits: np.ndarray) -> None:
        """Store one prompt's scores, with the squared norms on the logits, shape (N,)."""
        content: dict[str, Any] = {"checkpoint": checkpoint, "log_probs": scores.log_probs, "logits": logits}
        for name, each in scores.metrics.items():
            content[name] = {"norms": each.norms, "products": each.products, "mean": each.mean}
        save_state(self.path(step, row), content)

    def read(self, step: int, row: int, checkpoint: str) -> tuple[PromptScores, np.ndarray]:
        """What `write` stored; errors as in `content`."""
        content = self.content(step, row, checkpoint)
        metrics = {name: MetricScores(**content[name]) for name in METRICS}
        return PromptScores(metrics, content["log_probs"]), content["logits"]

    def write_squares(self, step: int, checkpoint: str, model: nn.Module, squares: Mapping[nn.Parameter, Any]) -> None:
        """Store mean squares by the names of the model's parameters."""
        named = {name: squares[each].cpu() for name, each in model.named_parameters() if each in squares}
        write_atomically(self._squares(step), save(named, {"checkpoint": checkpoint}))

    def read_squares(self, step: int, checkpoint: str, model: nn.Module) -> dict[nn.Parameter, torch.Tensor] | None:
        """What `write_squares` stored, on the parameters' devices; None if nothing is there.

        Raises ValueError if they are of other weights.
        """
        path = self._squares(step)
        if not path.exists():
            return None
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        if header["__metadata__"]["checkpoint"] != checkpoint:
            raise ValueError(f"{path}: mean squares of other weights; remove the file to compute it again.")
        named = dict(model.named_parameters())
        return {named[name]: each.to(named[name].device) for name, each in load(content).items()}

    def _squares(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}" / "squares.safetensors"
