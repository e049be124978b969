"""The optimal token baseline under our V1 trainers (importing this module registers it).

verl's own (``optimal_token_baseline``) takes what only its deprecated trainer asks of the actor: under the V1 trainers
of verl 0.9.1 it stops for want of ``sum_pi_squared``. ``algorithm.adv_estimator=kaestat_otb`` (or ``otb``) with one of
ours has its numbers. Each output of a session counts as a completion, as under verl.

With ``+algorithm.kaestat.params.bandwidth=STEPS`` earlier completions of a prompt count too
(`kaestat.credit.token_history`), and the completion itself is left out, so that single completions have a baseline.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from kaestat.credit.token_baseline import optimal_token_baseline
from kaestat.credit.token_history import TokenHistory
from kaestat.integrations.shared.prompt_ids import IdentityCheck
from kaestat.integrations.verl.options import Options
from kaestat.integrations.verl.rows import BatchRows, check_rows

NAMES = ("kaestat_otb", "otb")


class TrackedTokens:
    """A history of tokens that is kept by watched ids.

    Parameters
    ----------
    bandwidth : float
        In training steps.
    """

    def __init__(self, bandwidth: float):
        self._history, self._watch = TokenHistory(bandwidth), IdentityCheck()

    def __len__(self) -> int:
        """Prompts that have a past."""
        return len(self._history)

    @classmethod
    def read(cls, options: Options) -> TrackedTokens | None:
        """What the options ask for; None if they name no bandwidth, for groups alone.

        Raises
        ------
        ValueError
            If an option is given that has no place here.
        """
        given = (options.scale, options.objective, options.weights, options.prior, options.prompt_sampler)
        if options.turns or given != (None, "mean", "none", None, None) or set(options.params) - {"bandwidth"}:
            raise ValueError(
                f"algorithm.kaestat: adv_estimator={options.method} takes params.bandwidth, prompt_id and start_anew; "
                "leave the others out."
            )
        return cls(options.params["bandwidth"]) if options.params else None

    def baselines(self, arrays: tuple[np.ndarray, np.ndarray, np.ndarray], rows: BatchRows, step: int) -> np.ndarray:
        """Baselines of one step's completions, their own left out; records them.

        Parameters
        ----------
        arrays : tuple of ndarray, shape (N, T)
            Returns, norms and mask, as `optimal_token_baseline` takes them.
        rows : BatchRows
        step : int
            0-based.

        Returns
        -------
        ndarray of float64, shape (N, T)
            Padding has its returns: advantage 0.
        """
        kept = np.flatnonzero(~rows.padding)
        prompts = [prompt for row in kept if (prompt := rows.prompts[row]) is not None]
        ids = [prompt.id for prompt in prompts]
        self._watch.check(ids, [prompt.hash for prompt in prompts], step)
        returns, norms, mask = (array[kept] for array in arrays)
        past = self._history.past(ids, step=step, length=mask.shape[1])
        found = arrays[0].copy()
        groups = [rows.uids[row] for row in kept]
        found[kept] = optimal_token_baseline(returns, norms, mask, groups, without_own=True, past=past)
        self._history.record(ids, returns, norms, mask, step=step)
        return found

    def save(self, path: str) -> None:
        """Write the history to a file."""
        self._history.save(path)

    def load(self, path: str) -> None:
        """Go on from a file of `save`; errors as `TokenHistory.load`."""
        self._history.load(path)
        self._watch = IdentityCheck()


@dataclass(frozen=True, eq=False)
class TokenStep:
    """What our trainers know of a step, and verl does not pass on.

    Attributes
    ----------
    norms : Tensor, shape (N, response length)
        Of the tokens.
    past : TrackedTokens or None
    rows : BatchRows or None
        With a past.
    step : int
    """

    norms: torch.Tensor
    past: TrackedTokens | None = None
    rows: BatchRows | None = None
    step: int = 0


# Set by our trainers while verl computes the advantages of a step.
SERVED: ContextVar[TokenStep | None] = ContextVar("SERVED", default=None)


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
        If the trainer is none of ours, verl passed no group names, or other rows than those of the batch.
    """
    served = SERVED.get()
    if served is None:
        raise ValueError(
            "algorithm.adv_estimator=otb needs the actor's probabilities, which verl does not pass to it. Set "
            "trainer.v1.trainer_mode=kaestat_sync (or kaestat_colocate_async, kaestat_separate_async) and "
            "trainer.use_v1=True; under the deprecated trainer take verl's own, optimal_token_baseline."
        )
    if index is None:
        raise ValueError("index: adv_estimator=otb compares within groups, and verl passed no uid of the rows.")
    with torch.no_grad():
        returns = (token_level_rewards * response_mask).flip(-1).cumsum(-1).flip(-1)
        arrays = _array(returns), _array(served.norms), _array(response_mask)
        if served.past is None or served.rows is None:
            baselines = optimal_token_baseline(*arrays, list(index))
        else:
            check_rows(served.rows, index)
            baselines = served.past.baselines(arrays, served.rows, served.step)
        advantages = (returns - torch.as_tensor(baselines).to(returns)) * response_mask
    return advantages, returns


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().cpu().numpy()


for _name in NAMES:
    if ADV_ESTIMATOR_REGISTRY.get(_name, compute_otb_advantage) is compute_otb_advantage:
        register_adv_est(_name)(compute_otb_advantage)
