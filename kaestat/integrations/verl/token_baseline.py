"""The optimal token baseline under our V1 trainers (importing this module registers it).

verl's own (``optimal_token_baseline``) takes what only its deprecated trainer asks of the actor: under the V1 trainers
of verl 0.9.1 it stops for want of ``sum_pi_squared``. ``algorithm.adv_estimator=kaestat_otb`` (or ``otb``) with one of
ours has its numbers. Each output of a session counts as a completion, as under verl. There is no history.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from kaestat.token_baseline import optimal_token_baseline

NAMES = ("kaestat_otb", "otb")

# Set by our trainers while verl computes the advantages of a step: the tokens' norms, shape (N, response length).
NORMS: ContextVar[torch.Tensor | None] = ContextVar("NORMS", default=None)


def compute_otb_advantage(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | None = None,
    **ignored: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, both (N, response length), in verl's signature of an advantage estimator.

    Raises
    ------
    ValueError
        If the trainer is none of ours, or verl passed no group names.
    """
    norms = NORMS.get()
    if norms is None:
        raise ValueError(
            "algorithm.adv_estimator=otb needs the actor's probabilities, which verl does not pass to it. Set "
            "trainer.v1.trainer_mode=kaestat_sync (or kaestat_colocate_async, kaestat_separate_async) and "
            "trainer.use_v1=True; under the deprecated trainer take verl's own, optimal_token_baseline."
        )
    if index is None:
        raise ValueError("index: adv_estimator=otb compares within groups, and verl passed no uid of the rows.")
    with torch.no_grad():
        returns = (token_level_rewards * response_mask).flip(-1).cumsum(-1).flip(-1)
        baselines = optimal_token_baseline(_array(returns), _array(norms), _array(response_mask), list(index))
        advantages = (returns - torch.as_tensor(baselines).to(returns)) * response_mask
    return advantages, returns


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()


for _name in NAMES:
    if ADV_ESTIMATOR_REGISTRY.get(_name, compute_otb_advantage) is compute_otb_advantage:
        register_adv_est(_name)(compute_otb_advantage)
