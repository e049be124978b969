"""Scores of prompts on disk: whole or absent, and refused where they are of other weights."""

from typing import Any

import numpy as np

from kaestat.core.storage import save_state
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
