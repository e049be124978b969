"""The history at the start of a run: empty, or with the visits of a prior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.arrays import Groups, Visits
from kaestat.estimator.state import EstimatorState
from kaestat.history.fields import OF_REWARDS, about
from kaestat.history.history import RewardHistory
from kaestat.history.prior import PLAIN_SUMS, Prior


def with_history(state: EstimatorState, baseline: Baseline, history: RewardHistory, given: str) -> EstimatorState:
    """The state with a new history that begins with the visits of its priors; the given state is unchanged.

    ``given`` names the inputs of the completions (`Samples.given`). Raises a ValueError if these include weights and a
    prior has none.
    """
    carry, baseline, center = state.carry, baseline.less(history.center), history.center
    for prior in sorted(state.priors, key=lambda prior: prior.step):
        prior = replace(prior, sums=about(prior.sums, center))
        sums, numbers = prior_sums(prior, given), None
        if streams_through(baseline):
            visits = history.visits_of(history.rows(prior.prompt_ids), prior.step)
            served = baseline.serve(_completions(prior, baseline), visits, step=prior.step, carry=carry)
            carry, numbers = served.carry, served.state
        if "divergence" in history.fields:
            sums = sums | {"divergence": np.zeros(len(prior))}
        history.append(prior.prompt_ids, prior.step, sums, numbers)
    return replace(state, history=history, carry=carry, priors=(), given=given)


def with_prior(state: EstimatorState, prior: Prior) -> EstimatorState:
    """The state with one more prior; a ValueError if the run has begun, or a prompt has one of that date already."""
    if state.history is not None:
        raise ValueError("prior: it must come before the first step; record these completions with observe.")
    for other in state.priors:
        again = set(prior.prompt_ids) & set(other.prompt_ids) if other.step == prior.step else set()
        if again:
            key = next(key for key in prior.prompt_ids if key in again)
            raise ValueError(f"prior: prompt {key!r} has one of step {prior.step} already; it would count twice.")
    return replace(state, priors=(*state.priors, prior))


def check_prior(baseline: Baseline, method: str, prior: Prior) -> None:
    """Raise a ValueError unless a baseline can use the visits of a prior."""
    if baseline.horizon == 0:
        raise ValueError(
            f"prior: method {method!r} keeps no history, so it cannot use one; choose one that does, such as 'kae_eb'."
        )
    if baseline.refuses_prior is not None:
        raise ValueError(f"prior: method {method!r} takes none: {baseline.refuses_prior}.")
    if streams_through(baseline):
        _completions(prior, baseline)
    if isinstance(baseline, RangedBaseline) and len(prior):
        nobody = np.zeros((len(prior), 1))
        groups = Groups(nobody + baseline.low, mask=nobody > 0)
        visits = Visits(lag=nobody + 1, **{name: column[:, None] for name, column in prior.plain_sums.items()})
        try:
            baseline.values(groups, visits, step=0)
        except ValueError as error:
            raise ValueError(f"prior: its {error}") from error


def prior_sums(prior: Prior, given: str) -> dict[str, np.ndarray]:
    """The sums of a prior, for a history of completions with these inputs.

    Its completions have the importance ratio 1, since they come from the policy of their date. A ValueError if the
    history has other weights and the prior has none.
    """
    plain = prior.plain_sums
    if "weights" in given:
        if not prior.weighted:
            raise ValueError(
                "weights: the prior's completions have none, and mean rewards give none; make the prior with "
                "Prior.of_samples(prompt_ids, rewards, weights=...), or leave weights or prior out."
            )
        return prior.sums
    if "importance" in given:
        return plain | {name: plain[PLAIN_SUMS[k]] for names in OF_REWARDS[1:] for k, name in enumerate(names)}
    return plain


def streams_through(baseline: Baseline) -> bool:
    """Whether a baseline keeps more of a visit than its sums, and so needs the completions."""
    return baseline.in_order_only and baseline.initial_carry() is not None


def _completions(prior: Prior, baseline: Baseline) -> Groups:
    """Completions of a prior, for a baseline that needs completions."""
    low, high = (baseline.low, baseline.high) if isinstance(baseline, RangedBaseline) else (0.0, 1.0)
    return prior.completions(low, high, counted=baseline.counts_suffice)
