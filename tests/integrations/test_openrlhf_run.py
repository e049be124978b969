"""OpenRLHF's own asynchronous trainer in the threads of one process, on stubs of vLLM's engines and the models.

Runs where OpenRLHF's source is given or installed (`make test-upstream`).
"""

from __future__ import annotations

import importlib
import inspect
import queue
import sys
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import cloudpickle
import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.openrlhf_async import async_trainer
from kaestat.integrations.shared.prompt_ids import hash_prompt
from tests.helpers.upstream import EmptyPackages

pytestmark = pytest.mark.skipif(find_spec("openrlhf") is None, reason="needs OpenRLHF or a folder of its source")

GPU_PACKAGES = ("flash_attn", "deepspeed", "vllm", "bitsandbytes", "optimum", "torchmetrics", "ring_flash_attn")
GROUP, BATCH = 3, 4


class Now:
    """A method whose remote call is made at once, or in a thread if there is one."""

    def __init__(self, method, pool=None):
        self.method, self.pool = method, pool

    def remote(self, *args, **options):
        return self.method(*args, **options) if self.pool is None else self.pool.submit(self.method, *args, **options)


class ThreadActor:
    """In the place of an actor class of Ray: each object has a thread of its own."""

    def __init__(self, plain):
        self.__ray_metadata__ = SimpleNamespace(modified_class=plain)

    def remote(self, *args, **options):
        held, pool = self.__ray_metadata__.modified_class(*args, **options), ThreadPoolExecutor(1)

        class Handle:
            own = held

            def __getattr__(self, name):
                return Now(getattr(held, name), pool)

        return Handle()


class Lock:
    def __init__(self):
        lock = threading.Lock()
        self.acquire, self.release = Now(lock.acquire), Now(lock.release)

    @classmethod
    def remote(cls):
        return cls()


