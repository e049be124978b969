"""slime's own asynchronous loop, rollout worker, data source, samples and rollout manager, on engines that are stubs.

Runs where slime's source is given (`make test-upstream`).
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys
import time
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.slime import RewardPostProcess
from tests.helpers.upstream import EmptyPackages

pytestmark = pytest.mark.skipif(find_spec("slime") is None, reason="needs a folder of slime's source")

NUMBER = itertools.count()
N_PROMPTS, GROUP, BATCH = 9, 4, 5


class Engines:
    """In the place of SGLang and its router: completions of the weights that were pushed last, with their number.

    Attributes
    ----------
    serves : pair of int
        Number of the weights, and rollouts that they had been trained on.
    sampled : dict
        Policy, as such a number of rollouts, of each sample: what the adapter has to find.
    """

    def __init__(self, first_rollout, *, aborts=False):
        self.serves, self.trained, self.aborts = (0, first_rollout), first_rollout, aborts
        self.sampled, self.rewards, self.aborted = {}, {}, set()

    async def generate(self, args, sample, sampling_params):
        rng = np.random.default_rng(sample.index)
        await asyncio.sleep(0.002 + 0.08 * float(rng.random() < 0.2))
        version, policy = self.serves
        reason = "stop"
        if self.aborts and sample.index % 6 == 0 and sample.index not in self.aborted:
            self.aborted.add(sample.index)
            reason = "abort"
        meta = {"weight_version": str(version), "finish_reason": {"type": reason}}
        sample.append_response_tokens(args, tokens=[7], log_probs=[-0.5], meta_info=meta, text="x")
        if reason == "stop":
            sample.reward = float(rng.random() < 0.2 + 0.6 * (len(sample.prompt) % 2))
            self.sampled[sample.index], self.rewards[sample.index] = policy, sample.reward
        return sample


class Trainer:
    """In the place of slime's group of Megatron actors."""

    def __init__(self, engines, manager, first_rollout, seen):
        self.engines, self.manager, self.first, self.seen = engines, manager, first_rollout, seen

    def update_weights(self):
        self.engines.serves = self.engines.serves[0] + 1, self.engines.trained

    def async_train(self, rollout_id, data):
        time.sleep(0.03)
        self.engines.trained = rollout_id + 1
        self.seen[rollout_id] = data
        return []

    def save_model(self, rollout_id, force_sync):
        pass


class Remote:
    """A method of a Ray actor, run one call after the other in a thread."""

    def __init__(self, pool, method):
        self.pool, self.method = pool, method

    def remote(self, *args):
        return self.pool.submit(self.method, *args)


