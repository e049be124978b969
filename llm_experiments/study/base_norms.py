"""Do right and wrong answers weigh alike in the base models? In any made world, whatever its answers look like."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from transformers import AutoTokenizer

from llm_experiments.seeding import seed_of
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.model import StackedDecoder

from .config import StudyConfig
from .curves import Tasks
from .noise.score_norms import score_norms

TIMES = 4  # answers to each problem


def base_norms(study: StudyConfig, base: int, folder: Path, device: str = "cpu") -> pd.DataFrame:
    """Squared norms of scores on the pools of the seeds that choose rates, before any training.

    Parameters
    ----------
    study : StudyConfig
        Of a made world.
    base : int
        Seed of the base model.
    folder : Path
        Of the base model.
    device : str

    Returns
    -------
    DataFrame
        Columns ``base, seed`` and `score_norms.NORM_COLUMNS`.
    """
    model, parameters = StackedDecoder.load([folder], device)
    codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
    frames = []
    for seed, pool in zip(study.rate_seeds, Tasks.of(study.world, base, study.rate_seeds).pools, strict=True):
        found = score_norms(
            model,
            parameters,
            pool,
            codec,
            tokens=study.world.max_new_tokens,
            times=TIMES,
            seed=seed_of(seed, "norms", base),
        )
        found.insert(0, "seed", seed)
        found.insert(0, "base", base)
        frames.append(found)
    return pd.concat(frames, ignore_index=True)
