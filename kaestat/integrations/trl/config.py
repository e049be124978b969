"""TRL's configuration, with one completion per prompt allowed."""

from __future__ import annotations

from dataclasses import dataclass

from trl import GRPOConfig


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
