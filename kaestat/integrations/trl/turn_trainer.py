"""`TurnGRPOTrainer`: TRL's GRPO trainer with a value for every turn of a tool loop."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.credit.turns import check_counts, spread_over_tokens, turn_counts
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.trl.trainer import BaselineGRPOTrainer, Scored

_NOT_HERE = ("advantage_estimator", "weights", "prompt_sampler")
_TEXT = ("prompt", "completion", "completion_ids")  # columns that TRL hands to reward functions under other names


class TurnGRPOTrainer(BaselineGRPOTrainer):
    """A ``GRPOTrainer`` with an advantage for every turn of a completion, from a `TurnEstimator`.

    A turn is what the model writes between the answers of tools (TRL's ``tool_mask``, or ``env_mask`` of a
    ``rollout_func``). All tokens of a turn have the turn's advantage, which is the completion's return from that
    turn on, minus the value of reaching it. As always in TRL, the answers of tools are not in the loss. Without
    tools every completion is one turn, and this trainer is `BaselineGRPOTrainer`.

    Parameters
    ----------
    *args, **kwargs
        As for `BaselineGRPOTrainer`: arguments of ``GRPOTrainer``, ``prompt_id``, ``reuse`` and ``prior_columns``.
        ``reward_funcs`` (or the environment's ``get_reward``) give the reward of the outcome, which belongs to the last
        turn. A prior is for whole completions.
    turn_estimator : TurnEstimator
        Its state is saved in every checkpoint and loaded on resume.
    turn_rewards : callable, optional
        Further reward of each turn: a function, called as TRL calls its reward functions (keyword arguments
        ``prompts``, ``completions``, ``completion_ids``, ``environments`` and the data set's columns), that returns a
        list of numbers for each completion, one per turn. A completion in which the model spoke K times (messages of
        the role ``assistant``) has K turns. None for outcomes alone.

    Attributes
    ----------
    turn_advantages : list of ndarray
        Advantages of the last generation's completions of all processes, one entry per turn.

    Raises
    ------
    TypeError, ValueError
        As `BaselineGRPOTrainer`; for weights of completions and drawn prompts, which it does not support; and during
        training, if the number of a completion's ``turn_rewards`` differs from its number of turns.
    """

    def __init__(
        self,
        *args: Any,
        turn_estimator: TurnEstimator,
        turn_rewards: Callable[..., Sequence[Sequence[float]]] | None = None,
        **kwargs: Any,
    ):
        if wrong := [name for name in _NOT_HERE if name in kwargs]:
            raise ValueError(f"{wrong[0]} is not for turns; leave it out, or take BaselineGRPOTrainer.")
        if turn_rewards is not None and (not callable(turn_rewards) or inspect.iscoroutinefunction(turn_rewards)):
            raise TypeError(f"turn_rewards must be a function that returns rewards, got {turn_rewards!r}.")
        if not isinstance(turn_estimator, TurnEstimator):
            raise TypeError(f"turn_estimator must be a TurnEstimator, got {type(turn_estimator).__name__}.")
        session = TrainerSession(turn_estimator)
        self.turn_rewards = turn_rewards
        self.turn_advantages: list[np.ndarray] = []
        self._masks: list[Sequence[int]] = []  # of this process's completions, before TRL masks those cut short
        self._earned: list[list[float]] = []  # by turns of all processes' completions
        super().__init__(*args, advantage_estimator=turn_estimator.estimators[0], **kwargs)
        self.session = session

    @property
    def turn_estimator(self) -> TurnEstimator:
        """The estimator of the trainer."""
        return self.session.estimator

    @property
    def advantage_estimator(self) -> AdvantageEstimator:
        """The estimator of the first turn, for whole completions."""
        return self.turn_estimator.estimators[0]

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        _, completion_ids, tool_mask, *_ = generated
        self._masks = [[1] * len(ids) for ids in completion_ids] if tool_mask is None else tool_mask
        return generated

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.model.training:
            self._earned = gather_object(self._rewards_of_turns(inputs, prompts, completions, completion_ids_list))
        return rewards

    def _rewards_of_turns(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids: list[Any]
    ) -> list[list[float]]:
        counts = turn_counts(self._padded_mask())
        if self.turn_rewards is None:
            return [[0.0] * count for count in counts.tolist()]
        columns = {name: [row[name] for row in inputs] for name in inputs[0] if name not in _TEXT}
        if self.environments is not None:
            columns["environments"] = self.environments
        given = self.turn_rewards(
            prompts=prompts,
            completions=completions,
            completion_ids=completion_ids,
            trainer_state=self.state,
            log_extra=self._log_completion_extra,
            log_metric=self._log_metric,
            **columns,
        )
        earned = [np.asarray(each, dtype=np.float64).tolist() for each in given]
        check_counts("turn_rewards", np.array([len(each) for each in earned]), counts)
        return earned

    def _advantages(self, scored: Scored, weights: torch.Tensor | None) -> torch.Tensor:
        """Advantages of the first turns of all processes' completions, shape (N,), for TRL's table."""
        outcomes, rows = self._rows(scored)
        earned = [np.array(each) for each in self._earned]
        for each, outcome in zip(earned, outcomes, strict=True):
            each[-1:] += outcome
        self.turn_advantages = self.session.advantages(earned, self.generation, **rows)
        counted = {
            "turns/mean": float(np.mean([len(each) for each in earned])),
            "turns/reward": float(np.mean([sum(each) for each in self._earned])),
        }
        self._count_generation(self.session.metrics | counted)
        return torch.tensor([each[0] if len(each) else 0.0 for each in self.turn_advantages], dtype=torch.float32)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            first, mask = self.accelerator.process_index * len(inputs), self._padded_mask()
            tokens = np.zeros(output["completion_ids"].shape)
            tokens[:, : mask.shape[1]] = spread_over_tokens(self.turn_advantages[first : first + len(inputs)], mask)
            output["advantages"] = torch.as_tensor(tokens).to(output["advantages"])
        return output

    def _padded_mask(self) -> np.ndarray:
        """Tokens that the model wrote, shape (n, length of the longest completion)."""
        padded = np.zeros((len(self._masks), max(map(len, self._masks))), dtype=bool)
        for row, own in zip(padded, self._masks, strict=True):
            row[: len(own)] = own
        return padded
