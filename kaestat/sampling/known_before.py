"""A sampler's knowledge before its first step: the prior of the estimator that predicts for it."""

from collections.abc import Hashable, Mapping

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.prediction import Population
from kaestat.sampling.policies import Policy
from kaestat.sampling.pool import Pool


def known_before(
    predictor: AdvantageEstimator, policy: Policy, row: Mapping[Hashable, int], *, step: int = 0
) -> tuple[Pool, dict[str, np.ndarray], Population]:
    """Predictions, the policy's own state, and the population before the first step.

    A prior counts as a visit, also for a policy with counts of its own. Prompts of a prior that are not in ``row``, the
    positions of the sampler's prompts, count only for the population.
    """
    pool, state = Pool.unknown(len(row)), policy.initial_state(len(row))
    population = Population.of(predictor.history)
    for prior in sorted(predictor.priors, key=lambda prior: prior.step):
        here = np.array([key in row for key in prior.prompt_ids], dtype=bool)
        keys = [key for key, known in zip(prior.prompt_ids, here.tolist(), strict=True) if known]
        rows = np.array([row[key] for key in keys], dtype=np.intp)
        state = policy.observed(state, rows, *(column[here] for column in prior.plain_sums.values()))
        prediction = predictor.predict(keys, max(step, prior.step + 1))
        pool.put(rows, prediction, prior.step)
        population = prediction.population
    return pool, state, population
