"""Policy-gradient updates on a fixed minibatch, to get the checkpoints that the diagnostics look at.

As in the paper's section 5.1: the minibatch stays, and each step samples fresh completions of all its prompts. One
on-policy AdamW update per step on ``-(1/B) sum A log pi``, without KL penalty or entropy bonus. Full training with
evaluation is another command's work; this loop makes checkpoints, to the bit the same for the same seed and machine.
"""

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import kaestat
from kaestat.baselines.registry import parse_method
from kaestat.core.storage import write_atomically
from llm_experiments.diagnose.config import CheckpointUpdatesConfig
from llm_experiments.policies.base import Completion
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Task


@dataclass(frozen=True)
class UpdateFolders:
    """Where the updates leave their files."""

    root: Path

    def checkpoint(self, step: int) -> Path:
        """Model folder of the policy before update ``step``."""
        return self.root / f"checkpoint-{step:06d}"

    def record(self, step: int) -> Path:
        """Rewards of update ``step``."""
        return self.root / "records" / f"{step:06d}.json"


def make_checkpoints(
    policy: TransformersPolicy,
    task: Task,
    config: CheckpointUpdatesConfig,
    folders: UpdateFolders,
    steps: Collection[int],
    *,
    seed: int,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Update the policy step by step and save it at the steps asked for; an interrupted call begins again.

    policy: At its initial weights; changed in place.
    steps: Checkpoint i is the policy before update i.
    seed: Of the run.
    done: Called after each step.
    """
    last = max(steps)
    if all(folders.checkpoint(step).exists() for step in steps):
        return
    name, params = parse_method(config.method)
    estimator = kaestat.AdvantageEstimator(name, **params)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.learning_rate, weight_decay=0.0)
    for step in range(last + 1):
        if step in steps and not folders.checkpoint(step).exists():
            policy.save(folders.checkpoint(step))
        if step < last:
            _update(policy, task, config, estimator, optimizer, folders, step, seed)
        done()


def training_curve(folders: UpdateFolders) -> pd.DataFrame:
    """Mean reward of each update, with its standard error over prompts: ``step, mean_reward, se, mean_length``."""
    rows = []
    for path in sorted(folders.record(0).parent.glob("*.json")):
        record = json.loads(path.read_text())
        means = np.mean(record["rewards"], axis=1)
        se = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
        rows.append((record["step"], means.mean(), se, np.mean(record["lengths"])))
    return pd.DataFrame(rows, columns=["step", "mean_reward", "se", "mean_length"])


def _update(
    policy: TransformersPolicy,
    task: Task,
    config: CheckpointUpdatesConfig,
    estimator: kaestat.AdvantageEstimator,
    optimizer: torch.optim.Optimizer,
    folders: UpdateFolders,
    step: int,
    seed: int,
) -> None:
    begin = time.perf_counter()
    problems = task.problems
    groups = policy.sample_groups(
        [problem.prompt for problem in problems], config.group_size, seed=seed_of(seed, "update", step)
    )
    rewards = [
        task.rewards(problem, [completion.text for completion in group])
        for problem, group in zip(problems, groups, strict=True)
    ]
    ids = [problem.id for problem, group in zip(problems, groups, strict=True) for _ in group]
    advantages = estimator.step(ids, np.concatenate(rewards), step)
    norm = _gradient_step(policy, [problem.prompt for problem in problems], groups, advantages, optimizer)
    record = {
        "step": step,
        "rewards": rewards,
        "lengths": [[len(completion) for completion in group] for group in groups],
        "gradient_norm": norm,
        "seconds": round(time.perf_counter() - begin, 3),
    }
    write_atomically(folders.record(step), json.dumps(record))


def _gradient_step(
    policy: TransformersPolicy,
    prompts: Sequence[str],
    groups: Sequence[Sequence[Completion]],
    advantages: np.ndarray,
    optimizer: torch.optim.Optimizer,
) -> float:
    """One AdamW step on ``-(1/B) sum_b A_b log pi(y_b)``; returns the gradient's norm."""
    optimizer.zero_grad(set_to_none=True)
    by_prompt = np.reshape(advantages, (len(groups), -1))
    total = by_prompt.size
    for prompt, group, advantage in zip(prompts, groups, by_prompt, strict=True):
        if not np.any(advantage):
            continue
        log_probs, _ = policy.completion_log_probs(policy.encode(prompt), group)
        weight = torch.as_tensor(advantage, dtype=log_probs.dtype, device=log_probs.device)
        (-(weight[:, None] * log_probs).sum() / total).backward()
    parameters = [parameter for parameter in policy.model.parameters() if parameter.grad is not None]
    if not parameters:  # every advantage is zero: nothing to learn from
        return 0.0
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in parameters]))
    optimizer.step()
    return float(norm)
