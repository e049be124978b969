"""Every method of kaestat as an advantage estimator of verl (importing this module registers them).

Each is registered as ``kaestat_NAME``, and also as plain ``NAME`` where verl has no estimator of that name. Every
response token has its completion's advantage.

Methods that look back, ``pooled``, and weights by norms need what verl does not pass to an estimator: they work with
the trainers of `kaestat.integrations.verl.trainer` and raise elsewhere. docs/frameworks/verl.md compares methods that
both sides know.
"""

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est

from kaestat import AdvantageEstimator, methods
from kaestat.baselines import Pooled
from kaestat.baselines.registry import METHODS
from kaestat.integrations.verl.options import OF_PARAMETERS, Options, keeps_history

PREFIX = "kaestat_"

# Set by our trainers while verl computes the advantages of a step: gives each token's advantage, or (N, 1) where a row
# has but one, from verl's group names (None where verl passed none), and from rewards and response mask, both of shape
# (N, response length), the mask less what verl rejected.
Serve = Callable[[Sequence[Hashable] | None, torch.Tensor, torch.Tensor], torch.Tensor]
SERVING: ContextVar[Serve | None] = ContextVar("SERVING", default=None)

REGISTERED: dict[str, str] = {}  # name in verl -> method


def needs_our_trainer(method: str) -> bool:
    """Whether a method needs more input than verl passes to an advantage estimator."""
    return keeps_history(method) or METHODS[method].baseline is Pooled


@cache
def advantage_function(method: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The function that verl calls for a method, with tensors of shape (N, response length) and the N group names."""

    def compute(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: Sequence[Hashable] | None = None,
        config: Any = None,
        **ignored: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            serving = SERVING.get()
            if serving is not None:
                advantages = serving(index, token_level_rewards, response_mask)
            else:
                rewards, lengths = token_level_rewards.sum(dim=-1), response_mask.sum(dim=-1)
                options = Options.read(method, config)
                advantages = _of_this_step_alone(method, index, rewards, lengths, options).unsqueeze(-1)
            advantages = advantages * response_mask
        return advantages, advantages

    compute.__name__ = compute.__qualname__ = f"compute_{PREFIX}{method}_advantage"
    return compute


def estimator_without_history(method: str, options: Options) -> AdvantageEstimator:
    """A new estimator for one of verl's own trainers; a ValueError for what needs one of ours."""
    options.refuse_sampler("a trainer of verl's own")
    estimator = options.estimator()
    for needed, who, what in (
        (needs_our_trainer(method), f"adv_estimator={method}", "the prompts' ids and the step"),
        (options.weights == "score_norm", "kaestat.weights=score_norm", "the actor's probabilities"),
        (options.weights in OF_PARAMETERS, f"kaestat.weights={options.weights}", "norms from the actor"),
    ):
        if needed:
            raise ValueError(
                f"algorithm.{who} needs {what}, which verl does not pass to an advantage estimator. Set "
                "trainer.v1.trainer_mode=kaestat_sync (or kaestat_colocate_async, kaestat_separate_async) and "
                "trainer.use_v1=True."
            )
    return estimator


def _of_this_step_alone(
    method: str, index: Sequence[Hashable] | None, rewards: torch.Tensor, lengths: torch.Tensor, options: Options
) -> torch.Tensor:
    estimator = estimator_without_history(method, options)
    if index is None:
        raise ValueError(f"index: adv_estimator={method} compares within groups, and verl passed no uid of the rows.")
    padding = is_padding(index) & (lengths.cpu().numpy() == 0)
    weights = lengths.to(rewards.dtype) if options.weights == "length" else None
    graded = ~rewards.isnan().cpu().numpy()
    return estimator.step(list(index), rewards, step=0, mask=graded & ~padding, weights=weights)


def is_padding(index: Sequence[Hashable]) -> np.ndarray:
    """Which group names are verl's names for padding rows (a uuid has no letter p)."""
    return np.fromiter((str(uid).startswith("pad") for uid in index), dtype=bool, count=len(index))


def _register() -> None:
    for method in methods():
        for name in (PREFIX + method, method):
            if name not in ADV_ESTIMATOR_REGISTRY or ADV_ESTIMATOR_REGISTRY[name] is advantage_function(method):
                register_adv_est(name)(advantage_function(method))
                REGISTERED[name] = method


_register()
