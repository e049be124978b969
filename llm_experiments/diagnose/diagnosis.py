"""The diagnostic of one configuration: checkpoints, pools, value MSE and gradient MSE, each stage resumable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kaestat.storage import write_atomically
from llm_experiments.diagnose.assumption6 import score_norm_summary, score_norm_table
from llm_experiments.diagnose.config import Config
from llm_experiments.diagnose.equal_budget import design_noise, designs_for, reference_design
from llm_experiments.diagnose.gradient_mse import pooled_gradient_errors
from llm_experiments.diagnose.gradient_mse_debiased import debiased_gradient_errors
from llm_experiments.diagnose.gradient_signal import mean_coefficients, signal_table
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.diagnose.results import PROVENANCE, Results, write_results
from llm_experiments.diagnose.sensitivity import value_sensitivity
from llm_experiments.diagnose.value_mse import value_errors
from llm_experiments.gradient.store import MeanProducts, PromptScores, ScoreStore
from llm_experiments.pools.sampling import sample_pool, weights_digest
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.provenance import provenance
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import load_task, pretraining_examples
from llm_experiments.tasks.base import Task

if TYPE_CHECKING:
    from llm_experiments.diagnose.updates import UpdateFolders
    from llm_experiments.policies.transformers_policy import TransformersPolicy

ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
GRADIENT_MEASURES = ("gradient_mse", "gradient_mse_debiased")


class Diagnosis:
    """One configuration's run.

    Parameters
    ----------
    config : Config
    runs : path
        Folder of models, checkpoints, pools and scores: large, and can be made again.
    results : path
        Folder of all results; this run's are in ``results/NAME``.
    progress : callable
        ``progress(part, total)`` is a context whose value is called after each unit of the part.

    Attributes
    ----------
    results : Path
        Folder of the tables.
    """

    def __init__(self, config: Config, *, runs: Path, results: Path, progress: ProgressBar):
        self.config = config
        self.results = Path(results) / config.name
        self._runs, self._folder, self._progress = Path(runs), Path(runs) / config.name, progress

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
                pool, seed = self._rewards(step), seed_of(self.config.seed, "value", step)
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
        self._compute_scores()
        settings, sizes = self.config.gradient, self.config.diagnostic
        measures = [f"{name}{table}" for name in GRADIENT_MEASURES for table in ("", "_differences")]
        frames: dict[str, list[pd.DataFrame]] = {name: [] for name in (*measures, "score_norms", "score_norms_summary")}
        boot = {"n_boot": sizes.n_boot, "seed": seed_of(self.config.seed, "bootstrap")}
        with self._progress("gradient MSE (target steps)", len(sizes.steps)) as done:
            for step in sizes.steps:
                scores = self._scores_of(step)
                pool = self._weighted(step, scores)
                gram = np.stack([each.gram for each in scores])
                draws = {
                    "group_size": sizes.group_size,
                    "repeats": settings.repeats,
                    "seed": seed_of(self.config.seed, "gradient", step),
                }
                pooled = pooled_gradient_errors(pool, gram, **draws)
                debiased = debiased_gradient_errors(pool, gram, **draws)
                for name, errors in zip(GRADIENT_MEASURES, (pooled, debiased), strict=True):
                    frames[name].append(errors.table())
                    frames[f"{name}_differences"].append(errors.differences(("kae", "grpo"), **boot))
                prompts = self._store.problem_ids[: len(scores)]
                norms = score_norm_table(step, pool.target_weight["exact"], pool.target, prompts)
                frames["score_norms"].append(norms)
                frames["score_norms_summary"].append(score_norm_summary(norms))
                done()
        self._write("gradient", frames, self._cost())

    def budget(self) -> None:
        """Noise of the gradient at an equal budget of completions, of baselines and group sizes."""
        self._compute_scores()
        sizes, wanted = self.config.diagnostic, self.config.equal_budget
        frames: dict[str, list[pd.DataFrame]] = {"equal_budget": [], "gradient_signal": []}
        budget = wanted.budget or self._n_scored()
        with self._progress("noise at an equal budget (target steps)", len(sizes.steps)) as done:
            for step in sizes.steps:
                scores = self._scores_of(step)
                pool, gram = self._weighted(step, scores), np.stack([each.gram for each in scores])
                across = self._mean_products(step, pool, gram).across
                designs = designs_for(pool, group_sizes=wanted.group_sizes, past_sizes=wanted.past_sizes, budget=budget)
                found = design_noise(
                    pool,
                    gram,
                    across,
                    designs,
                    budget=budget,
                    repeats=self.config.gradient.repeats,
                    seed=seed_of(self.config.seed, "budget", step),
                )
                frames["equal_budget"].append(found.table(reference_design(designs, sizes.group_size)))
                frames["gradient_signal"].append(signal_table(step, gram, pool.target, across))
                done()
        self._write("budget", frames, {"budget": budget})

    @cached_property
    def _task(self) -> Task:
        return load_task(self.config.task, seed=seed_of(self.config.seed, "task"))

    @cached_property
    def _policy(self) -> TransformersPolicy:
        """The policy on transformers, at any weights; it samples where the engine is transformers, and gives scores."""
        from llm_experiments.policies import load_policy

        config, examples = self.config, None
        steps = config.model.pretraining.steps if config.model.pretraining else 0
        if steps:
            examples = pretraining_examples(
                config.task,
                config.model.pretraining,
                seed=seed_of(config.seed, "examples"),
                exclude=[problem.id for problem in self._task.problems],
            )
        with self._progress("model", steps) as done:
            return load_policy(
                config.model,
                config.sampling,
                cache=self._runs / "models",
                seed=seed_of(config.seed, "model"),
                examples=examples,
                progress=lambda *_: done(),
            )

    @cached_property
    def _store(self) -> PoolStore:
        config = self.config
        made_of = {"model", "task", "sampling", "training", "checkpoints", "seed"}
        identity = config.model_dump(mode="json", include=made_of)
        identity["sizes"] = {str(step): size for step, size in config.diagnostic.pool_sizes().items()}
        ids = [problem.id for problem in self._task.problems]
        return PoolStore(self._folder / "pools", identity, ids, provenance(config))

    @cached_property
    def _score_store(self) -> ScoreStore:
        identity = self.config.model_dump(mode="json", include={"model", "sampling"})
        return ScoreStore(self._folder / "scores", identity | {"parameters": self.config.gradient.parameters})

    @property
    def _updates(self) -> UpdateFolders:
        from llm_experiments.diagnose.updates import UpdateFolders

        return UpdateFolders(self._folder / "training")

    def _make_checkpoints(self) -> None:
        if self.config.training is None:
            return
        from llm_experiments.diagnose.updates import make_checkpoints, training_curve

        steps = self.config.diagnostic.pool_sizes().keys()
        policy = self._policy
        with self._progress("updates (steps)", max(steps) + 1) as done:
            make_checkpoints(
                policy, self._task, self.config.training, self._updates, steps, seed=self.config.seed, done=done
            )
        curve = training_curve(self._updates).to_csv(index=False, float_format="%.6g", lineterminator="\n")
        write_atomically(self.results / "training_curve.csv", curve)

    def _checkpoint(self, step: int) -> Path:
        if self.config.training is not None:
            return self._updates.checkpoint(step)
        return Path(self.config.checkpoints.replace("{step}", str(step)))

    def _sampler(self, checkpoint: Path) -> Any:
        """The policy that samples, at the weights of a checkpoint."""
        self._policy.load_weights(checkpoint)
        if self.config.sampling.engine == "transformers":
            return self._policy
        from llm_experiments.policies.vllm_policy import VllmPolicy

        if not hasattr(self, "_vllm"):
            self._vllm = VllmPolicy.beside(self._policy, checkpoint)
        else:
            self._vllm.load_weights(checkpoint)
        self._vllm.check_agreement(self._policy, [problem.prompt for problem in self._task.problems[:2]])
        return self._vllm

    def _rewards(self, step: int) -> PoolRewards:
        sizes, store = self.config.diagnostic, self._store
        past = [store.rewards(step - lag, sizes.n_history) for lag in range(sizes.history, 0, -1)]
        return PoolRewards(step, store.rewards(step, sizes.n_target), np.stack(past, axis=1))

    def _scored_steps(self) -> list[int]:
        """Checkpoints whose scores are needed."""
        sizes = self.config.diagnostic
        exact = self.config.gradient.exact_history_weights
        return [step for step in sizes.pool_sizes() if exact or step in sizes.steps]

    def _n_scored(self) -> int:
        """Prompts whose scores are computed."""
        everyone = len(self._store.problem_ids)
        return min(self.config.gradient.n_prompts or everyone, everyone)

    def _compute_scores(self) -> None:
        steps, prompts, store = self._scored_steps(), self._n_scored(), self._score_store
        with self._progress("scores (prompts x checkpoints)", len(steps) * prompts) as done:
            for step in steps:
                missing = [row for row in range(prompts) if not store.has(step, row)]
                for _ in range(prompts - len(missing)):
                    done()
                if missing:
                    self._policy.load_weights(self._checkpoint(step))
                for row in missing:
                    pool = self._store.read(step, self._store.problem_ids[row])
                    store.write(step, row, pool.checkpoint, self._scores(pool))
                    done()

    def _scores(self, pool: PromptPool) -> PromptScores:
        """Scores of a pool at the weights that sampled it: the whole Gram matrix at a target step, else the norms."""
        from llm_experiments.gradient.gram import gram_matrix, score_norms

        settings, begin = self.config.gradient, time.perf_counter()
        prompt = next(problem.prompt for problem in self._task.problems if problem.id == pool.problem_id)
        target = pool.step in self.config.diagnostic.steps
        size = self.config.diagnostic.n_target if target else self.config.diagnostic.n_history
        completions = pool.completions[:size]
        found = (gram_matrix if target else score_norms)(
            self._policy.model,
            self._policy.encode(prompt),
            [completion.token_ids for completion in completions],
            temperature=self.config.sampling.temperature,
            parameters=settings.parameters,
            memory_gib=settings.memory_gib,
        )
        self._check_log_probs(pool, found.log_probs)
        proxies = self._policy.score(prompt, completions)
        return PromptScores(
            norm=np.diagonal(found.gram).copy() if target else found.squared_norms,
            logit_norm=proxies.logit_norms,
            length=pool.lengths[:size],
            gram=found.gram if target else np.empty((0, 0)),
            backward_passes=found.backward_passes,
            total_bytes=found.total_bytes,
            seconds=time.perf_counter() - begin,
        )

    def _check_log_probs(self, pool: PromptPool, log_probs: np.ndarray) -> None:
        """Refuse scores of other weights, or of another temperature, than those that sampled the pool."""
        recorded = np.array([sum(completion.log_probs) for completion in pool.completions[: len(log_probs)]])
        tolerance = (1e-3 if self.config.model.dtype == "float32" else 0.05) * (1 + pool.lengths[: len(log_probs)])
        off = np.abs(recorded - log_probs) / tolerance
        if off.max() > 1:
            worst = int(off.argmax())
            raise ValueError(
                f"step {pool.step}, {pool.problem_id}, completion {worst}: its log-probability was "
                f"{recorded[worst]:.4f} when sampled and is {log_probs[worst]:.4f} now. The pool was sampled from "
                "other weights or settings than these; remove it and sample again."
            )

    def _scores_of(self, step: int) -> list[PromptScores]:
        store = self._score_store
        digests = [self._store.read(step, problem_id).checkpoint for problem_id in self._store.problem_ids]
        return [store.read(step, row, digests[row]) for row in range(self._n_scored())]

    def _mean_products(self, step: int, pool: PoolRewards, gram: np.ndarray) -> MeanProducts:
        """How the prompts' gradients lie to each other: two backward passes per prompt, once."""
        from llm_experiments.gradient.mean_gradients import WeightedScores, check_products, mean_products

        prompts, size = pool.target.shape
        ids = self._store.problem_ids[:prompts]
        digest = self._store.read(step, ids[0]).checkpoint
        if (found := self._score_store.read_products(step, digest, prompts, size)) is not None:
            return found
        self._policy.load_weights(self._checkpoint(step))
        texts = {problem.id: problem.prompt for problem in self._task.problems}
        coefficients = mean_coefficients(pool.target)
        pools = [self._store.read(step, problem_id) for problem_id in ids]
        found = mean_products(
            self._policy.model,
            [
                WeightedScores(
                    self._policy.encode(texts[each.problem_id]), [one.token_ids for one in each.completions[:size]], row
                )
                for each, row in zip(pools, coefficients, strict=True)
            ],
            temperature=self.config.sampling.temperature,
            parameters=self.config.gradient.parameters,
        )
        check_products(found, gram, coefficients)
        self._score_store.write_products(step, digest, size, found)
        return found

    def _weighted(self, step: int, scores: list[PromptScores]) -> PoolRewards:
        """Rewards of the prompts that have scores, with all weightings that are known."""
        sizes = self.config.diagnostic
        pool = self._rewards(step).take(np.arange(len(scores)))
        past = None
        if self.config.gradient.exact_history_weights:
            past = [self._scores_of(step - lag) for lag in range(sizes.history, 0, -1)]
        for kind, name in (("exact", "norm"), ("length", "length"), ("logit_norm", "logit_norm")):
            target = np.stack([getattr(each, name) for each in scores]).astype(float)
            history = None
            if past is not None:
                of_steps = [[getattr(each, name)[: sizes.n_history] for each in visit] for visit in past]
                history = np.moveaxis(np.array(of_steps, dtype=float), 0, 1)
            pool = pool.with_weights(kind, target, history)
        return pool

    def _cost(self) -> dict[str, Any]:
        """What the scores of the target steps took."""
        scores = [each for step in self.config.diagnostic.steps for each in self._scores_of(step)]
        return {
            "parameters": self.config.gradient.parameters,
            "prompts": self._n_scored(),
            "completions_per_prompt": self.config.diagnostic.n_target,
            "backward_passes": sum(each.backward_passes for each in scores),
            "peak_gib": round(max(each.total_bytes for each in scores) / 2**30, 3),
            "seconds": round(sum(each.seconds for each in scores), 1),
        }

    def _write(self, stage: str, frames: dict[str, list[pd.DataFrame]], facts: dict[str, Any] | None = None) -> None:
        """Write a stage's tables, and its provenance beside that of the others."""
        path = self.results / PROVENANCE
        others = json.loads(path.read_text()) if path.exists() else {}
        origin = {**others, stage: provenance(self.config) | (facts or {})}
        whole = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
        write_results(self.results, Results(**whole, provenance=origin))
