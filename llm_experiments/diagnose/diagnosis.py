"""The diagnostic of one configuration: checkpoints, pools, value MSE and gradient MSE, each stage resumable."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from llm_experiments.diagnose.assumption6 import score_norm_summary, score_norm_table
from llm_experiments.diagnose.config import Config
from llm_experiments.diagnose.estimators import GRADIENT_REFERENCES
from llm_experiments.diagnose.gradient_mse import prompt_gradient_errors
from llm_experiments.diagnose.results import PROVENANCE, Results, write_results
from llm_experiments.diagnose.scored_pools import ScoredPools
from llm_experiments.diagnose.sensitivity import value_sensitivity
from llm_experiments.diagnose.value_mse import value_errors
from llm_experiments.pools.sampling import sample_pool, weights_digest
from llm_experiments.pools.store import PoolStore
from llm_experiments.provenance import provenance
from llm_experiments.seeding import seed_of
from llm_experiments.starting import ProgressBar, starting_policy
from llm_experiments.tasks import load_task
from llm_experiments.tasks.base import Task
from llm_experiments.tasks.selection import with_ids

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

GRADIENT_MEASURES = {"gradient_mse": False, "gradient_mse_debiased": True}  # whether it is debiased


class Diagnosis:
    """One configuration's run.

    runs: Folder of models, checkpoints, pools and scores: large, and can be made again.
    results: Folder of all results; this run's are in ``results/NAME``.
    """

    def __init__(self, config: Config, *, runs: Path, results: Path, progress: ProgressBar):
        self.config = config
        self.results = Path(results) / config.name
        self._runs, self._folder, self._progress = Path(runs), Path(runs) / config.name, progress
        self._made = self._folder / "training"  # checkpoints

    def pools(self) -> None:
        """Make the checkpoints if they are to be made here, then sample and verify the completions of each."""
        self._make_checkpoints()
        config, store = self.config, self._store
        sizes = config.diagnostic.pool_sizes()
        with self._progress("pools (prompts x checkpoints)", len(sizes) * len(store.problem_ids)) as done:
            for step, size in sizes.items():
                checkpoint = self._checkpoint(step)
                policy = self._sampler(checkpoint) if store.missing(step) else self._policy
                digest = weights_digest(checkpoint)
                sample_pool(
                    store, policy, self._task, step=step, checkpoint=digest, size=size, seed=config.seed, done=done
                )

    def value(self) -> None:
        """Value MSE of every method, its paired differences, and KAE's sensitivity to kernel and bandwidth."""
        sizes, frames = self.config.diagnostic, {"value_mse": [], "value_mse_differences": [], "value_sensitivity": []}
        common = {"n_oracle": sizes.n_oracle, "group_size": sizes.group_size, "repeats": sizes.repeats}
        boot = {"n_boot": sizes.n_boot, "seed": seed_of(self.config.seed, "bootstrap")}
        with self._progress("value MSE (target steps)", len(sizes.steps)) as done:
            for step in sizes.steps:
                pool, seed = self._scored.rewards(step), seed_of(self.config.seed, "value", step)
                found = value_errors(pool, seed=seed, **common)
                frames["value_mse"].append(found.table())
                frames["value_mse_differences"].append(found.differences(**boot))
                frames["value_sensitivity"].append(
                    value_sensitivity(
                        pool,
                        kernels=sizes.kernels,
                        bandwidths=sizes.bandwidths,
                        n_boot=sizes.n_boot,
                        seed=seed,
                        **common,
                    )
                )
                done()
        self._write("value", frames)

    def gradient(self) -> None:
        """Gradient MSE of every method, plain and score-weighted, and what the score norms say of Assumption 6."""
        self._scored.compute()
        settings, sizes = self.config.gradient, self.config.diagnostic
        measures = [f"{name}{table}" for name in GRADIENT_MEASURES for table in ("", "_differences")]
        frames: dict[str, list[pd.DataFrame]] = {name: [] for name in (*measures, "score_norms", "score_norms_summary")}
        boot = {"n_boot": sizes.n_boot, "seed": seed_of(self.config.seed, "bootstrap")}
        with self._progress("gradient MSE (target steps)", len(sizes.steps)) as done:
            for step in sizes.steps:
                pool, gram = self._scored.weighted(step), self._scored.grams(step)
                draws = {
                    "group_size": sizes.group_size,
                    "repeats": settings.repeats,
                    "seed": seed_of(self.config.seed, "gradient", step),
                }
                for name, debiased in GRADIENT_MEASURES.items():
                    errors = prompt_gradient_errors(pool, gram, debiased=debiased, **draws)
                    frames[name].append(errors.table())
                    frames[f"{name}_differences"].append(errors.differences(GRADIENT_REFERENCES, **boot))
                prompts = self._store.problem_ids[: pool.n_prompts]
                norms = score_norm_table(step, pool.target_weight["exact"], pool.target, prompts)
                frames["score_norms"].append(norms)
                frames["score_norms_summary"].append(score_norm_summary(norms))
                done()
        self._write("gradient", frames)

    @cached_property
    def _task(self) -> Task:
        task = load_task(self.config.task, seed=seed_of(self.config.seed, "task"))
        return task if self.config.problem_ids is None else with_ids(task, self.config.problem_ids)

    @cached_property
    def _policy(self) -> TransformersPolicy:
        """The policy on transformers, at any weights; it samples where the engine is transformers, and gives scores."""
        config = self.config
        return starting_policy(
            config.model,
            config.sampling,
            config.task,
            runs=self._runs,
            seed=config.seed,
            exclude=[problem.id for problem in self._task.problems],
            progress=self._progress,
        )

    @cached_property
    def _store(self) -> PoolStore:
        config = self.config
        made_of = {"model", "task", "sampling", "training", "checkpoints", "seed"}
        identity = config.model_dump(mode="json", include=made_of)
        identity["sizes"] = {str(step): size for step, size in config.diagnostic.pool_sizes().items()}
        ids = [problem.id for problem in self._task.problems]
        return PoolStore(self._folder / "pools", identity, ids)

    @cached_property
    def _scored(self) -> ScoredPools:
        return ScoredPools(
            self.config,
            self._store,
            self._folder / "scores",
            policy=lambda: self._policy,
            task=self._task,
            checkpoint=self._checkpoint,
            progress=self._progress,
        )

    def _make_checkpoints(self) -> None:
        if self.config.training is None:
            return
        from llm_experiments.diagnose.updates import make_checkpoints

        steps = self.config.diagnostic.pool_sizes().keys()
        policy = self._policy
        with self._progress("updates (steps)", max(steps) + 1) as done:
            make_checkpoints(
                policy, self._task, self.config.training, self._made, steps, seed=self.config.seed, done=done
            )

    def _checkpoint(self, step: int) -> Path:
        if self.config.training is not None:
            from llm_experiments.diagnose.updates import checkpoint

            return checkpoint(self._made, step)
        return Path(self.config.checkpoints.replace("{step}", str(step)))

    def _sampler(self, checkpoint: Path) -> Any:
        """The policy that samples, at the weights of a checkpoint."""
        self._policy.load_weights(checkpoint)
        if self.config.sampling.engine == "transformers":
            return self._policy
        from llm_experiments.policies.vllm_policy import VllmPolicy

        if not hasattr(self, "_vllm"):
            self._vllm = VllmPolicy(self._policy, checkpoint)
        else:
            self._vllm.load_weights(checkpoint)
        self._vllm.check_agreement(self._policy, [problem.prompt for problem in self._task.problems[:2]])
        return self._vllm

    def _write(self, stage: str, frames: dict[str, list[pd.DataFrame]]) -> None:
        """Write a stage's tables, and its provenance beside that of the others."""
        path = self.results / PROVENANCE
        others = json.loads(path.read_text()) if path.exists() else {}
        origin = {**others, stage: provenance(self.config)}
        whole = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
        write_results(self.results, Results(**whole, provenance=origin))
