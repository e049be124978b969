"""Do right and wrong answers weigh alike? Squared norms of whole completions' scores, in the parameters.

Where they do not, the value is not the baseline of least noise: that is ``E[W R] / E[W]`` with W the squared norm of a
completion's score (Greensmith et al., 2004), which lies below the value where wrong answers weigh more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from llm_experiments.tasks.base import Task
from llm_experiments.training.stacked.codec import CharacterCodec
from llm_experiments.training.stacked.loop import grade
from llm_experiments.training.stacked.model import Parameters, StackedQwen2
from llm_experiments.training.stacked.sampling import sample, tokens_that_count

AT_ONCE = 64  # completions
NORM_COLUMNS = ["kind", "completions", "value", "right", "wrong", "best_baseline"]


def score_norms(
    model: StackedQwen2,
    parameters: Parameters,
    task: Task,
    codec: CharacterCodec,
    *,
    tokens: int,
    times: int,
    seed: int,
) -> pd.DataFrame:
    """Mean squared norms by kind of problem.

    Parameters
    ----------
    model : StackedQwen2
    parameters : mapping
        A stack of one.
    task : Task
        Each of its problems is answered ``times`` times.
    codec : CharacterCodec
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
    prompts = codec.tokens([problem.prompt for problem in problems])
    uniforms = torch.rand(1, len(problems), tokens, generator=torch.Generator().manual_seed(seed))
    completions = sample(model, parameters, prompts[None], uniforms, end=codec.end, pad=codec.pad)[0]
    texts = codec.texts(completions)
    rewards = np.array([grade(task, problem, text) for problem, text in zip(problems, texts, strict=True)])
    norms = squared_norms(model, parameters, prompts, completions, codec.end).double().numpy()
    kinds = np.array([problem.level for problem in problems])
    return pd.DataFrame([_row(kind, rewards[kinds == kind], norms[kinds == kind]) for kind in dict.fromkeys(kinds)])[
        NORM_COLUMNS
    ]


def squared_norms(
    model: StackedQwen2, parameters: Parameters, prompts: torch.Tensor, completions: torch.Tensor, end: int
) -> torch.Tensor:
    """Squared norm of each completion's gradient of its log-probability, shape (N,).

    Parameters
    ----------
    model : StackedQwen2
    parameters : mapping
        A stack of one.
    prompts, completions : Tensor of int, shapes (N, P) and (N, T)
    end : int
    """
    found = []
    for asked, drawn in zip(prompts.split(AT_ONCE), completions.split(AT_ONCE), strict=True):
        own = {name: each.detach().repeat(len(asked), *[1] * (each.ndim - 1)) for name, each in parameters.items()}
        for each in own.values():
            each.requires_grad_()
        logits = model.logits(own, torch.cat([asked, drawn[:, :-1]], 1)[:, None], skip=asked.shape[1] - 1)[:, 0]
        scores = F.log_softmax(logits, -1).gather(-1, drawn[..., None])[..., 0]
        gradients = torch.autograd.grad((scores * tokens_that_count(drawn, end)).sum(), list(own.values()))
        found.append(torch.stack([each.flatten(1).square().sum(1) for each in gradients]).sum(0))
    return torch.cat(found)


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
