"""Filling a pool: sample every prompt that has none yet at a checkpoint, one part after the other."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from llm_experiments.policies.base import Completion, Policy
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Task


def sample_pool(
    store: PoolStore,
    policy: Policy,
    task: Task,
    *,
    step: int,
    checkpoint: str,
    size: int,
    seed: int,
    at_once: int = 1,
    done: Callable[[], None] = lambda: None,
) -> None:
    """Sample and verify ``size`` completions of every prompt that has no pool at this step.

    Killed at any moment it loses the prompts in hand alone; run again it goes on there. Each part of ``at_once``
    prompts has a seed of its own, and is always cut at the same places, so the result is the same however often that
    happens.

    policy: At the weights of the checkpoint.
    checkpoint: Digest of these weights, see `weights_digest`.
    seed: Of the run.
    at_once: Prompts that are sampled together.
    done: Called after each prompt.
    Raises ValueError if pools of this step were sampled from other weights.
    """
    missing = set(store.missing(step))
    for problem_id in store.problem_ids:
        if problem_id not in missing:
            if store.read(step, problem_id).checkpoint != checkpoint:
                raise ValueError(
                    f"the pool of {problem_id} at step {step} was sampled from other weights than the checkpoint that "
                    "is here now. Remove the folder of the pools, or bring that checkpoint back."
                )
    for start in range(0, len(task.problems), at_once):
        part = task.problems[start : start + at_once]
        if missing & {problem.id for problem in part}:
            groups = policy.sample_groups(
                [problem.prompt for problem in part], size, seed=seed_of(seed, "pool", step, part[0].id)
            )
            rewards = task.grade(
                [problem for problem in part for _ in range(size)],
                [completion.text for group in groups for completion in group],
                patient=True,
            )
            for problem, group, own in zip(part, groups, np.reshape(rewards, (-1, size)), strict=True):
                store.write(PromptPool(step, checkpoint, problem.id, tuple(group), own))
        for _ in part:
            done()


def weights_digest(folder: str | Path) -> str:
    """SHA-256 over the names and contents of a model folder's safetensors files.

    Raises FileNotFoundError if there are none.
    """
    files = sorted(Path(folder).glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder}: holds no safetensors file; name the folder of a saved model.")
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def check_log_probs(
    pool: PromptPool, completions: Sequence[Completion], log_probs: np.ndarray, *, drift: float
) -> None:
    """Refuse scores of other weights, or of another temperature, than those that sampled a pool's completions.

    log_probs: Of ``completions``, some of the pool's, shape (N,).
    drift: Allowed of a log-probability, for each token and one more.
    """
    recorded = np.array([sum(each.log_probs) for each in completions])
    off = np.abs(recorded - log_probs) / (drift * (1 + np.array([len(each) for each in completions])))
    if off.max() > 1:
        worst = int(off.argmax())
        raise ValueError(
            f"step {pool.step}, {pool.problem_id}, completion {worst}: its log-probability was "
            f"{recorded[worst]:.4f} when sampled and is {log_probs[worst]:.4f} now. The pool was sampled from "
            "other weights or settings than these; remove it and sample again."
        )
