"""Do right and wrong answers weigh alike? Squared norms of whole completions' scores, in the parameters.

Where they do not, the value is not the baseline of least noise: that is ``E[W R] / E[W]`` with W the squared norm of a
completion's score (Greensmith et al., 2004), which lies below the value where wrong answers weigh more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from llm_experiments.tasks.base import Task
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.loop import grade
from llm_experiments.training.stacked.model import Parameters, StackedDecoder
from llm_experiments.training.stacked.sampling import sample
from llm_experiments.training.stacked.score_norms import exact_norms

AT_ONCE = 32  # answers, of which all that the model computes is held together
NORM_COLUMNS = ["kind", "completions", "value", "right", "wrong", "best_baseline"]


def score_norms(
    model: StackedDecoder,
    parameters: Parameters,
    task: Task,
    codec: TokenCodec,
    *,
    tokens: int,
    times: int,
    seed: int,
) -> pd.DataFrame:
    """Mean squared norms by kind of problem.

    Parameters
    ----------
    model : StackedDecoder
    parameters : mapping
        A stack of one.
    task : Task
        Each of its problems is answered ``times`` times.
    codec : TokenCodec
    tokens : int
        Most new tokens.
    times, seed : int

    Returns
    -------
    DataFrame
        Columns `NORM_COLUMNS`: mean reward, mean squared norm of right and of wrong answers, and the baseline of least
        noise that is the same for all problems of a kind.
    """
    problems = [problem for problem in task.problems for _ in range(times)]
    prompts = codec.tokens([problem.prompt for problem in problems]).to(next(iter(parameters.values())).device)
    uniforms = torch.rand(1, len(problems), tokens, generator=torch.Generator().manual_seed(seed))
    texts: list[str] = []
    squares = []
    for rows in torch.arange(len(problems)).split(AT_ONCE):
        asked = prompts[rows][None]
        completions = sample(model, parameters, asked, uniforms[:, rows], end=codec.end, pad=codec.pad)
        texts += codec.texts(completions[0])
        squares.append(exact_norms(model, parameters, asked, completions, end=codec.end)[0].double().cpu())
    rewards = np.array([grade(task, problem, text) for problem, text in zip(problems, texts, strict=True)])
    norms = torch.cat(squares).numpy()
    kinds = np.array([problem.level for problem in problems])
    return pd.DataFrame([_row(kind, rewards[kinds == kind], norms[kinds == kind]) for kind in dict.fromkeys(kinds)])[
        NORM_COLUMNS
    ]


def _row(kind: str, rewards: np.ndarray, norms: np.ndarray) -> dict[str, object]:
    right = rewards == 1

    def mean(values: Sequence[float] | np.ndarray) -> float:
        return float(np.mean(values)) if len(values) else float("nan")

    return {
        "kind": kind,
        "completions": len(norms),
        "value": mean(rewards),
        "right": mean(norms[right]),
        "wrong": mean(norms[~right]),
        "best_baseline": float(norms @ rewards / norms.sum()),
    }
