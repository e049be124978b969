"""Baselines in OpenRLHF: an experience maker with other advantages, and the PPO trainer around it.

OpenRLHF computes advantages in one process, the trainer's, for all completions of a step, so nothing has to be gathered
and there is no padding. `BaselineTrainerMixin` and `BaselineExperienceMakerMixin` pass them to a `TrainerSession`.
These things are particular to OpenRLHF:

=========  =============================================================================================================
ids        hash of the prompt's text and its images' paths: nothing else comes with a completion
step       ``global_step``, which starts at 0 and comes back on resume
versions   none: the synchronous trainer trains on what its own policy sampled
weights    tokens of the action mask; OpenRLHF passes on log probabilities, not logits
filter     the samples generator keeps what ``--algo.dynamic_filtering_enable`` drops
draw       none: OpenRLHF has no place for a sampler of one's own
state      in the folder of DeepSpeed's checkpoint, the best one too
=========  =============================================================================================================

docs/frameworks/openrlhf.md says what was run and what was read, and at which commit.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.upstream import Upstream
from kaestat.integrations.shared.weights import check_weights

OPENRLHF = Upstream("OpenRLHF", "openrlhf", "OpenRLHF 0.11.2 and its main branch at commit 3c3be62")
STATE_FILE = "kaestat_state"  # in OpenRLHF's _actor/global_stepN folder

_OpenRlhf: Any = object  # what the mixins stand before among the bases


class BaselineExperienceMakerMixin(_OpenRlhf):
    """Mixin to put before ``RemoteExperienceMaker``; set `session`, and `step` before each batch.

    ``--algo.advantage.estimator`` then has no effect on baselines; keep ``reinforce``. OpenRLHF's whitening of
    advantages over the batch is off: use the estimator's ``scale``.
    """

    session: TrainerSession
    step: int | None = None

    def compute_advantages_and_returns(self, experiences: list[Any]) -> list[Any]:
        """Advantages and returns of one step's experiences (micro-batches of any sizes, in any order), in place.

        A token's advantage is the completion's, minus the KL penalty of this and all later tokens, as in OpenRLHF's own
        REINFORCE estimators with gamma 1.
        """
        import torch
        from openrlhf.models.utils import compute_reward
        from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

        args, step, self.step = self.strategy.args, self.step, None
        size = args.rollout.n_samples_per_prompt
        with torch.no_grad():
            for experience in experiences:
                experience.rewards = experience.rewards.to(torch.promote_types(experience.rewards.dtype, torch.float32))
            apply_length_penalties(experiences, args)
            advantages, deviations = baseline_advantages(self.session, experiences, step, size)
            for experience, advantage, deviation in zip(experiences, advantages, deviations, strict=True):
                if size > 1:
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
    session: TrainerSession, experiences: Sequence[Any], step: int | None, group_size: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Advantages of a step, and the standard deviation (ddof 1) of each completion's group, (B,) per experience.

    The ``index`` of a completion divided by ``group_size`` is its group.
    """
    rewards = np.concatenate([rewards_of(experience) for experience in experiences])
    index = np.array(list(chain.from_iterable(e.index for e in experiences)), dtype=np.int64)
    prompts = list(chain.from_iterable(map(prompts_of, experiences)))
    order = np.argsort(index, kind="stable")  # the k-th group of a repeated prompt is the k-th as generated
    groups = index // group_size
    advantages = np.empty(len(rewards))
    advantages[order] = session.advantages(
        rewards[order],
        step,
        prompts=[prompts[row] for row in order],
        groups=groups[order].tolist(),
        weights=_lengths(experiences)[order] if session.weighs else None,
    )
    _, code, size = np.unique(groups, return_inverse=True, return_counts=True)
    mean = np.bincount(code, rewards) / size
    squares = np.bincount(code, (rewards - mean[code]) ** 2)
    deviation = np.sqrt(squares / np.maximum(size - 1, 1))[code]
    ends = np.cumsum([len(e.index) for e in experiences])[:-1]
    return np.split(advantages, ends), np.split(deviation, ends)


def _lengths(experiences: Sequence[Any]) -> np.ndarray:
    """Tokens of each completion in the loss, shape (N,)."""
    return np.concatenate([e.action_mask.sum(dim=1).cpu().numpy().astype(np.float64) for e in experiences])