@pytest.fixture
def slime(monkeypatch, tmp_path):
    """A function that runs slime's train_async.py from a rollout on, in the folder of the test."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EmptyPackages(("sglang", "sglang_router"))])
    names = ("slime.ray.rollout", "slime.rollout.fully_async_rollout", "slime.rollout.sglang_rollout", "train_async")
    rollout, worker, sglang, train_async = map(importlib.import_module, names)
    source = importlib.import_module("slime.rollout.data_source")
    for module in (source, sglang):
        for load in ("load_tokenizer", "load_processor"):
            monkeypatch.setattr(module, load, lambda *args, **options: None)
    monkeypatch.setattr(rollout, "log_rollout_data", lambda *args: None)

    async def no_workers(url):
        return {"workers": []}

    monkeypatch.setattr(sglang, "get", no_workers)
    own_init = worker.AsyncRolloutWorker.__init__

    def quick(self, *args, **options):
        own_init(self, *args, **options)
        self.poll_interval = 0.003

    monkeypatch.setattr(worker.AsyncRolloutWorker, "__init__", quick)
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"text": f"What is 1{'0' * k}+1?"}) + "\n" for k in range(N_PROMPTS))
    )

    def run(hook, rollout_function, rollouts, *, interval=1, aborts=False, save_interval=None):
        first, last = rollouts.start, rollouts.stop
        monkeypatch.setattr(type(sglang.GenerateState), "_instances", {})
        args = _arguments(tmp_path, first, last, interval, save_interval)
        engines = Engines(first, aborts=aborts)
        name = f"stub_engines_{next(NUMBER)}"  # slime keeps what it has loaded by its name
        module = types.ModuleType(name)
        module.generate = engines.generate
        monkeypatch.setitem(sys.modules, name, module)
        args.custom_generate_function_path = f"{name}.generate"
        manager = object.__new__(rollout.RolloutManager.__ray_metadata__.modified_class)
        manager.args, manager.custom_convert_samples_to_train_data_func = args, None
        manager.custom_reward_post_process_func, manager.generate_rollout = hook, hook.with_step(rollout_function)
        manager.data_source = hook.data_source(source.RolloutDataSourceWithBuffer)(args)
        manager._health_monitors, manager._split_train_data_by_dp = [], lambda data: data
        pool, seen = ThreadPoolExecutor(1), {}
        handle = SimpleNamespace(
            **{name: Remote(pool, getattr(manager, name)) for name in ("generate", "save")},
            dispose=Remote(pool, worker._stop_global_worker),
        )
        manager.data_source.load(first - 1)
        trainer = Trainer(engines, manager, first, seen)
        monkeypatch.setattr(train_async, "create_placement_groups", lambda args: {"rollout": None})
        monkeypatch.setattr(train_async, "create_rollout_manager", lambda args, pg: (handle, None))
        monkeypatch.setattr(train_async, "create_training_models", lambda args, pgs, manager: (trainer, None))
        for name in ("init_tracking", "finish_tracking", "configure_logger"):
            monkeypatch.setattr(train_async, name, lambda *args: None)
        monkeypatch.setattr(
            train_async, "ray", SimpleNamespace(get=lambda ref: ref.result() if hasattr(ref, "result") else ref)
        )
        try:
            train_async.train(args)
        finally:
            worker._stop_global_worker()
            pool.shutdown()
        return engines, seen, manager

    functions = {"fully": worker.generate_rollout_fully_async, "one step ahead": sglang.generate_rollout}
    return SimpleNamespace(run=run, functions=functions, sglang=sglang)


def _arguments(folder, first, last, interval, save_interval):
    sampling = {f"rollout_{name}": 1.0 for name in ("temperature", "top_p", "top_k")}
    off = ("colocate", "release_train", "use_critic", "check_weight_update_equal", "group_rm", "partial_rollout")
    none = (
        *("reward_key", "eval_interval", "dynamic_sampling_filter_path", "rollout_sample_filter_path", "dump_details"),
        *(
            "rollout_all_samples_process_path",
            "rollout_sample_hook_path",
            "buffer_filter_path",
            "rollout_max_prompt_len",
        ),
        *("multimodal_keys", "label_key", "tool_key", "apply_chat_template_kwargs", "save_debug_rollout_data"),
        *("load_debug_rollout_data", "sglang_dp_size", "rollout_stop", "rollout_stop_token_ids"),
    )
    return SimpleNamespace(
        **dict.fromkeys(off, False) | dict.fromkeys(none) | sampling,
        **{"start_rollout_id": first, "num_rollout": last, "update_weights_interval": interval},
        **{"save": str(folder), "load": str(folder), "save_interval": save_interval},
        **{"rollout_batch_size": BATCH, "over_sampling_batch_size": BATCH, "n_samples_per_prompt": GROUP},
        **{"advantage_estimator": "grpo", "rollout_global_dataset": True, "rollout_shuffle": True, "rollout_seed": 3},
        **{"prompt_data": str(folder / "prompts.jsonl"), "input_key": "text", "metadata_key": "metadata"},
        **{"hf_checkpoint": None, "apply_chat_template": False},
        **{"sglang_server_concurrency": 24, "rollout_num_engines": 1, "rollout_max_response_len": 8},
        **{"rollout_skip_special_tokens": True, "ci_test": False, "use_fault_tolerance": False},
        **{"debug_rollout_only": False, "debug_train_only": False, "mask_offpolicy_in_partial_rollout": False},
        **{"sglang_router_ip": "none", "sglang_router_port": 0},
    )


def recorded(hook):
    """Completions of each prompt and policy, as the history has them."""
    estimator = hook.session(None).estimator
    history = estimator.history
    visits = history.visits(list(history.columns.row), estimator.last_step + 1)
    lags = estimator.last_step + 1 - visits.lag
    return Counter(
        {
            (key, int(step)): (int(count), float(total))
            for row, key in enumerate(history.columns.row)
            for step, count, total in zip(lags[row], visits.count[row], visits.total[row], strict=True)
            if count
        }
    )


def expected(engines, seen, prompts):
    """The same from what the engines wrote down, of the samples that were trained on."""
    count, total = Counter(), Counter()
    for data in seen.values():
        for index in data["sample_indices"]:
            key = hash_prompt(prompts[index]), engines.sampled[index]
            count[key] += 1
            total[key] += engines.rewards[index]
    return {key: (count[key], total[key]) for key in count}


def hook_of(**options):
    return RewardPostProcess(AdvantageEstimator("kae", bandwidth=30.0, **options))


def with_prompts_noted(hook):
    """The hook, and a dict that its data source fills with the prompt of every sample."""
    made, prompts = hook.data_source, {}

    def data_source(base):
        class Noting(made(base)):
            def get_samples(self, number):
                groups = super().get_samples(number)
                prompts.update({sample.index: sample.prompt for group in groups for sample in group})
                return groups

        return Noting

    hook.data_source = data_source
    return prompts


@pytest.mark.parametrize(
    ("function", "interval", "aborts"),
    [("one step ahead", 1, False), ("one step ahead", 2, False), ("fully", 1, False), ("fully", 2, True)],
)
def test_integration_slime_own_run_records_under_the_policies_that_sampled(slime, function, interval, aborts):
    hook = hook_of(order="any")
    prompts = with_prompts_noted(hook)
    rollouts = range(7)
    engines, seen, _ = slime.run(hook, slime.functions[function], rollouts, interval=interval, aborts=aborts)
    assert sorted(seen) == list(rollouts) and all(len(data["rewards"]) == BATCH * GROUP for data in seen.values())
    assert recorded(hook) == expected(engines, seen, prompts)
    stale = [step - engines.sampled[k] for step, data in seen.items() for k in data["sample_indices"]]
    assert max(stale) >= 1 and min(stale) >= 0
    assert bool(engines.aborted) == aborts
    if function == "fully":
        policies = [len({engines.sampled[k] for k in data["sample_indices"]}) for data in seen.values()]
        assert max(policies) > 1


def test_integration_slime_own_run_resumes_with_the_policies_counted_on(slime):
    first = hook_of(order="any")
    prompts = with_prompts_noted(first)
    engines, seen, _ = slime.run(first, slime.functions["fully"], range(5), save_interval=3)
    until = {step: data for step, data in seen.items() if step <= 2}
    second = hook_of(order="any")
    more = with_prompts_noted(second)
    again, after, _ = slime.run(second, slime.functions["fully"], range(3, 7))
    assert sorted(after) == [3, 4, 5, 6]
    assert again.sampled and min(again.sampled.values()) == 3
    assert recorded(second) == expected(engines, until, prompts) | expected(again, after, more)
