"""The formula of `equal_budget` beside gradients drawn outright, at one target step of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from llm_experiments.diagnose.config import Config
from llm_experiments.diagnose.drawn_gradients import StepDraws, drawn_noise, formula_noise
from llm_experiments.diagnose.equal_budget import DRAWN_COLUMNS, Design, DesignNoise, design_noise
from llm_experiments.diagnose.estimators import make_estimator
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.diagnose.scored_pools import ScoredPools
from llm_experiments.gradient.gram import score_norms
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Task

PARTS = 8  # of the pools


def budget_check(
    config: Config,
    scored: ScoredPools,
    policy: TransformersPolicy,
    task: Task,
    step: int,
    done: Callable[[], None] = lambda: None,
) -> pd.DataFrame:
    """Noise of designs at one target step by the formula, and of gradients drawn outright.

    Parameters
    ----------
    config : Config
    scored : ScoredPools
    policy : TransformersPolicy
        At the weights of the step.
    task : Task
    step : int
    done : callable
        Called after each of the gradients, ``draws`` for each group size.

    Returns
    -------
    DataFrame
        ``step, method, group_size, past, formula, formula_se, drawn, drawn_se, draws``: ``B E ||ghat - g||^2`` for the
        diagnosed prompts alone. The formula's error is that of the pools' completions.

    Raises
    ------
    ValueError
        If the pools are too small for the groups.
    """
    wanted, budget = config.equal_budget, config.equal_budget.budget or scored.n_prompts
    past = max(wanted.past_sizes)
    designs = [
        Design(method, size, past if make_estimator(method).reads_history else 0)
        for method in wanted.drawn_methods
        for size in wanted.drawn_sizes
        if size > 1 or not method.startswith("grpo")
    ]
    seed = seed_of(config.seed, "check", step)
    common = {"budget": budget, "repeats": config.gradient.repeats, "seed": seed}
    formula = formula_noise(_parts(scored, step, designs, common), budget=budget)
    steps = StepDraws.of(wanted.drawn_sizes, n_prompts=scored.n_prompts, budget=budget, draws=wanted.draws, seed=seed)
    prompt_ids = [policy.encode(problem.prompt) for problem in scored.problems]
    completions, pool = _fresh(config, scored, policy, task, step, steps.size)
    drawn = drawn_noise(
        policy.model,
        prompt_ids,
        completions,
        pool,
        steps,
        designs,
        temperature=config.sampling.temperature,
        parameters=config.gradient.parameters,
        seed=seed,
        done=done,
    )
    rows = [
        (step, each.method, each.group_size, each.past, *numbers, wanted.draws)
        for each, *numbers in zip(designs, *formula, *drawn, strict=True)
    ]
    return pd.DataFrame(rows, columns=DRAWN_COLUMNS)


def _parts(scored: ScoredPools, step: int, designs: list[Design], common: dict) -> list[DesignNoise]:
    """The designs' noise by disjoint parts of the pools."""
    pool, gram = scored.weighted(step), scored.grams(step)
    size = pool.n_target // PARTS
    found = []
    for first in range(0, PARTS * size, size):
        part = slice(first, first + size)
        weights = {kind: array[:, part] for kind, array in pool.target_weight.items()}
        some = replace(pool, target=pool.target[:, part], target_weight=weights)
        across = scored.products_of(step, part).across
        found.append(design_noise(some, gram[:, part, part], across, designs, **common))
    return found


def _fresh(
    config: Config, scored: ScoredPools, policy: TransformersPolicy, task: Task, step: int, size: int
) -> tuple[list[list[tuple[int, ...]]], PoolRewards]:
    """So many new completions of each prompt: tokens; rewards and exact weights as the target of a pool."""
    tokens, rewards, norms = [], [], []
    for problem in scored.problems:
        sampled = policy.sample(problem.prompt, size, seed=seed_of(config.seed, "check", step, problem.id))
        tokens.append([each.token_ids for each in sampled])
        rewards.append(task.rewards(problem, [each.text for each in sampled]))
        scores = score_norms(
            policy.model,
            policy.encode(problem.prompt),
            tokens[-1],
            temperature=config.sampling.temperature,
            parameters=config.gradient.parameters,
            memory_gib=config.gradient.memory_gib,
        )
        norms.append(scores.squared_norms)
    known = scored.weighted(step)
    past = {kind: array for kind, array in known.history_weight.items() if kind == "exact"}
    return tokens, PoolRewards(step, np.array(rewards), known.history, {"exact": np.stack(norms)}, past)
