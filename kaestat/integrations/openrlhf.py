"""Baselines inside OpenRLHF: its experience maker with other advantages, and the PPO trainer around it.

Run with OpenRLHF 0.11.2 and its main branch at commit 3c3be62 (CPU): the real ``RemoteExperienceMaker``,
``Experience``, their batching, ``SamplesGenerator`` and the trainer's ``train_step``, checkpoint calls and class, with
flash_attn, deepspeed and vllm replaced by empty modules (they need GPUs to install, and only their import is reached).
Read and not run: generation, the models' forward passes, the policy update, DeepSpeed's checkpoints. Earlier versions
name their arguments otherwise. The asynchronous trainer has `kaestat.integrations.openrlhf_async`.

OpenRLHF computes advantages in one process, the trainer's, for all completions of a step: no ranks to gather from. It
knows prompts only by their text, so the id is a hash of it; ``Experience.index`` is the place in the batch. There are
no padding rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.openrlhf_prompts import DrawnPrompts, drawn_prompts
from kaestat.integrations.openrlhf_samples import prompts_of, take_dropped, versions_of, watch_samples
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.shared.tracked_estimator import TrackedEstimator
from kaestat.integrations.shared.upstream import Upstream
from kaestat.integrations.shared.weights import check_weights
from kaestat.sampling import Policy, PromptSampler

OPENRLHF = Upstream("OpenRLHF", "openrlhf", "OpenRLHF 0.11.2 and its main branch at commit 3c3be62")
STATE_FILE = "kaestat_state"  # in OpenRLHF's _actor/global_stepN folder


_OpenRlhf: Any = object  # what the mixins stand before among the bases


class BaselineExperienceMakerMixin(_OpenRlhf):
    """Before ``RemoteExperienceMaker`` in a class statement; set `watched` and, before each batch, `step`.

    ``--algo.advantage.estimator`` then decides nothing about baselines; keep ``reinforce``. OpenRLHF's whitening of
    advantages over the batch is left out: the estimator's ``scale`` has that part.
    """

    watched: TrackedEstimator
    drawn: DrawnPrompts | None = None
    weights: str = "none"
    step: int | None = None
    version: list[int] | None = None  # by the place in the batch

    def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
        """Advantages and returns of one step's experiences, in place.

        A token's advantage is the completion's, less the KL penalty of the tokens from it on, as in OpenRLHF's own
        REINFORCE estimators with gamma 1.

        Parameters
        ----------
        experiences : list of openrlhf.trainer.ppo_utils.experience.Experience
            Micro-batches of the step, of any sizes and in any order.

        Raises
        ------
        ValueError
            If a method with a history has no step.
        """
        import torch
        from openrlhf.models.utils import compute_reward
        from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

        args = self.strategy.args
        with torch.no_grad():
            for experience in experiences:
                experience.rewards = experience.rewards.to(torch.promote_types(experience.rewards.dtype, torch.float32))
            apply_length_penalties(experiences, args)
            advantages, deviations = baseline_advantages(
                self.watched,
                experiences,
                self.step,
                args.rollout.n_samples_per_prompt,
                drawn=self.drawn,
                weights=self.weights,
                version=self.version,
            )
            self.step = self.version = None
            for experience, advantage, deviation in zip(experiences, advantages, deviations, strict=True):
                if args.rollout.n_samples_per_prompt > 1:
                    experience.info["group_reward_std"] = experience.rewards.new_tensor(deviation)
                reward = compute_reward(
                    experience.rewards.new_tensor(advantage),
                    self.kl_ctl.value,
                    experience.kl,
                    action_mask=experience.action_mask,
                    reward_clip_range=args.reward.clip_range,
                )
                experience.returns = self.get_cumulative_returns(reward, experience.action_mask, 1.0)
                experience.advantages = experience.returns.clone()
                experience.info["return"] = reward.sum(dim=-1)
                experience.kl = None
        return experiences


def baseline_advantages(
    watched: TrackedEstimator,
    experiences: Sequence[Any],
    step: int | None,
    n_samples_per_prompt: int,
    *,
    drawn: DrawnPrompts | None = None,
    weights: str = "none",
    version: Sequence[int] | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Advantages of a step, and the standard deviation (ddof 1) of each completion's group, per experience.

    Parameters
    ----------
    watched : TrackedEstimator
    experiences : sequence of Experience
        Of which `rewards` (B,), `prompts`, `images`, `index` and, for lengths, `action_mask` (B, T) are read.
    step : int or None
        Training step, 0-based.
    n_samples_per_prompt : int
        The ``index`` of a completion divided by it is its group.
    drawn : DrawnPrompts, optional
        Whose last draw the prompts are: advantages are corrected for it, and it is told the rewards.
    weights : {"none", "length"}
        Weight of each completion in averaging baselines: none, or its number of tokens in the loss.
    version : sequence of int, optional
        Step of the policy that sampled each completion, by its ``index``, for an estimator with ``order="any"``.

    Returns
    -------
    advantages, deviations : list of ndarray, shape (B,) each
    """
    rewards = np.concatenate([np.asarray(e.rewards.detach().cpu(), dtype=np.float64) for e in experiences])
    index = np.array(list(chain.from_iterable(e.index for e in experiences)), dtype=np.int64)
    prompts = list(chain.from_iterable(map(prompts_of, experiences)))
    order = np.argsort(index, kind="stable")  # the k-th group of a repeated prompt is the k-th as generated
    groups = index // n_samples_per_prompt
    ids = [] if drawn is None else [hash_prompt(prompt) for prompt in prompts]
    factor = 1.0 if drawn is None else drawn.corrections(ids)
    lengths = None if weights == "none" else np.concatenate([_tokens_in_loss(e) for e in experiences])
    advantages = np.empty(len(rewards))
    advantages[order] = watched.advantages(
        rewards[order],
        step,
        prompts=[prompts[row] for row in order],
        groups=groups[order].tolist(),
        weights=None if lengths is None else lengths[order],
        version=None if version is None else np.asarray(version)[index[order]],
    )
    if drawn is not None and step is not None:
        drawn.observe(ids, rewards, step)
        advantages *= factor
    _, code, size = np.unique(groups, return_inverse=True, return_counts=True)
    mean = np.bincount(code, rewards) / size
    squares = np.bincount(code, (rewards - mean[code]) ** 2)
    deviation = np.sqrt(squares / np.maximum(size - 1, 1))[code]
    ends = np.cumsum([len(e.index) for e in experiences])[:-1]
    return np.split(advantages, ends), np.split(deviation, ends)


