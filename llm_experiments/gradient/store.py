"""Scores on disk: what is known of the score functions of pools, computed once and analysed many times."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kaestat.core.storage import load_state, save_state


class ScoreStore:
    """A folder of scores: one checksummed file for each prompt and step.

    identity: What scores depend on beyond the weights. Each identity has a folder of its own.
    """

    def __init__(self, folder: str | Path, identity: Mapping[str, Any]):
        text = json.dumps(identity, sort_keys=True)
        self.folder = Path(folder) / hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, step: int, row: int) -> Path:
        """Where the scores of the prompt in this row lie."""
        return self.folder / f"step-{step:06d}" / f"{row:05d}.scores"

    def has(self, step: int, row: int) -> bool:
        """Whether they were computed."""
        return self.path(step, row).exists()

    def write(self, step: int, row: int, checkpoint: str, scores: Mapping[str, Any]) -> None:
        """Store the scores of one prompt, all or nothing.

        checkpoint: Digest of the weights.
        scores: Arrays by name, also nested.
        """
        save_state(self.path(step, row), {"checkpoint": checkpoint, "scores": dict(scores)})

    def read(self, step: int, row: int, checkpoint: str) -> dict[str, Any]:
        """The scores of one prompt.

        Raises FileNotFoundError if they were not computed yet.
        Raises ValueError if the file is damaged, or the scores are of other weights.
        """
        content = load_state(self.path(step, row))
        if content["checkpoint"] != checkpoint:
            raise ValueError(f"{self.path(step, row)}: scores of other weights; remove the file to compute it again.")
        return content["scores"]
