"""`BaselineGRPOTrainer`: TRL's GRPO trainer with another baseline; all processes have the same state."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset, IterableDataset
from trl import GRPOTrainer

from kaestat import AdvantageEstimator
from kaestat.core.checks import check_whole
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.history.prior import BEFORE_THE_RUN
from kaestat.integrations.gradient_norms import usable_weights
from kaestat.integrations.shared.prior_columns import prior_of_columns
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompts
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.integrations.shared.upstream import misfit
from kaestat.integrations.trl.checkpoints import (
    ResumePoint,
    check_complete,
    load_session,
    save_session,
)
from kaestat.integrations.trl.completion_weights import (
    NORMS,
    OF_PARAMETERS,
    WEIGHTS,
    check_parameter_norms,
    check_units,
    completion_lengths,
    keep_square_sums,
    parameter_norms,
    score_norms,
)
from kaestat.integrations.trl.config import check_config, check_several
from kaestat.integrations.trl.sampler import DrawnPrompts, ReuseSampler
from kaestat.logs.columns import GENERATION
from kaestat.sampling import Policy, PromptSampler

_HOOKS = (
    "_calculate_rewards",
    "_generate",
    "_generate_and_score_completions",
    "_get_per_token_logps_and_entropies",
    "_get_train_sampler",
    "_load_optimizer_and_scheduler",
    "_save_checkpoint",
)
_missing = [hook for hook in _HOOKS if not hasattr(GRPOTrainer, hook)]
if _missing:
    raise ImportError(misfit(f"TRL's GRPOTrainer has no {', '.join(_missing)}", "trl", "TRL 1.15.0 and 1.16.0"))


class Scored(NamedTuple):
    """A generation batch once it has its rewards; rows of all processes, in their order."""

    rewards: torch.Tensor  # (N, reward functions), NaN where a function does not apply
    ids: list[Hashable]
    hashes: list[str]


class BaselineGRPOTrainer(GRPOTrainer):
    """A ``GRPOTrainer`` whose advantages come from an `AdvantageEstimator`.

    Everything else is TRL's. One generation of completions is one training step of the estimator, so bandwidths are in
    generations. TRL's ``scale_rewards`` has no effect on advantages; use the estimator's ``scale``.

    Parameters
    ----------
    *args, **kwargs
        Arguments of ``GRPOTrainer``. For one completion per prompt, which ``GRPOConfig`` refuses, use
        `BaselineGRPOConfig`.
    advantage_estimator : AdvantageEstimator or SeveralRewards
        Its state is saved in every checkpoint (file `STATE_FILE`) and loaded on resume. `SeveralRewards`
        uses each reward function separately, in their order, and its own weights instead of
        ``config.reward_weights``; an `AdvantageEstimator` uses their weighted sum.
    prompt_id : str, optional
        Column of the data set that identifies the prompt, unchanged through the whole run. None uses a hash of the
        prompt that the model sees, including images.
    weights : {"none", "length", "score_norm", "exact", "adam"}
        Weight of each completion in averaging baselines: none; its number of tokens in the loss; the squared norm of
        its score with respect to the logits (one more forward pass per generation, without gradients), in all trained
        parameters (one more forward and backward pass); or the same in Adam's units, divided by its mean.
    reuse : int
        J: number of consecutive generations with the same minibatch of prompts, each with new completions.
    prompt_sampler : str, Policy or PromptSampler, optional
        Draws the prompts of each generation by their predicted values, and corrects the advantages for this: the name
        of a policy such as ``"neyman"`` (`kaestat.sampling.POLICIES`), or a sampler of your own for the data set's
        prompt ids and ``generation_batch_size``. With ``num_generations=1`` any number of completions is possible,
        otherwise prompts get whole groups. Its state is saved in every checkpoint (file `SAMPLER_FILE`).
    prior_columns : pair of str, optional
        Columns with the mean reward, from 0 to 1, and the number of completions of each prompt from before the run,
        such as ``("prior_mean", "prior_count")``: the prior (`AdvantageEstimator.add_prior`) of a new estimator.
    prior_step : int
        Step of the policy that sampled these; the default is for the policy that training starts from.

    Attributes
    ----------
    check_prompts : bool
        Whether a value of the column ``prompt_id`` must always belong to the same prompt. Set it to False in a subclass
        if environments begin each conversation of a row with different words; the data set must then keep ids stable.
    generation : int
        Number of the next generation, 0-based: the estimator's step.
    measures : dict of str to list
        Data of the last generation's completions, of all processes: ``completion_length``, tokens in the loss, and with
        weights by norms ``score_norm``. They are columns of TRL's logged completions (``log_completions``), so that
        `kaestat.read_log` finds them.

    Raises
    ------
    TypeError
        If ``advantage_estimator`` is not an estimator, or a prompt id cannot be stored.
    ValueError
        If an argument is unknown, or contradicts TRL's configuration; in training, if a prompt id does not identify a
        prompt (`UnstablePromptIds`), or a checkpoint has no state for an estimator that needs one.
    """

    check_prompts = True

    def __init__(
        self,
        *args: Any,
        advantage_estimator: AdvantageEstimator | SeveralRewards,
        prompt_id: str | None = None,
        weights: str = "none",
        reuse: int = 1,
        prompt_sampler: str | Policy | PromptSampler | None = None,
        prior_columns: tuple[str, str] | None = None,
        prior_step: int = BEFORE_THE_RUN,
        **kwargs: Any,
    ):
        self.session = TrainerSession(advantage_estimator, weights=weights, choices=WEIGHTS)
        self.prompt_id = prompt_id
        self.weights = weights
        self.reuse = check_whole("reuse", reuse)
        self.generation = advantage_estimator.last_step + 1
        self._scored: Scored | None = None
        self.measures: dict[str, list[Any]] = {}
        if not self.check_prompts and prompt_id is None:
            raise ValueError("check_prompts=False: without prompt_id the prompt itself is the id; name a column.")
        super().__init__(*args, **kwargs)
        check_config(self.args, advantage_estimator)
        self.session.check_group_size("num_generations", self.num_generations)
        if reuse > 1 and isinstance(self.train_dataset, IterableDataset):
            raise ValueError("reuse does not go with a data set that is streamed; leave one of them out.")
        if isinstance(advantage_estimator, SeveralRewards):
            check_several(advantage_estimator, self.reward_func_names, self.args.reward_weights)
        if weights == "score_norm":
            keep_square_sums(self)
        elif weights in OF_PARAMETERS:
            check_parameter_norms(self)
            if weights == "adam":
                check_units(self)
        if prior_columns is not None and advantage_estimator.last_step < 0:
            ids = self._dataset_ids("prior_columns")
            if isinstance(advantage_estimator, SeveralRewards):
                raise ValueError("prior_columns needs a single reward; leave it out, and add priors to the estimators.")
            advantage_estimator.add_prior(prior_of_columns(ids, self.train_dataset, prior_columns, prior_step))
        self._drawn = None if prompt_sampler is None else self._drawn_prompts(prompt_sampler)
        self.add_callback(ResumePoint(self))

    @property
    def advantage_estimator(self) -> AdvantageEstimator | SeveralRewards:
        """The estimator of the trainer."""
        return self.session.estimator

    def _drawn_prompts(self, given: str | Policy | PromptSampler) -> DrawnPrompts:
        for option, wrong in (
            ("reuse", self.reuse > 1),
            ("dataloader_num_workers, which draw many batches ahead", self.args.dataloader_num_workers > 0),
        ):
            if wrong:
                raise ValueError(f"prompt_sampler does not go with {option}; leave one of them out.")
        ids = self._dataset_ids("prompt_sampler")
        sampler = self.session.sampler(
            given, ids, budget=self.args.generation_batch_size, group_size=self.num_generations, seed=self.args.seed
        )
        drawn = self.session.drawn = TrackedSampler(sampler, ids)
        return DrawnPrompts(drawn, repeat_count=self._repeat_count, generation=lambda: self.generation)

    def _dataset_ids(self, option: str) -> list[Any]:
        """The prompt id of each row of the data set."""
        if isinstance(self.train_dataset, IterableDataset):
            raise ValueError(f"{option} does not go with a data set that is streamed; leave one of them out.")
        column = self.prompt_id or "prompt"
        if column not in self.train_dataset.column_names:
            raise ValueError(f"{option}: the data set has no column {column!r}.")
        rows = list(self.train_dataset[column])
        return rows if self.prompt_id else hash_prompts(rows)

    def _get_train_sampler(self, dataset: Dataset | None = None) -> ReuseSampler | DrawnPrompts:
        if self._drawn is not None:
            return self._drawn
        return ReuseSampler(
            self.train_dataset if dataset is None else dataset,
            self.num_generations,
            batch_size=self.args.generation_batch_size // self.num_generations,
            repeat_count=self._repeat_count,
            shuffle=self.shuffle_dataset,
            seed=self.args.seed,
            epoch=lambda: int(self.state.epoch or 0),
        )

    @property
    def _repeat_count(self) -> int:
        return self.reuse * self.num_iterations * self.args.steps_per_generation

    def _calculate_rewards(
        self, inputs: list[dict[str, Any]], prompts: list[Any], completions: list[Any], completion_ids_list: list[Any]
    ) -> torch.Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.model.training:
            hashes = hash_prompts(prompts)  # images and an environment's first words in place
            ids = hashes if self.prompt_id is None else _column_ids(inputs, self.prompt_id)
            self._scored = Scored(rewards, gather_object(ids), gather_object(hashes))
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        weights = self._completion_weights(output)
        if not self.model.training:
            return output
        scored, self._scored = self._scored, None
        if scored is None:
            raise RuntimeError(
                "BaselineGRPOTrainer saw no rewards: a subclass overrides _calculate_rewards without calling super()."
            )
        advantages = self._advantages(scored, weights)
        self._logs["advantages"].extend(advantages.tolist())  # holds one generation: TRL's own drop out
        first = self.accelerator.process_index * len(inputs)
        output["advantages"] = advantages[first : first + len(inputs)].to(output["advantages"])
        return output

    def _completion_weights(self, output: dict[str, Any]) -> torch.Tensor | None:
        """Weight of each completion of all processes, shape (N,); None without weights."""
        training, weights = self.model.training, None
        lengths = self.accelerator.gather(completion_lengths(output))
        if self.session.weighs and training:
            weights = lengths if self.weights == "length" else self.accelerator.gather(self._norms(output))
            weights = usable_weights(weights, over_mean=self.weights == "adam")
        self.measures = {"completion_length": lengths.long().tolist()}
        if self.weights in NORMS:
            self.measures["score_norm"] = [None] * len(lengths) if weights is None else weights.tolist()
        columns = self.measures | {GENERATION: [self.generation if training else None] * len(lengths)}
        for name, values in columns.items():
            self._logs["extra"][name].extend(values)  # holds one generation, as TRL's own columns
        return weights

    def _norms(self, output: dict[str, Any]) -> torch.Tensor:
        """Squared norm of each completion's score, of this process, shape (n,)."""
        if self.weights == "score_norm":
            return score_norms(self, output)
        return parameter_norms(self, output, in_adams_units=self.weights == "adam")

    def _advantages(self, scored: Scored, weights: torch.Tensor | None) -> torch.Tensor:
        """Advantages of all processes' completions, shape (N,); the same in every process, as are its states."""
        rewards = scored.rewards
        if not isinstance(self.advantage_estimator, SeveralRewards):
            rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        advantages = self.session.advantages(
            rewards.cpu().double().numpy(),
            self.generation,
            prompts=scored.hashes if self.check_prompts else [repr(key) for key in scored.ids],
            ids=scored.ids,
            groups=np.arange(len(rewards)) // self.num_generations,  # TRL's groups stand side by side
            mask=~scored.rewards.isnan().all(dim=1).cpu().numpy(),  # the others: advantage 0, not recorded
            weights=None if weights is None else weights.cpu().double().numpy(),
        )
        self.generation += 1
        for name, value in self.session.metrics.items():
            self._metrics["train"][name].append(value)
        return torch.as_tensor(advantages, dtype=torch.float32)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """TRL's; a ValueError for a checkpoint that was not written to its end, which names the latest that was."""
        check_complete(self.args.output_dir, resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:
            save_session(self, self.session, trial)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            load_session(self, self.session, checkpoint)
            self.generation = self.session.estimator.last_step + 1

    def resume_after(self, batches: int) -> None:
        """Continue after so many of an epoch's batches, as counted by transformers, in TRL's rhythm."""
        self._step, self._buffered_inputs = batches, None
        if self._drawn is not None:
            self._drawn.resume_after(batches)


def _column_ids(rows: Sequence[Mapping[str, Any]], column: str) -> list[Hashable]:
    if column not in rows[0]:
        raise UnstablePromptIds(
            f"prompt_id={column!r}: the rows have no such column, only {', '.join(sorted(rows[0]))}. Name one that "
            "identifies the prompt (and keep remove_unused_columns=False), or leave prompt_id out: the history is then "
            "kept by a hash of the prompt."
        )
    return [row[column] for row in rows]