class BaselineTrainerMixin(_OpenRlhf):
    """Before a trainer of OpenRLHF's; `estimator`, `prompt_sampler` and `weights` are set on the class.

    The step is OpenRLHF's ``global_step``, which starts at 0 and comes back on resume.
    """

    estimator: AdvantageEstimator
    prompt_sampler: str | Policy | PromptSampler | None = None
    weights: str = "none"
    experience_maker: Any
    prompts_dataloader: Any

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._watched = TrackedEstimator(self.estimator)
        self.experience_maker = with_baseline(self.experience_maker, self._watched, self.weights)
        self._next_step = self._first_step = 0
        if self.prompt_sampler is not None:
            self.prompts_dataloader = drawn_prompts(
                self.prompt_sampler,
                self.prompts_dataloader.dataset,
                self.args,
                self.estimator,
                lambda: self._next_step,
            )
            self.samples_generator.prompts_dataloader = self.experience_maker.drawn = self.prompts_dataloader
        generator = getattr(self, "samples_generator", None)
        if generator is not None:  # the asynchronous trainer has it in another process
            watch_samples(generator)

    def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
        """OpenRLHF's, with the step handed to the experience maker, and the baseline's metrics in the status."""
        self.experience_maker.step = global_step
        if self._watched.any_order:
            self.experience_maker.version = versions_of(rollout_samples, self._first_step)
        dropped = take_dropped(rollout_samples)
        status, next_step = super().train_step(rollout_samples, global_step)
        self._next_step = next_step
        self._observe(dropped, rollout_samples, global_step)
        status.update(self._watched.metrics)
        if self.experience_maker.drawn is not None:
            status.update(self.experience_maker.drawn.metrics)
        return status, next_step

    def _observe(self, dropped: list[Any], trained: list[Any], step: int) -> None:
        """Record the completions that OpenRLHF's filter dropped; in strict order a prompt has one place in a step."""
        if dropped and not self._watched.any_order:
            prompts = {hash_prompt(prompt) for experience in trained for prompt in prompts_of(experience)}
            dropped = [e for e in dropped if hash_prompt(prompts_of(e)[0]) not in prompts]
        if not dropped or not self._watched.stateful:
            return
        from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

        for experience in dropped:
            experience.rewards = experience.rewards.float()
        apply_length_penalties(dropped, self.args)
        lengths = [float(_tokens_in_loss(experience)[0]) for experience in dropped]
        self._watched.observe(
            [float(experience.rewards[0]) for experience in dropped],
            step,
            prompts=[prompts_of(experience)[0] for experience in dropped],
            groups=[row // self.args.rollout.n_samples_per_prompt for row in range(len(dropped))],  # dropped whole
            weights=None if self.weights == "none" else lengths,
            version=versions_of(dropped, self._first_step) if self._watched.any_order else None,
        )

    def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any = None, client_states: Any = None) -> None:
        """OpenRLHF's, with the state in the checkpoint's folder."""
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
        if global_step % self.args.ckpt.save_steps == 0:
            self._watched.save(_state_path(self.args, f"global_step{global_step}"))

    def save_best_checkpoint(self, eval_metrics: Any, global_step: int, client_states: Any = None) -> None:
        """OpenRLHF's, with the state in the checkpoint's folder where one was written."""
        before = self.best_eval_metric_value
        super().save_best_checkpoint(eval_metrics, global_step, client_states)
        if self.best_eval_metric_value > before:
            self._watched.save(_state_path(self.args, f"best_global_step{global_step}"))

    def init_checkpoint_states(self) -> dict[str, Any]:
        """OpenRLHF's, and the state of the checkpoint that it goes on from.

        Raises
        ------
        ValueError
            If a run goes on but its checkpoint has no state for a method with a history.
        """
        states = super().init_checkpoint_states()
        step = self._next_step = self._first_step = states["global_step"]
        if step == 0:
            return states
        paths = [_state_path(self.args, f"{kind}{step}") for kind in ("global_step", "best_global_step")]
        found = [path for path in paths if path.exists()]
        if found:
            self._watched.load(found[0])
        elif self._watched.stateful:
            raise ValueError(
                f"{paths[0]}: the run goes on after step {step}, but its checkpoint has no state of the baseline. Go "
                "back to a checkpoint that has one (every process needs to see the folder), or begin a new run."
            )
        return states


