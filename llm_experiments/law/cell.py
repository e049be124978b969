"""One policy on one task: completions, Adam's mean squares, norms and tables; every stage is kept and gone on with."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.gradient.store import ScoreStore
from llm_experiments.pools.sampling import check_log_probs, sample_pool, weights_digest
from llm_experiments.pools.store import PoolStore, PromptPool
from llm_experiments.seeding import seed_of
from llm_experiments.starting import ProgressBar, base_model, starting_policy
from llm_experiments.tasks import MADE_WORLDS, load_task
from llm_experiments.tasks.base import Task
from llm_experiments.tasks.local_files import with_local_file

from .config import CellConfig
from .summary import PROMPT_COLUMNS, prompt_table

if TYPE_CHECKING:
    import torch
    from torch import nn

    from llm_experiments.policies.transformers_policy import TransformersPolicy


COMPLETION_COLUMNS = ["cell", "step", "prompt", "completion", "reward", "length", "finished", "plain", "adam", "logits"]
"""The last three are squared norms of the completion's score: in the parameters, there in Adam's units, and on the
logits."""
COMPLETIONS, PROMPTS, PROVENANCE, DIGITS = "completions.csv.gz", "prompts.csv", "provenance.json", 5  # of tables
EXAMPLES = 200_000  # that a synthetic task's base model is made from, as in the studies
MEANS = "means.npz"  # inner products of the prompts' mean gradients
DRIFT = {"float32": 1e-3, "bfloat16": 0.15}  # of a log-probability, for each token and one more; bfloat16 has 3 digits


class Cell:
    """One policy on one task.

    folder: Of this cell's completions, norms and tables.
    data, progress: As of `LawMeasurement`.
    """

    def __init__(
        self, name: str, config: CellConfig, *, runs: Path, folder: Path, data: Path | None, progress: ProgressBar
    ):
        self.name, self.config, self.folder = name, config, folder
        self._runs, self._data, self._progress = runs, data, progress
        self._made = folder / "training"  # checkpoints

    def measure(self) -> None:
        """Sample, take norms, and write the cell's tables; nothing is done again that is there."""
        begin = time.perf_counter()
        completions, prompts, means = [], [], {}
        for step in self.config.steps:
            self._make_checkpoint(step)
            self._sample(step)
            self._take_norms(step)
            rows, own, mean = self._tables(step)
            completions.append(rows)
            prompts.append(own)
            means |= mean
        whole = pd.concat(completions, ignore_index=True)[COMPLETION_COLUMNS]
        write_table(self.folder / COMPLETIONS, whole, DIGITS)
        write_table(self.folder / PROMPTS, pd.concat(prompts, ignore_index=True)[PROMPT_COLUMNS], DIGITS)
        archive = io.BytesIO()
        np.savez(archive, **means)
        write_atomically(self.folder / MEANS, archive.getvalue())
        facts = {"seconds_of_last_call": round(time.perf_counter() - begin, 1)}
        write_atomically(self.folder / PROVENANCE, json.dumps(facts))

    @staticmethod
    def means(folder: Path) -> dict[tuple[int, str], np.ndarray]:
        """Inner products of the prompts' mean gradients by step and metric, each of shape (P, P)."""
        with np.load(folder / MEANS, allow_pickle=False) as kept:
            return {(int(key.split("|")[0]), key.split("|")[1]): kept[key] for key in kept.files}

    def _sample(self, step: int) -> None:
        config, store, digest = self.config, self._pools, self._digest(step)
        if store.missing(step):
            self._load(step)
        with self._progress(f"{self.name}: completions, step {step} (prompts)", len(self._ids)) as done:
            sample_pool(
                store,
                self._policy,
                self._task,
                step=step,
                checkpoint=digest,
                size=config.history + config.completions,
                seed=config.seed,
                done=done,
            )

    def _take_norms(self, step: int) -> None:
        from .prompt_scores import prompt_scores

        config, ids, digest = self.config, self._ids, self._digest(step)
        missing = [row for row in range(len(ids)) if not self._scores.has(step, row)]
        if not missing:
            return
        self._load(step)
        pools = [self._pools.read(step, problem_id) for problem_id in ids]
        prompts = [self._policy.encode(self._prompts[problem_id]) for problem_id in ids]
        squares = self._squares(step, prompts, pools)
        with self._progress(f"{self.name}: norms, step {step} (prompts)", len(missing)) as done:
            for row in missing:
                own = pools[row].completions[config.history :]
                found = prompt_scores(
                    self._policy.model,
                    prompts[row],
                    [each.token_ids for each in own],
                    pools[row].rewards[config.history :],
                    squares,
                    temperature=config.sampling.temperature,
                )
                check_log_probs(pools[row], own, found.log_probs, drift=DRIFT[config.model.dtype])
                logits = self._policy.score(self._prompts[ids[row]], own).logit_norms
                metrics = {name: vars(each) for name, each in found.metrics.items()}
                self._scores.write(step, row, digest, {"metrics": metrics, "logits": logits})
                done()

    def _squares(
        self, step: int, prompts: Sequence[Sequence[int]], pools: Sequence[PromptPool]
    ) -> dict[nn.Parameter, torch.Tensor]:
        from .mean_squares import mean_squares

        config, model = self.config, self._policy.model
        with self._progress(f"{self.name}: mean squares, step {step} (batches)", config.history) as done:
            return mean_squares(
                model,
                prompts,
                [[each.token_ids for each in pool.completions[: config.history]] for pool in pools],
                np.stack([pool.rewards[: config.history] for pool in pools]),
                temperature=config.sampling.temperature,
                done=done,
            )

    def _tables(self, step: int) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, np.ndarray]]:
        """Rows of the completions, rows of the prompts, and products of the prompts' mean gradients."""
        digest, rows, means = self._digest(step), [], {}
        products: dict[str, list[np.ndarray]] = {}
        for row, problem_id in enumerate(self._ids):
            pool = self._pools.read(step, problem_id)
            scores = self._scores.read(step, row, digest)
            own = pool.completions[self.config.history :]
            norms = {name: each["norms"] for name, each in scores["metrics"].items()} | {"logits": scores["logits"]}
            rows.append(
                pd.DataFrame(
                    {
                        "cell": self.name,
                        "step": step,
                        "prompt": problem_id,
                        "completion": np.arange(len(own)),
                        "reward": pool.rewards[self.config.history :],
                        "length": [len(each) for each in own],
                        "finished": [int(each.finished) for each in own],
                    }
                    | norms
                )
            )
            for name, each in scores["metrics"].items():
                products.setdefault(name, []).append(each["products"])
                means.setdefault(name, []).append(each["mean"])
        completions = pd.concat(rows, ignore_index=True)
        stacked = {name: np.stack(each).astype(float) for name, each in means.items()}
        return (
            completions,
            prompt_table(completions, {name: np.stack(each) for name, each in products.items()}),
            {f"{step}|{name}": vectors @ vectors.T for name, vectors in stacked.items()},
        )

    @cached_property
    def _task(self) -> Task:
        return load_task(with_local_file(self.config.task, self._data), seed=seed_of(self.config.seed, "task"))

    @cached_property
    def _prompts(self) -> dict[str, str]:
        return {problem.id: problem.prompt for problem in self._task.problems}

    @cached_property
    def _ids(self) -> list[str]:
        return list(self._prompts)

    @cached_property
    def _policy(self) -> TransformersPolicy:
        return self._load_policy(self.config.model.dtype)

    def _load_policy(self, dtype: str) -> TransformersPolicy:
        config = self.config

        def progress(part: str, total: int) -> AbstractContextManager[Callable[[], None]]:
            return self._progress(f"{self.name}: {part}", total)

        model = config.model
        if config.task.name in MADE_WORLDS and (making := model.pretraining or config.teaching):
            folder = base_model(
                self._runs / "models",
                config.task,
                making,
                n_examples=EXAMPLES,
                start=None if config.teaching is None else model.name,
                device=model.device,
                progress=progress,
            )
            model = model.model_copy(update={"name": str(folder), "pretraining": None})
        return starting_policy(
            model.model_copy(update={"dtype": dtype}),
            config.sampling,
            config.task,
            runs=self._runs,
            seed=config.seed,
            exclude=self._ids,
            progress=progress,
        )

    @cached_property
    def _identity(self) -> dict:
        return self.config.model_dump(mode="json", exclude={"steps"})

    @cached_property
    def _pools(self) -> PoolStore:
        return PoolStore(self.folder / "pools", self._identity, self._ids)

    @cached_property
    def _scores(self) -> ScoreStore:
        from llm_experiments.policies.loading import resolve_device

        # Sketches of two kinds of devices do not meet.
        device = resolve_device(self.config.model.device)
        return ScoreStore(self.folder / "scores", self._identity | {"device": device})

    def _make_checkpoint(self, step: int) -> None:
        """Write the model itself, or the policies that updates make of it, unless they are there.

        Updates are made in float32: bfloat16 rounds .96 of the changes of a step of 2e-5 away in SmolLM2-135M.
        """
        from llm_experiments.diagnose.updates import make_checkpoints

        config = self.config
        if config.checkpoints is not None or self._checkpoint(step).is_dir():
            return
        trained = self._policy if config.model.dtype == "float32" else self._load_policy("float32")
        if not self._checkpoint(0).is_dir():
            trained.save(self._checkpoint(0))
        if config.training is not None and step > 0:
            trained.load_weights(self._checkpoint(0))
            with self._progress(f"{self.name}: updates", max(config.steps) + 1) as done:
                make_checkpoints(
                    trained, self._task, config.training, self._made, config.steps, seed=config.seed, done=done
                )

    def _checkpoint(self, step: int) -> Path:
        if self.config.checkpoints is not None:
            return Path(self.config.checkpoints.replace("{step}", str(step)))
        from llm_experiments.diagnose.updates import checkpoint

        return checkpoint(self._made, step)

    def _digest(self, step: int) -> str:
        return weights_digest(self._checkpoint(step))

    def _load(self, step: int) -> None:
        self._policy.load_weights(self._checkpoint(step))
