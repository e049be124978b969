"""Whether it pays to know the squared score norms of a prompt's completions when prompts are drawn."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.sampling import PromptSampler, allocate, expected_noise
from simulations.bandits.sampled_training import Adam, completions
from simulations.bandits.softmax import rule_bandit
from simulations.harness import Cell, Estimate, Samples, Streams, Study, ratio_of_means
from simulations.harness.study import grid
from simulations.studies.sampling import EXCEPTIONS, SPREAD, completion_noise, formula

PROBLEM = {"n_prompts": 256, "n_actions": 8, "n_features": 32}
STEPS, FIRST, EVERY, MOST, FLOOR = 90, 30, 10, 4, 0.1
METHODS = ("kae_eb", "kae")
SETTINGS = {"few": (64, 0.8), "many": (256, 0.8), "slow": (256, 0.2)}  # completions of a step, learning rate
ALLOCATIONS = ("uniform", "plain", "weighted", "exact")


def simulate(cell: Cell, streams: Streams) -> Samples:
    rngs = [streams.generators(name) for name in ("problem", "training", "seed")]
    rows = [_run(cell, *each) for each in zip(*rngs, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in ALLOCATIONS}


def _run(
    cell: Cell, problem: np.random.Generator, run: np.random.Generator, seed: np.random.Generator
) -> dict[str, float]:
    """Gradient variances of the allocations along one run with score norms as weights, drawn by the weighted one."""
    budget, rate = SETTINGS[cell["setting"]]
    bandit = rule_bandit(**PROBLEM, exceptions=EXCEPTIONS, spread=SPREAD, rng=problem)
    everybody = np.arange(PROBLEM["n_prompts"])
    estimator = AdvantageEstimator(cell["method"], bandwidth=20)
    sampler = PromptSampler(
        everybody.tolist(), budget, predictor=estimator, floor=FLOOR, most=MOST, seed=int(seed.integers(2**31))
    )
    theta, optimizer = np.zeros(PROBLEM["n_features"]), Adam(rate)
    sums = dict.fromkeys(ALLOCATIONS, 0.0)
    for step in range(STEPS):
        draw = sampler.draw(step)
        if step >= FIRST and step % EVERY == 0 and draw.plan is not None:
            reward, score = completions(bandit, theta, everybody, run)
            asked = copy.deepcopy(estimator)
            asked.step(everybody.tolist(), reward, step, weights=(score**2).sum(axis=-1))
            noise = completion_noise(bandit, theta, np.asarray(asked.values))
            gradient2 = (bandit.prompt_gradients(theta) ** 2).sum(axis=-1)
            known = draw.plan.prediction
            predicted = {
                "uniform": np.ones(len(everybody)),
                "plain": expected_noise(replace(known, weighted=None)),
                "weighted": expected_noise(known),
                "exact": noise,
            }
            for name, each in predicted.items():
                expected = allocate(np.sqrt(each), budget, floor=FLOOR, most=MOST)
                sums[name] += float(formula(expected, noise=noise, gradient2=gradient2))
        prompts = np.asarray(draw.rows())
        reward, score = completions(bandit, theta, prompts, run)
        advantage = estimator.step(prompts, reward, step, weights=(score**2).sum(axis=-1))
        sampler.observe(prompts, reward, step)
        theta = theta + optimizer.move((advantage * draw.correction_of(prompts.tolist())) @ score / len(reward))
    return sums


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Worth of each allocation, in uniformly drawn completions, and of the weighted one in those without weights."""
    name = cell["method"]
    worth = [ratio_of_means(f"{name}|worth_{way}", samples["uniform"], samples[way]) for way in ALLOCATIONS[1:]]
    return [*worth, ratio_of_means(f"{name}|weighted_to_plain", samples["plain"], samples["weighted"])]


STUDY = Study(
    name="sampling_weights",
    aims="Neyman's allocation of completions with their squared score norms in the history: what is it worth beside "
    "the one that takes all for alike?",
    mechanisms=f"As in study `sampling`, {PROBLEM['n_prompts']} prompts; the squared score norms are the weights, "
    "and wrong answers' are many times as large where right ones are likely.",
    estimands="The exact variance of the corrected gradient, about the baseline that is served.",
    methods=ALLOCATIONS,
    measures=("worth_plain", "worth_weighted", "worth_exact", "weighted_to_plain"),
    cells=grid(method=METHODS, setting=tuple(SETTINGS)),
    replicates=8,
    shard=4,
    simulate=simulate,
    summarise=summarise,
    common=("method", "setting"),
)
