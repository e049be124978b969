"""TRL's configuration, with one completion per prompt allowed, and checks of the trainer's own options."""

from collections.abc import Sequence
from dataclasses import dataclass

from trl import GRPOConfig

from kaestat import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards


@dataclass
class BaselineGRPOConfig(GRPOConfig):
    """A ``GRPOConfig`` that accepts ``num_generations=1``.

    TRL's own config refuses it, since a group of one has no advantage in GRPO. `BaselineGRPOTrainer` takes the baseline
    from the prompt's past.

    Raises
    ------
    ValueError
        As TRL's; and with one completion per prompt, if a generation has an odd number of completions. TRL's other
        checks then run as for groups of two.
    """

    def __post_init__(self) -> None:
        single: bool = self.num_generations == 1
        if single:
            self.num_generations: int = 2  # its own checks then run as for groups of two
        try:
            super().__post_init__()
        except ValueError as error:
            if single and "divisible by" in str(error):
                raise ValueError(
                    "num_generations=1 needs an even number of completions in a generation batch, and in an evaluation "
                    "batch: change per_device_train_batch_size, gradient_accumulation_steps, generation_batch_size or "
                    f"per_device_eval_batch_size. TRL says: {error}"
                ) from None
            raise
        if single:
            self.num_generations = 1


def check_several(estimator: SeveralRewards, functions: Sequence[str], weights: Sequence[float] | None) -> None:
    """Raise a ValueError unless there is one estimator for each reward function, and one set of weights."""
    if len(estimator.estimators) != len(functions):
        raise ValueError(
            f"advantage_estimator is for the rewards {', '.join(estimator.estimators)}, and the trainer has "
            f"{', '.join(functions)}; give one estimator for each reward function, in their order."
        )
    if weights is not None and list(weights) != estimator.weights.tolist():
        raise ValueError(
            f"reward_weights={list(weights)}, but SeveralRewards has {estimator.weights.tolist()}; give them to "
            "SeveralRewards, and leave reward_weights out."
        )


def check_config(args: GRPOConfig, estimator: AdvantageEstimator | SeveralRewards) -> None:
    """Raise a ValueError if TRL's options request advantages other than the estimator's."""
    if isinstance(estimator, SeveralRewards):
        return
    if args.multi_objective_aggregation != "sum_then_normalize":
        raise ValueError(
            f"multi_objective_aggregation={args.multi_objective_aggregation!r} is a normalisation of several rewards; "
            "the estimator needs one per completion. Leave it at 'sum_then_normalize', or give the trainer "
            "kaestat.SeveralRewards, such as kaestat.gdpo(names)."
        )
    if args.scale_rewards == "batch" and not estimator.scale.startswith("trl_batch"):
        raise ValueError(
            f"scale_rewards='batch' has no effect here, and this estimator's scale is {estimator.scale!r}; pass "
            "scale='trl_batch' to AdvantageEstimator, which is TRL's formula, or leave scale_rewards out."
        )
