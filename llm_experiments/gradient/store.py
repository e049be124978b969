"""Scores on disk: Gram matrices and score norms of pools, computed once and analysed many times."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.core.storage import load_state, save_state


@dataclass(frozen=True, eq=False)
class PromptScores:
    """What the score functions of one prompt's completions say.

    norm (ndarray, shape (N,)): Squared norm of each completion's score, over the parameters of the run.
    logit_norm (ndarray, shape (N,)): The same at the level of the logits, ``sum_t (1 - 2 pi(y_t) + sum_v pi(v)^2)``.
    length (ndarray, shape (N,)): Tokens.
    gram (ndarray, shape (N, N), or (0, 0)): Inner products of the scores; empty for past steps, of which the norms
        suffice.
    """

    norm: np.ndarray
    logit_norm: np.ndarray
    length: np.ndarray
    gram: np.ndarray


class ScoreFiles:
    """A folder of scores: one checksummed file for each prompt and step.

    identity: What scores depend on beyond the weights. Each identity has a folder of its own.
    """

    kind: tuple[str, int]  # name and version of the files' content

    def __init__(self, folder: str | Path, identity: Mapping[str, Any]):
        text = json.dumps([*self.kind, identity], sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, step: int, row: int) -> Path:
        """Where the scores of the prompt in this row lie."""
        return self.folder / f"step-{step:06d}" / f"{row:05d}.scores"

    def has(self, step: int, row: int) -> bool:
        """Whether they were computed."""
        return self.path(step, row).exists()

    def content(self, step: int, row: int, checkpoint: str) -> dict[str, Any]:
        """What a file holds.

        Raises FileNotFoundError if it was not computed yet.
        Raises ValueError if the file is damaged, or the scores are of other weights.
        """
        content = load_state(self.path(step, row))
        if content["checkpoint"] != checkpoint:
            raise ValueError(f"{self.path(step, row)}: scores of other weights; remove the file to compute it again.")
        return content


class ScoreStore(ScoreFiles):
    """The scores of a diagnostic run."""

    kind = ("kaestat-scores", 2)

    def write(self, step: int, row: int, checkpoint: str, scores: PromptScores) -> None:
        """Store the scores of one prompt, all or nothing.

        checkpoint: Digest of the weights.
        """
        content = {field.name: getattr(scores, field.name) for field in fields(scores)}
        save_state(self.path(step, row), {"checkpoint": checkpoint, "scores": content})

    def read(self, step: int, row: int, checkpoint: str) -> PromptScores:
        """The scores of one prompt; errors as in `content`."""
        return PromptScores(**self.content(step, row, checkpoint)["scores"])
