"""Policy-gradient updates on a fixed minibatch, to get the checkpoints that the diagnostics look at.

As in the paper's section 5.1: the minibatch stays, and each step samples fresh completions of all its prompts. One
on-policy AdamW update per step on ``-(1/B) sum A log pi``, without KL penalty or entropy bonus. Full training with
evaluation is another command's work; this loop makes checkpoints, to the bit the same for the same seed and machine.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import torch

import kaestat
from kaestat.baselines.registry import parse_method
from llm_experiments.diagnose.config import CheckpointUpdatesConfig
from llm_experiments.policies.base import Completion
from llm_experiments.policies.token_scores import completion_log_probs
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Task


def checkpoint(folder: Path, step: int) -> Path:
    """Model folder of the policy before update ``step``."""
    return folder / f"checkpoint-{step:06d}"


def make_checkpoints(
    policy: TransformersPolicy,
    task: Task,
    config: CheckpointUpdatesConfig,
    folder: Path,
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
    if all(checkpoint(folder, step).exists() for step in steps):
        return
    name, params = parse_method(config.method)
    estimator = kaestat.AdvantageEstimator(name, **params)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.learning_rate, weight_decay=0.0)
    prompts = [problem.prompt for problem in task.problems]
    ids = np.repeat([problem.id for problem in task.problems], config.group_size)
    for step in range(last + 1):
        if step in steps and not checkpoint(folder, step).exists():
            policy.save(checkpoint(folder, step))
        if step < last:
            groups = policy.sample_groups(prompts, config.group_size, seed=seed_of(seed, "update", step))
            rewards = [
                task.rewards(problem, [completion.text for completion in group])
                for problem, group in zip(task.problems, groups, strict=True)
            ]
            advantages = estimator.step(ids.tolist(), np.concatenate(rewards), step)
            _gradient_step(policy, prompts, groups, advantages, optimizer)
        done()


def _gradient_step(
    policy: TransformersPolicy,
    prompts: Sequence[str],
    groups: Sequence[Sequence[Completion]],
    advantages: np.ndarray,
    optimizer: torch.optim.Optimizer,
) -> None:
    """One AdamW step on ``-(1/B) sum_b A_b log pi(y_b)``; none where every advantage is zero."""
    optimizer.zero_grad(set_to_none=True)
    by_prompt = np.reshape(advantages, (len(groups), -1))
    for prompt, group, advantage in zip(prompts, groups, by_prompt, strict=True):
        if np.any(advantage):
            temperature = policy.sampling.temperature
            log_probs, _ = completion_log_probs(policy.model, policy.encode(prompt), group, temperature=temperature)
            weight = torch.as_tensor(advantage, dtype=log_probs.dtype, device=log_probs.device)
            (-(weight[:, None] * log_probs).sum() / by_prompt.size).backward()
    if np.any(advantages):
        optimizer.step()
