"""All that is measured of the designs of a study at the places of one path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from llm_experiments.seeding import seed_of
from llm_experiments.study.config import StudyConfig
from llm_experiments.study.curves import Tasks
from llm_experiments.tasks.cells import KINDS
from llm_experiments.training.stacked.loop import StackedTraining

from .following import follow
from .measures import as_adam, cosine, noise_and_signal
from .redraws import Redraws, redraw
from .score_norms import score_norms
from .steps import effects
from .values import Thoughts, value_error

TRUTH = "oracle_1"  # single completions with the true value, beside the study's designs
SAMPLES = 4  # thoughts of each problem
PAIRS = 8  # of moves whose cost is measured
TIMES = 2  # answers to each problem whose scores' norms are measured
TRUE_DRAWS = 2  # times the draws of a design, for the true gradient
NOISE_COLUMNS = [
    "base",
    "seed",
    "generated",
    "design",
    "rate",
    "spent",
    "clipped",
    "value_error",
    "cosine",
    "noise",
    "signal",
    "adam_noise",
    "adam_signal",
    "answer_noise",
    "answer_signal",
    *(f"push_{kind}" for kind in KINDS),
    *(f"mean_{kind}" for kind in KINDS),
    *(f"cost_{kind}" for kind in KINDS),
]
"""``spent``: completions of an update, over those of a step. Noise and signal: of the gradient, of the gradient in
Adam's units, and of what the latter does to held-out values to first order. ``push``: that change's mean, at the
design's own rate; ``mean`` and ``cost``: see `steps`."""


def measure(
    study: StudyConfig, base: int, folder: Path, rates: Mapping[str, float], done: Callable[[], None] = lambda: None
) -> pd.DataFrame:
    """Value errors, noise and effects of updates, at each place of each seed's path on one base model.

    Parameters
    ----------
    study, base, folder, rates, done
        See `following.follow`.

    Returns
    -------
    DataFrame
        Columns `NOISE_COLUMNS`. ``mean`` and ``cost`` are there for the reference, the rivals and the path.
    """
    assert study.noise is not None
    stepped = {study.reference, *study.rivals, study.noise.path}
    rows: list[dict[str, object]] = []
    for place in follow(study, base, folder, rates, done):
        for run, seed in enumerate(study.noise.seeds):
            here = _Measurer(study, base, place.trainings[study.noise.path], run, seed_of(seed, "noise", base))
            facts = {"base": base, "seed": seed, "generated": place.generated}
            for design, training in place.trainings.items():
                found = here.of(training, rates[design], steps=design in stepped)
                rows.append(facts | {"design": design, "rate": rates[design]} | found)
            path_rate = rates[study.noise.path]
            rows.append(facts | {"design": TRUTH, "rate": path_rate} | here.of_truth(path_rate))
    return pd.DataFrame(rows, columns=NOISE_COLUMNS)


def measure_norms(study: StudyConfig, base: int, folder: Path, rate: float) -> pd.DataFrame:
    """Squared norms of scores at the first place of each seed's path on one base model.

    Parameters
    ----------
    study, base, folder
        See `following.follow`.
    rate : float
        Of the path's design.

    Returns
    -------
    DataFrame
        Columns ``base, seed, generated`` and `score_norms.NORM_COLUMNS`.
    """
    assert study.noise is not None
    place = next(follow(study, base, folder, {study.noise.path: rate}))
    leader = place.trainings[study.noise.path]
    frames = []
    for run, seed in enumerate(study.noise.seeds):
        parameters = {name: each[run : run + 1].detach() for name, each in leader.parameters.items()}
        found = score_norms(
            leader.model,
            parameters,
            leader.runs[run].task,
            leader.codec,
            tokens=study.world.max_new_tokens,
            times=TIMES,
            seed=seed_of(seed, "norms", base),
        )
        found.insert(0, "generated", place.generated)
        found.insert(0, "seed", seed)
        found.insert(0, "base", base)
        frames.append(found)
    return pd.concat(frames, ignore_index=True)


class _Measurer:
    """One policy of one path."""

    def __init__(self, study: StudyConfig, base: int, leader: StackedTraining, run: int, seed: int):
        assert study.noise is not None
        self._leader, self._run, self._seed, self._draws = leader, run, seed, study.noise.draws
        self._completions, self._model = study.completions, leader.model
        self._parameters = {name: each[run : run + 1].detach() for name, each in leader.parameters.items()}
        own, problems = leader.runs[run], Tasks.of(study.world, base, []).test.problems
        with torch.no_grad():
            chances = self._thoughts(own.problems, "pool").chances(self._model, self._parameters)
        self._chances = chances[0].double().numpy()
        self._known = dict(zip(own.ids, self._chances.mean(1).tolist(), strict=True))
        self._kinds = np.array([problem.level for problem in problems])
        self._held_out = self._thoughts(problems, "test")
        self._gradients = self._held_out.gradients(self._model, self._parameters)
        self._true = redraw(leader, run, TRUE_DRAWS * self._draws, seed_of(seed, "truth"), self._known).gradients

    def of(self, training: StackedTraining, rate: float, *, steps: bool) -> dict[str, float]:
        """Of a design."""
        return self._found(redraw(training, self._run, self._draws, self._seed), rate, steps=steps)

    def of_truth(self, rate: float) -> dict[str, float]:
        """Of the path's design, if it knew the values."""
        found = redraw(self._leader, self._run, self._draws, self._seed, self._known)
        return self._found(found, rate, steps=False)

    def _found(self, draws: Redraws, rate: float, *, steps: bool) -> dict[str, float]:
        scaled = as_adam(draws.gradients)
        answers = rate * scaled @ self._gradients.T
        noise, signal = noise_and_signal(draws.gradients)
        adam_noise, adam_signal = noise_and_signal(scaled)
        answer_noise, answer_signal = noise_and_signal(answers)
        facts = {
            "spent": draws.generated / self._completions,
            "clipped": draws.clipped,
            "value_error": value_error(draws.values, self._chances[draws.rows], draws.correction),
            "cosine": cosine(draws.gradients, self._true),
            "noise": noise,
            "signal": signal,
            "adam_noise": adam_noise,
            "adam_signal": adam_signal,
            "answer_noise": answer_noise,
            "answer_signal": answer_signal,
        } | self._by_kind("push", answers.mean(0))
        if steps:
            found = effects(self._model, self._parameters, self._held_out, rate * scaled, PAIRS)
            facts |= self._by_kind("mean", found.mean) | self._by_kind("cost", found.cost)
        return facts

    def _by_kind(self, name: str, changes: torch.Tensor) -> dict[str, float]:
        return {f"{name}_{kind}": float(changes.numpy()[self._kinds == kind].mean()) for kind in KINDS}

    def _thoughts(self, problems, name: str) -> Thoughts:
        return Thoughts.sampled(
            self._model,
            self._parameters,
            problems,
            self._leader.codec,
            samples=SAMPLES,
            seed=seed_of(self._seed, "thoughts", name),
        )