def get(refs):
    if isinstance(refs, list):
        done, _ = wait([ref for ref in refs if isinstance(ref, Future)], return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()  # the one that failed, while the other waits for it
        return [get(ref) for ref in refs]
    return refs.result() if isinstance(refs, Future) else refs


RAY = SimpleNamespace(
    get=get,
    put=lambda value: value,
    wait=lambda refs, num_returns, timeout: (refs[:1], refs[1:]),
    cancel=lambda responses: responses.clear(),
)


class World:
    """In the place of vLLM's engines and of the policy: completions of the weights that were broadcast last."""

    def __init__(self, trained=0):
        self.trained = self.serves = trained
        self.groups, self.states, self.batches = [], None, []
        self.get_num_unfinished_requests, self.generate_responses = Now(lambda: 0), Now(self.generate)

    def generate(self, *, prompt, label, num_samples, images, **options):
        time.sleep(0.002)
        rng = np.random.default_rng(len(self.groups))
        rewards = [float(rng.random() < (int(label) + 1) / 14) for _ in range(num_samples)]
        policy = self.serves
        shared = {"prompt": prompt, "label": label, "images": images, "action_ranges": [(2, 5)]}
        tokens = {"observation_tokens": [1, 2, 3, 4, 5], "rollout_log_probs": None, "truncated": False}
        responses = [shared | tokens | {"reward": reward, "scores": reward} for reward in rewards]
        self.groups.append((prompt, rewards, policy, responses))
        return responses

    @property
    def made(self):
        """Prompt, rewards and policy of the groups that were not cancelled."""
        return [group for *group, responses in self.groups if responses]

    def async_run_method_batch(self, method_name, **given):
        if method_name == "append":
            self.batches.append(given["experience"])
            return []
        return [[torch.zeros(mask.shape)] for mask in given["action_mask"]]

    def async_run_method(self, method_name, **given):
        if method_name == "broadcast_to_vllm":
            self.serves = self.trained
        if method_name == "save_checkpoint":
            self.states = dict(given["client_states"])
        return [self.states] if method_name == "get_checkpoint_states" else []

    def learn(self, global_step):
        time.sleep(0.03)
        self.trained = global_step + 1
        return {}


class Prompts:
    """In the place of OpenRLHF's data loader: thirteen prompts in order."""

    def __init__(self):
        self.done = 0

    def __len__(self):
        return 13

    def __iter__(self):
        for row in range(self.done, 13):
            self.done = row + 1
            yield None, [f"{row}+1="], [str(row)], [None]
        self.done = 0

    def state_dict(self):
        return {"done": self.done % 13}

    def load_state_dict(self, state):
        self.done = state["done"]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that trains from the newest checkpoint on, and gives the trainer's actor back."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(GPU_PACKAGES)])
    names = ("ppo_trainer_async", "ppo_trainer", "ppo_utils.experience_maker", "ppo_utils.samples_generator")
    modules = [importlib.import_module(f"openrlhf.trainer.{name}") for name in names]
    module = modules[0]
    own_actors = {name: getattr(module, name) for name in ("TrainingActor", "GenerateSamplesActor")}

    def train(estimator, world, *, queue_size=1, episodes=3, filtering=False):
        for each in modules:
            monkeypatch.setattr(each, "ray", RAY)
        monkeypatch.setattr("ray.remote", ThreadActor)
        monkeypatch.setattr(module, "VLLMLock", Lock)
        monkeypatch.setattr(module, "Queue", queue.Queue)
        monkeypatch.setattr(module, "get_tokenizer", lambda *args, **options: MagicMock(pad_token_id=0))
        monkeypatch.setattr(module, "prepare_datasets", lambda *args: (Prompts(), None, 99))
        plain = own_actors["TrainingActor"].__ray_metadata__.modified_class
        monkeypatch.setattr(plain, "ppo_train", lambda self, step: world.learn(step))
        for name, each in own_actors.items():
            monkeypatch.setattr(module, name, each)  # as in a new process, and put back after the test
        strategy = SimpleNamespace(args=_arguments(tmp_path, queue_size, episodes, filtering))
        own = async_trainer(estimator).__ray_metadata__.modified_class
        trainer = own("model", strategy, world, None, None, None, [world], max_new_tokens=8)
        trainer.fit()
        return trainer.trainer_actor.own

    return train


def _arguments(folder, queue_size, episodes, filtering):
    options = {
        "algo": dict(
            advantage=SimpleNamespace(
                estimator="reinforce", gamma=1.0, no_std_norm=False, is_correction_enable=False, lambd=1.0
            ),
            kl=SimpleNamespace(use_loss=False, estimator="k1", target=None, init_coef=0.0, horizon=1),
            dynamic_filtering_enable=filtering,
            dynamic_filtering_range=(0.0, 1.0),
        ),
        "rollout": dict(n_samples_per_prompt=GROUP, micro_batch_size=5, max_new_tokens=8, batch_size=BATCH),
        "train": dict(
            dynamic_batch_enable=False,
            colocate_all=False,
            colocate_actor_ref=False,
            async_queue_size=queue_size,
            partial_rollout_enable=False,
            num_episodes=episodes,
        ),
        "reward": dict(
            clip_range=None, overlong_buffer_len=None, overlong_penalty_factor=1.0, stop_properly_penalty_coef=None
        ),
        "data": dict(disable_fast_tokenizer=False),
        "vllm": dict(enable_sleep=False),
        "ds": dict(ring_attn_size=1, tensor_parallel_size=1, enable_sleep=False),
        "ckpt": dict(
            save_steps=2,
            path=str(folder),
            load_enable=True,
            best_metric_key="",
            disable=False,
            save_hf=False,
            max_num=9,
            max_mem=9,
        ),
        "eval": dict(steps=-1, dataset=None),
        "critic": dict(freezing_steps=0, model_name_or_path=None),
        "logger": dict(logging_steps=1, wandb=SimpleNamespace(key=None), tensorboard_dir=None),
    }
    return SimpleNamespace(**{name: SimpleNamespace(**values) for name, values in options.items()})


def recorded(actor):
    """Completions of each prompt and policy, as the history has them."""
    estimator = actor._watched.estimator
    history, now = estimator.history, estimator.last_step + 1
    visits = history.visits(list(history.columns.row), now)
    rows = zip(history.columns.row, visits.lag, visits.count, visits.total, strict=True)
    return {
        (key, int(now - lag)): (int(count), float(total))
        for key, *columns in rows
        for lag, count, total in zip(*columns, strict=True)
        if count
    }


def sampled(world, first=None):
    """The same from what the engines wrote down, of the first groups that they made."""
    count, total = Counter(), Counter()
    for prompt, rewards, policy in world.made[:first]:
        count[hash_prompt(prompt), policy] += len(rewards)
        total[hash_prompt(prompt), policy] += sum(rewards)
    return {key: (count[key], total[key]) for key in count}


def globals_of(method):
    return getattr(inspect.unwrap(method), "__globals__", {})


def any_order():
    return AdvantageEstimator("kae", bandwidth=60, order="any")


def test_integration_openrlhf_own_asynchronous_run_records_under_the_policies_that_sampled(run):
    world = World()
    actor = run(any_order(), world)
    found, trained = recorded(actor), sum(len(e.index) for batch in world.batches for e in batch) // GROUP
    told = sum(count for count, _ in found.values()) // GROUP
    assert found == sampled(world, told)
    assert len(world.made) == told == trained
    policies = sorted({policy for *_, policy in world.made})
    assert policies == list(range(len(policies))) and len(policies) >= len(world.batches) - 2 >= 2
    advantages = torch.cat([experience.advantages[:, -1] for batch in world.batches for experience in batch])
    assert torch.isfinite(advantages).all() and advantages.std() > 0.3


def test_integration_openrlhf_longer_queue_makes_policies_older_by_no_more_than_its_length(run):
    world, size = World(), 3
    actor = run(any_order(), world, queue_size=size, episodes=6)
    found = recorded(actor)
    assert sum(count for count, _ in found.values()) == GROUP * len(world.made)
    truth = {}
    for prompt, _, policy in world.made:
        truth.setdefault(hash_prompt(prompt), []).append(policy)
    for key, policies in truth.items():
        visits = sorted((step, count) for (name, step), (count, _) in found.items() if name == key)
        own = [step for step, count in visits for _ in range(count // GROUP)]
        assert all(0 <= policy - step <= size for policy, step in zip(sorted(policies), own, strict=True))


class SlowLock(Lock):
    """Is given out when the trainer has done a step since the generator took its place in the queue."""

    def __init__(self):
        super().__init__()
        acquire = self.acquire.method
        self.acquire = Now(lambda: (time.sleep(0.05), acquire()))


@pytest.mark.parametrize("lock", [Lock, SlowLock])
def test_integration_openrlhf_groups_that_its_filter_drops_are_recorded_and_policies_older_by_one_at_most(
    run, lock, monkeypatch
):
    monkeypatch.setattr(sys.modules[__name__], "Lock", lock)
    world = World()
    found = recorded(run(any_order(), world, episodes=6, filtering=True))
    told = sum(count for count, _ in found.values()) // GROUP
    trained = sum(len(e.index) for batch in world.batches for e in batch) // GROUP
    of_prompt = {}
    for prompt, rewards, policy in world.made[:told]:
        of_prompt.setdefault(hash_prompt(prompt), []).append((policy, sum(rewards)))
    older = []
    for key, groups in of_prompt.items():
        visits = sorted((step, *sums) for (name, step), sums in found.items() if name == key)
        own = [step for step, count, _ in visits for _ in range(count // GROUP)]
        older += [policy - step for (policy, _), step in zip(sorted(groups), own, strict=True)]
        assert sum(total for *_, total in visits) == sum(total for _, total in groups)
    assert set(older) <= {0, 1} and (1 in older) >= (lock is SlowLock)
    assert told - trained >= 20  # dropped
    # No batch comes after the last ones that were dropped.
    assert len(world.made) - told <= 3 and all(sum(rewards) in (0.0, GROUP) for _, rewards, _ in world.made[told:])


def test_integration_openrlhf_own_asynchronous_run_resumes_with_the_policies_counted_on(run):
    world = World()
    run(any_order(), world, episodes=2)
    saved = world.states["global_step"]
    again = World(trained=saved)
    again.states = world.states
    found = recorded(run(any_order(), again, episodes=4))
    new = {key: value for key, value in found.items() if key[1] >= saved}
    assert new == sampled(again) and min(policy for *_, policy in again.made) == saved
    old = {key: value for key, value in found.items() if key[1] < saved}
    assert saved >= 2 and old and old.items() <= sampled(world).items()


def test_integration_openrlhf_class_that_ray_carries_away_makes_our_actors_there(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(GPU_PACKAGES)])
    ours = async_trainer(any_order()).__ray_metadata__.modified_class
    carried = cloudpickle.loads(cloudpickle.dumps(ours))
    seen = {}

    def stop(maxsize):
        seen.update({name: names[name] for name in ("TrainingActor", "GenerateSamplesActor")})
        raise InterruptedError

    plain = next(c.__init__ for c in carried.__mro__[1:] if "TrainingActor" in globals_of(c.__init__))
    names = globals_of(plain)
    for name, put in {"Queue": stop, "TrainingActor": None, "GenerateSamplesActor": None}.items():
        monkeypatch.setitem(names, name, put)
    with pytest.raises(InterruptedError):
        carried("model", SimpleNamespace(args=_arguments("folder", 1, 1, False)), *[None] * 5)
    bases = {
        name: [base.__name__ for base in actor.__ray_metadata__.modified_class.__mro__] for name, actor in seen.items()
    }
    assert "BaselineTrainerMixin" in bases["TrainingActor"]
    assert "TrackedGeneratorMixin" in bases["GenerateSamplesActor"]