class BaselineTrainerMixin(_OpenRlhf):
    """Mixin to put before an OpenRLHF trainer; set `estimator` and `weights` on the class."""

    estimator: AdvantageEstimator
    weights: str = "none"
    experience_maker: Any

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.session = TrainerSession(self.estimator, weights=self.weights)
        with_mixin(self.experience_maker, BaselineExperienceMakerMixin, session=self.session)
        with_mixin(self.samples_generator, TrackedSamplesMixin, _scored=[], _dropped=[])

    def train_step(self, rollout_samples: list[Any], global_step: int) -> tuple[dict[str, Any], int]:
        """OpenRLHF's result, with the baseline's metrics in the status."""
        self.experience_maker.step = global_step
        dropped = self.samples_generator.take_dropped()
        status, step = super().train_step(rollout_samples, global_step)
        if dropped:
            self._observe(dropped, global_step)
        status.update(self.session.metrics)
        return status, step

    def _observe(self, dropped: list[Any], step: int) -> None:
        """Record the completions that OpenRLHF's filter dropped, each an experience of its own."""
        from openrlhf.trainer.ppo_utils.length_penalty import apply_length_penalties

        for experience in dropped:
            experience.rewards = experience.rewards.float()
        apply_length_penalties(dropped, self.args)
        self.session.observe(
            np.concatenate([rewards_of(experience) for experience in dropped]),
            step,
            prompts=[prompts_of(experience)[0] for experience in dropped],
            groups=[row // self.args.rollout.n_samples_per_prompt for row in range(len(dropped))],  # dropped whole
            weights=_lengths(dropped) if self.session.weighs else None,
        )

    def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any = None, client_states: Any = None) -> None:
        """OpenRLHF's method, which also saves the state in the checkpoint's folder."""
        super().save_logs_and_checkpoints(global_step, logs_dict, client_states)
        if global_step % self.args.ckpt.save_steps == 0:
            self.session.save(self._state_path(f"global_step{global_step}"))

    def save_best_checkpoint(self, eval_metrics: Any, global_step: int, client_states: Any = None) -> None:
        """OpenRLHF's method, which also saves the state if it wrote a checkpoint."""
        before = self.best_eval_metric_value
        super().save_best_checkpoint(eval_metrics, global_step, client_states)
        if self.best_eval_metric_value > before:
            self.session.save(self._state_path(f"best_global_step{global_step}"))

    def init_checkpoint_states(self) -> dict[str, Any]:
        """OpenRLHF's states, after loading the baseline's; a `LostState` if the checkpoint lacks them."""
        states = super().init_checkpoint_states()
        step = states["global_step"]
        if step > 0:
            paths = [self._state_path(f"{kind}{step}") for kind in ("global_step", "best_global_step")]
            found = next((path for path in paths if path.exists()), paths[0])
            self.session.load(found, remedy="begin a new run (every process must see the folder)")
        return states

    def _state_path(self, tag: str) -> Path:
        return Path(self.args.ckpt.path, "_actor", tag, STATE_FILE)


def baseline_trainer(estimator: AdvantageEstimator, *, weights: str = "none") -> Any:
    """OpenRLHF's ``PPOTrainer``, a Ray actor class, with this estimator's advantages.

    Parameters
    ----------
    estimator : AdvantageEstimator
    weights : {"none", "length"}
        Weight of each completion: none, or its tokens in the loss. A ValueError if the estimator cannot use it.
    """
    check_weights(estimator, weights)
    with OPENRLHF.imports():
        import ray
        from openrlhf.trainer.ppo_trainer import PPOTrainer

        plain = PPOTrainer.__ray_metadata__.modified_class  # Ray does not allow inheriting from an actor class
    own = {"estimator": estimator, "weights": weights}
    return ray.remote(type("PPOTrainer", (BaselineTrainerMixin, plain), own))


class _NoAsync:
    """In place of OpenRLHF's asynchronous trainer, which would train on OpenRLHF's own advantages."""

    @staticmethod
    def remote(*_: Any, **__: Any) -> None:
        raise ValueError(
            "--train.async_enable: kaestat's advantages are for OpenRLHF's synchronous trainer; leave the option or "
            "install() out."
        )


def install(estimator: AdvantageEstimator, **options: Any) -> None:
    """Make ``openrlhf.cli.train_ppo_ray``, run later in this process, use `baseline_trainer` with its arguments.

    Its ``train`` takes its trainer from ``openrlhf.trainer.ppo_trainer`` when it is called, or from
    ``ppo_trainer_async`` with ``--train.async_enable``, which is then refused.
    """
    trainer = baseline_trainer(estimator, **options)
    with OPENRLHF.imports():
        import openrlhf.trainer.ppo_trainer as synchronous
        import openrlhf.trainer.ppo_trainer_async as asynchronous

    synchronous.PPOTrainer, asynchronous.PPOTrainerAsync = trainer, _NoAsync


_SamplesGenerator: Any = object  # the generator is its other base class


class TrackedSamplesMixin(_SamplesGenerator):
    """Mixin to put before OpenRLHF's ``SamplesGenerator``, so that it keeps what its filter drops."""

    _scored: list[Any]
    _dropped: list[Any]

    def _process_response_into_experience(self, *given: Any, **options: Any) -> Any:
        experience = super()._process_response_into_experience(*given, **options)
        self._scored.append(experience)
        return experience

    def _generate_vllm(self, *given: Any, dynamic_filtering: bool, **options: Any) -> Any:
        self._scored = []
        accepted, *rest = super()._generate_vllm(*given, dynamic_filtering=dynamic_filtering, **options)
        if dynamic_filtering:  # late completions at the end of the data are dropped, too
            kept = {id(experience) for experience in accepted}
            self._dropped += [experience for experience in self._scored if id(experience) not in kept]
        self._scored = []
        return accepted, *rest

    def take_dropped(self) -> list[Any]:
        """The completions dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped


def with_mixin(instance: Any, mixin: type, **attributes: Any) -> Any:
    """The given object, its class replaced by one with a mixin before it, and some attributes."""
    base = type(instance)
    instance.__class__ = type(f"Baseline{base.__name__}", (mixin, base), {})
    vars(instance).update(attributes)
    return instance


def prompts_of(experience: Any) -> list[Any]:
    """Texts of an experience's completions, with the paths of images if there are any."""
    images = experience.images or [None] * len(experience.prompts)
    return [
        text if not image else [text, [image] if isinstance(image, str) else list(image)]
        for text, image in zip(experience.prompts, images, strict=True)
    ]


def rewards_of(experience: Any) -> np.ndarray:
    """Reward of each completion, shape (B,)."""
    return experience.rewards.detach().cpu().numpy().astype(np.float64)