def with_baseline(experience_maker: Any, watched: TrackedEstimator, weights: str = "none") -> Any:
    """The experience maker itself, its class replaced by one with `BaselineExperienceMakerMixin` before it."""
    base = type(experience_maker)
    experience_maker.__class__ = type(f"Baseline{base.__name__}", (BaselineExperienceMakerMixin, base), {})
    experience_maker.watched, experience_maker.weights = watched, weights
    return experience_maker


def baseline_trainer(
    estimator: AdvantageEstimator,
    *,
    prompt_sampler: str | Policy | PromptSampler | None = None,
    weights: str = "none",
) -> Any:
    """OpenRLHF's ``PPOTrainer``, a Ray actor class, with this estimator's advantages.

    Parameters
    ----------
    estimator : AdvantageEstimator
    prompt_sampler : str, Policy or PromptSampler, optional
        Draws the prompts of each step by their predicted values in place of OpenRLHF's data loader, and corrects the
        advantages for it. A sampler of your own is for the hashes of the prompts (`hash_prompt`) and
        ``rollout.batch_size * rollout.n_samples_per_prompt`` completions.
    weights : {"none", "length"}
        Weight of each completion in averaging baselines: none, or its number of tokens in the loss. OpenRLHF hands log
        probabilities on and no logits, so that score norms are out of reach.

    Returns
    -------
    ray.actor.ActorClass
        In the place of ``openrlhf.trainer.ppo_trainer.PPOTrainer``.

    Raises
    ------
    ValueError
        If the estimator cannot use these weights, or does not do without.
    """
    check_weights(estimator, weights)
    with OPENRLHF.imports():
        import ray
        from openrlhf.trainer.ppo_trainer import PPOTrainer

        plain = PPOTrainer.__ray_metadata__.modified_class  # Ray lets nobody inherit from an actor class itself
    own = {"estimator": estimator, "prompt_sampler": prompt_sampler, "weights": weights}
    return ray.remote(type("PPOTrainer", (BaselineTrainerMixin, plain), own))


def install(
    estimator: AdvantageEstimator,
    *,
    prompt_sampler: str | Policy | PromptSampler | None = None,
    weights: str = "none",
) -> None:
    """Let ``openrlhf.cli.train_ppo_ray``, run in this process afterwards, use `baseline_trainer`, with its arguments.

    Its ``train`` takes ``PPOTrainer`` from ``openrlhf.trainer.ppo_trainer`` when it is called. The asynchronous trainer
    (``--train.async_enable``) is another class: `kaestat.integrations.openrlhf_async.install`.
    """
    with OPENRLHF.imports():
        import openrlhf.trainer.ppo_trainer as module

    module.PPOTrainer = baseline_trainer(estimator, prompt_sampler=prompt_sampler, weights=weights)


def _state_path(args: Any, tag: str) -> Path:
    return Path(args.ckpt.path, "_actor", tag, STATE_FILE)


def _tokens_in_loss(experience: Any) -> np.ndarray:
    return experience.action_mask.sum(dim=1).cpu().numpy().astype(np.float64)
