"""The pools of a diagnostic run with the scores of their completions: computed once, read by every analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from llm_experiments.diagnose.config import Config
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.gradient.store import ScoreStore
from llm_experiments.pools.sampling import check_log_probs
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.starting import ProgressBar
from llm_experiments.tasks.base import Task

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy


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


class ScoredPools:
    """Rewards and scores of a run's pools.

    folder: Of the scores.
    policy: Gives the policy whose scores are wanted; called only when there are scores to compute.
    checkpoint: Model folder of a step.
    """

    def __init__(
        self,
        config: Config,
        store: PoolStore,
        folder: Path,
        *,
        policy: Callable[[], TransformersPolicy],
        task: Task,
        checkpoint: Callable[[int], Path],
        progress: ProgressBar,
    ):
        self.config, self._store, self._folder = config, store, folder
        self._make_policy, self._task, self._checkpoint, self._progress = policy, task, checkpoint, progress

    @property
    def n_prompts(self) -> int:
        """Prompts whose scores are computed."""
        everyone = len(self._store.problem_ids)
        return min(self.config.gradient.n_prompts or everyone, everyone)

    def compute(self) -> None:
        """Compute the scores that are missing."""
        steps, prompts, store = self.config.diagnostic.pool_sizes(), self.n_prompts, self._scores_on_disk
        with self._progress("scores (prompts x checkpoints)", len(steps) * prompts) as done:
            for step in steps:
                missing = [row for row in range(prompts) if not store.has(step, row)]
                for _ in range(prompts - len(missing)):
                    done()
                if missing:
                    self._policy.load_weights(self._checkpoint(step))
                for row in missing:
                    pool = self._store.read(step, self._store.problem_ids[row])
                    store.write(step, row, pool.checkpoint, vars(self._scores(pool)))
                    done()

    def rewards(self, step: int) -> PoolRewards:
        """Rewards of every prompt at a target step and the steps before it."""
        sizes, store = self.config.diagnostic, self._store
        past = [store.rewards(step - lag, sizes.n_history) for lag in range(sizes.history, 0, -1)]
        return PoolRewards(step, store.rewards(step, sizes.n_target), np.stack(past, axis=1))

    def weighted(self, step: int) -> PoolRewards:
        """Rewards of the prompts that have scores, with all weightings that are known."""
        sizes, scores = self.config.diagnostic, self._read(step)
        pool = self.rewards(step).first(len(scores))
        past = [self._read(step - lag) for lag in range(sizes.history, 0, -1)]
        for kind, name in (("exact", "norm"), ("length", "length"), ("logit_norm", "logit_norm")):
            target = np.stack([getattr(each, name) for each in scores]).astype(float)
            of_steps = [[getattr(each, name)[: sizes.n_history] for each in visit] for visit in past]
            pool = pool.with_weights(kind, target, np.moveaxis(np.array(of_steps, dtype=float), 0, 1))
        return pool

    def grams(self, step: int) -> np.ndarray:
        """Gram matrices of a target step, shape (P, N, N)."""
        return np.stack([each.gram for each in self._read(step)])

    @cached_property
    def _policy(self) -> TransformersPolicy:
        return self._make_policy()

    @cached_property
    def _scores_on_disk(self) -> ScoreStore:
        identity = self.config.model_dump(mode="json", include={"model", "sampling"})
        return ScoreStore(self._folder, identity | {"parameters": self.config.gradient.parameters})

    def _scores(self, pool: PromptPool) -> PromptScores:
        """Scores of a pool at the weights that sampled it: the whole Gram matrix at a target step, else the norms."""
        from llm_experiments.gradient.scores import gram_matrix, score_norms

        settings = self.config.gradient
        prompt = next(problem.prompt for problem in self._task.problems if problem.id == pool.problem_id)
        target = pool.step in self.config.diagnostic.steps
        size = self.config.diagnostic.n_target if target else self.config.diagnostic.n_history
        completions = pool.completions[:size]
        of_pool = self._policy.model, self._policy.encode(prompt), [each.token_ids for each in completions]
        options = {"temperature": self.config.sampling.temperature, "parameters": settings.parameters}
        if target:
            found = gram_matrix(*of_pool, **options, memory_gib=settings.memory_gib)
        else:
            found = score_norms(*of_pool, **options)
        # In bfloat16 the same weights were off by up to .058, those of two or more steps on by up to .36 to .38.
        drift = 1e-3 if self.config.model.dtype == "float32" else 0.1
        check_log_probs(pool, completions, found.log_probs, drift=drift)
        proxies = self._policy.score(prompt, completions)
        return PromptScores(
            norm=np.diagonal(found.products).copy() if target else found.products,
            logit_norm=proxies.logit_norms,
            length=pool.lengths[:size],
            gram=found.products if target else np.empty((0, 0)),
        )

    def _read(self, step: int) -> list[PromptScores]:
        store = self._scores_on_disk
        digests = [self._store.read(step, problem_id).checkpoint for problem_id in self._store.problem_ids]
        return [PromptScores(**store.read(step, row, digests[row])) for row in range(self.n_prompts)]
