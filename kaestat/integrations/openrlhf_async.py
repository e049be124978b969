"""Baselines inside OpenRLHF's asynchronous trainer (``--train.async_enable``).

Run with OpenRLHF's main branch at commit 3c3be62 (13 August 2026, CPU): the real ``TrainingActor`` and
``GenerateSamplesActor`` through whole episodes of their ``fit``, with ``SamplesGenerator`` and experience maker, in the
threads of one process, with stubs for vLLM's engines, the models and Ray's queue, its dynamic filter included. Read
and not run: generation, the policy update, partial rollouts.

OpenRLHF generates in one actor and trains in another. What the generator knows of the trainer is the number of steps
that were done when the place in the queue was given out. With a queue of one batch, the default, this is the policy
that generates, or the one before it where a step ends before the engines are locked; with more places it is up to as
many steps older, and with ``--train.partial_rollout_enable`` it is the policy that a batch was begun with.
"""

from __future__ import annotations

import inspect
from typing import Any

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.openrlhf import OPENRLHF, BaselineTrainerMixin
from kaestat.integrations.openrlhf_samples import watch_samples
from kaestat.integrations.shared.weights import check_weights

_Actor: Any = object  # what the mixins stand before among the bases


class NotedSlots:
    """OpenRLHF's queue of free places, remembering what came with the last one."""

    def __init__(self, slots: Any):
        self._slots, self.step = slots, 0

    def get(self, **options: Any) -> int:
        """The queue's; the trainer's steps when the place was freed."""
        self.step = int(self._slots.get(**options))
        return self.step

    def put(self, step: int, **options: Any) -> None:
        """The queue's."""
        self._slots.put(step, **options)


class TrackedGeneratorMixin(_Actor):
    """Before OpenRLHF's ``GenerateSamplesActor``: completions are told the policy, dropped ones are handed on."""

    rollout_slots: Any
    samples_generator: Any

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        slots = self.rollout_slots = NotedSlots(self.rollout_slots)
        watch_samples(self.samples_generator, lambda: slots.step)


def async_trainer(estimator: AdvantageEstimator, *, weights: str = "none") -> Any:
    """OpenRLHF's ``PPOTrainerAsync``, a Ray actor class, with this estimator's advantages.

    With an estimator of ``order="any"`` completions are recorded under the policy that sampled them, else under the
    step that they are trained in. Prompts that ``--algo.dynamic_filtering_enable`` drops are recorded in both.

    Parameters
    ----------
    estimator : AdvantageEstimator
    weights : {"none", "length"}
        As in `kaestat.integrations.openrlhf.baseline_trainer`.

    Returns
    -------
    ray.actor.ActorClass
        In the place of ``openrlhf.trainer.ppo_trainer_async.PPOTrainerAsync``.

    Raises
    ------
    ValueError
        If the estimator cannot use these weights, or does not do without.
    """
    check_weights(estimator, weights)
    own = {"estimator": estimator, "weights": weights}
    with OPENRLHF.imports():
        import ray
        from openrlhf.trainer import ppo_trainer_async as module

        actors = {
            "TrainingActor": _actor(module.TrainingActor, BaselineTrainerMixin, own),
            "GenerateSamplesActor": _actor(module.GenerateSamplesActor, TrackedGeneratorMixin, {}),
        }
        plain = module.PPOTrainerAsync.__ray_metadata__.modified_class

    def __init__(self: Any, *args: Any, **options: Any) -> None:
        # It makes its actors by these names, in whatever process it is; Ray wraps its methods.
        inspect.unwrap(plain.__init__).__globals__.update(actors)
        plain.__init__(self, *args, **options)

    return ray.remote(type("PPOTrainerAsync", (plain,), {"__init__": __init__}))


def install(estimator: AdvantageEstimator, *, weights: str = "none") -> None:
    """Let ``openrlhf.cli.train_ppo_ray --train.async_enable``, run in this process afterwards, use `async_trainer`."""
    with OPENRLHF.imports():
        import openrlhf.trainer.ppo_trainer_async as module

    module.PPOTrainerAsync = async_trainer(estimator, weights=weights)


def _actor(actor_class: Any, mixin: type, own: dict[str, Any]) -> Any:
    import ray

    plain = actor_class.__ray_metadata__.modified_class  # Ray lets nobody inherit from an actor class itself
    if mixin in plain.__bases__:  # made before in this process, and put in the place of OpenRLHF's own
        plain = plain.__bases__[1]
    return ray.remote(type(plain.__name__, (mixin, plain), own))
