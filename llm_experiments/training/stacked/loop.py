"""The training loop of a stack: several seeds of one setting, step by step together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from kaestat import AdvantageEstimator
from kaestat.integrations.gradient_norms import usable_weights
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Problem, Task

from .codec import TokenCodec
from .config import StackConfig
from .model import StackedDecoder, Tap
from .optimizer import StackedOptimizer
from .sampling import sample, tokens_that_count
from .score_norms import tapped_norms

EVERY_PROMPT = "all"  # the key of a history that all prompts share
ROUNDS = 10  # of sampling that a step of live groups takes at most, as DAPO's recipes limit it


@dataclass(frozen=True, eq=False)
class Groups:
    """What one run learns from at a step.

    rows (ndarray of int, shape (N,)): Of the run's pool, groups side by side.
    rewards: ndarray, shape (N,).
    completions: Tensor of int, shape (N, T).
    """

    rows: np.ndarray
    rewards: np.ndarray
    completions: torch.Tensor

    def live(self, group_size: int) -> np.ndarray:
        """True for completions of groups that are not all alike."""
        grouped = self.rewards.reshape(-1, group_size)
        return np.repeat(grouped.min(1) < grouped.max(1), group_size)

    def take(self, which: np.ndarray | slice) -> Groups:
        place = torch.from_numpy(which) if isinstance(which, np.ndarray) else which
        return Groups(self.rows[which], self.rewards[which], self.completions[place])

    def join(self, other: Groups) -> Groups:
        return Groups(
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.rewards, other.rewards]),
            torch.cat([self.completions, other.completions]),
        )


class Epochs:
    """Every prompt once in random order, again and again, in a new order each time."""

    def __init__(self, n_prompts: int, group_size: int, seed: int):
        self._size, self._group_size, self._rng = n_prompts, group_size, np.random.default_rng(seed)
        self._left: list[int] = []

    def batch(self, n_groups: int) -> np.ndarray:
        """Rows of the next ``n_groups`` different prompts, groups side by side, shape (N,).

        What is left of an epoch comes last in the next, so that no batch has a prompt twice.
        Raises ValueError if there are not so many prompts.
        """
        if n_groups > self._size:
            raise ValueError(f"completions: a step has {n_groups} groups, but there are {self._size} prompts for them.")
        if len(self._left) < n_groups:
            fresh, left = self._rng.permutation(self._size).tolist(), set(self._left)
            self._left = [*self._left, *sorted(fresh, key=left.__contains__)]
        rows, self._left = self._left[:n_groups], self._left[n_groups:]
        return np.repeat(rows, self._group_size)


class Run:
    """One seed's own: its prompts, its baseline with the history, its random numbers.

    generated: Completions so far, those of dropped groups included.
    """

    def __init__(self, config: StackConfig, task: Task, seed: int):
        design = config.design
        self.task, self.problems = task, task.problems
        self.ids = [problem.id for problem in self.problems]
        self.estimator = AdvantageEstimator(design.method, scale=design.scale)
        self.source = Epochs(len(self.ids), design.group_size, seed_of(seed, "prompts") % 2**32)
        self._random = torch.Generator().manual_seed(seed_of(seed, "tokens") % 2**63)
        self.generated = 0

    def uniforms(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self._random)

    def graded(self, rows: np.ndarray, texts: Sequence[str]) -> np.ndarray:
        return np.array([grade(self.task, self.problems[row], text) for row, text in zip(rows, texts, strict=True)])


def grade(task: Task, problem: Problem, text: str) -> float:
    """Reward of one text."""
    return task.rewards(problem, [text])[0]


class StackedTraining:
    """Several runs of one setting that differ by their seeds, and by the model that they begin with.

    Each run's course is what it would be in a stack of its own, up to rounding: nothing that is random is shared.

    folders: The model folder that each run begins with.
    tasks: The problems of each run's pool; prompts are of one length in tokens.
    seeds: One for each run.
    rates: Learning rate of each run, constant.
    device: Of models and tokens. Random numbers are drawn on the CPU, so that they are the same everywhere.
    parameters: Runs first.
    step: Updates that each run has made, each of a batch of its own.
    Raises ValueError if folders, tasks, seeds and rates are not as many, or prompts are of different lengths.
    """

    def __init__(
        self,
        config: StackConfig,
        folders: Sequence[str | Path],
        tasks: Sequence[Task],
        seeds: Sequence[int],
        codec: TokenCodec,
        rates: Sequence[float],
        device: str | torch.device = "cpu",
    ):
        if not len(folders) == len(tasks) == len(seeds) == len(rates):
            raise ValueError(f"give a folder, a task and a rate for each of the {len(seeds)} seeds.")
        self.config, self.codec, self.rates = config, codec, tuple(rates)
        self.model, weights = StackedDecoder.load(folders, device)
        self.parameters = {name: weight.requires_grad_() for name, weight in weights.items()}
        self.runs = [Run(config, task, seed) for task, seed in zip(tasks, seeds, strict=True)]
        self._prompts = [codec.tokens([each.prompt for each in run.problems]).to(device) for run in self.runs]
        self._optimizer = StackedOptimizer(self.parameters.values(), rates)
        self.step = 0

    @property
    def generated(self) -> np.ndarray:
        """Completions that each run has generated, shape (runs,)."""
        return np.array([run.generated for run in self.runs])

    def advance(self) -> dict[str, np.ndarray]:
        """One batch of every run, and the update that is made of it.

        Returns dict of str to ndarray, shape (runs,): ``reward``, ``live`` (share of completions with an advantage
            other than 0), ``gradient_norm``.
        """
        losses, facts = self._losses()
        norm = self._optimizer.step(losses.sum())
        self.step += 1
        return facts | {"gradient_norm": norm.cpu().numpy()}

    def mean_squares(self) -> dict[str, torch.Tensor] | None:
        """AdamW's mean square of each coordinate by parameter, runs first; None before its first step."""
        squares = self._optimizer.squares()
        return None if squares is None else dict(zip(self.parameters, squares, strict=True))

    def _losses(self) -> tuple[torch.Tensor, dict[str, np.ndarray]]:
        """Each run's loss on completions that it samples and records, shape (runs,); facts about them."""
        groups = self._filled() if self.config.design.filtered else self._sampled(range(len(self.runs)))
        prompts = torch.stack([tokens[each.rows] for tokens, each in zip(self._prompts, groups, strict=True)])
        completions = torch.stack([each.completions for each in groups])
        taps: list[Tap] | None = [] if self.config.design.weights == "adam" else None
        tokens = torch.cat([prompts, completions[:, :, :-1]], 2)
        logits = self.model.logits(self.parameters, tokens, skip=prompts.shape[2] - 1, taps=taps)
        own = F.log_softmax(logits, -1).gather(-1, completions[..., None])[..., 0]
        counted = tokens_that_count(completions, self.codec.end)
        weights: list[np.ndarray | None] = [None] * len(groups)
        if taps is not None:
            norms = tapped_norms((own * counted).sum(2), taps, self.mean_squares())
            weights = [usable_weights(each).cpu().numpy() for each in norms]
        advantages = np.stack(
            [self._advantages(run, each, of_run) for run, each, of_run in zip(self.runs, groups, weights, strict=True)]
        )
        signal = torch.from_numpy(advantages).to(own)[..., None] * own * counted
        facts = {
            "reward": np.array([each.rewards.mean() for each in groups]),
            "live": (np.abs(advantages) > 1e-9).mean(1),
        }
        return -signal.sum((1, 2)) / counted.sum((1, 2)), facts

    def _sampled(self, active: Sequence[int]) -> list[Groups]:
        """A step's completions of some runs, graded."""
        config, runs = self.config, [self.runs[place] for place in active]
        batches = [run.source.batch(config.completions // config.design.group_size) for run in runs]
        tokens = [self._prompts[place][rows] for place, rows in zip(active, batches, strict=True)]
        every = len(active) == len(self.runs)
        completions = sample(
            self.model,
            self.parameters if every else {name: each[list(active)] for name, each in self.parameters.items()},
            torch.stack(tokens),
            torch.stack([run.uniforms(config.completions, config.max_new_tokens) for run in runs]),
            end=self.codec.end,
            pad=self.codec.pad,
        )
        found = []
        for run, rows, own in zip(runs, batches, completions, strict=True):
            run.generated += len(rows)
            found.append(Groups(rows, run.graded(rows, self.codec.texts(own)), own))
        return found

    def _filled(self) -> list[Groups]:
        """Live groups, sampled until each run has a step full of them; the surplus is thrown away.

        A run that finds too few in `ROUNDS` rounds fills its step with dead groups, which teach nothing.
        """
        size, enough = self.config.design.group_size, self.config.completions
        first = self._sampled(range(len(self.runs)))
        kept = [each.take(each.live(size)) for each in first]
        spare = [each.take(~each.live(size)) for each in first]
        for _ in range(ROUNDS - 1):
            short = [place for place, each in enumerate(kept) if len(each.rows) < enough]
            if not short:
                break
            for place, drawn in zip(short, self._sampled(short), strict=True):
                kept[place] = kept[place].join(drawn.take(drawn.live(size)))
                spare[place] = spare[place].join(drawn.take(~drawn.live(size)))
        return [live.join(dead).take(slice(enough)) for live, dead in zip(kept, spare, strict=True)]

    def _advantages(self, run: Run, groups: Groups, norms: np.ndarray | None) -> np.ndarray:
        design, ids = self.config.design, [run.ids[row] for row in groups.rows]
        given = 2 * groups.rewards - 1 if design.coding == "signed" else groups.rewards
        keys = ids if design.keys == "prompt" else [EVERY_PROMPT] * len(ids)
        return run.estimator.step(keys, given, self.step, weights=norms)
