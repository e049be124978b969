"""Rollout pools: what is written is read back, interruptions lose a prompt at most, foreign pools are refused."""

from dataclasses import dataclass

import numpy as np
import pytest

from llm_experiments.config import SamplingConfig
from llm_experiments.policies.base import Completion, Policy
from llm_experiments.pools.sampling import sample_pool, weights_digest
from llm_experiments.pools.store import PoolStore
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Problem, Task

IDENTITY = {"model": "fake", "seed": 3}


class FakePolicy(Policy):
    """Completions of one to four random tokens; is interrupted at a prompt."""

    def __init__(self, *, fails_at=""):
        self.sampling, self.fails_at, self.calls = SamplingConfig(max_new_tokens=4), fails_at, []

    def _sample_groups(self, prompts, n, seed):
        raise AssertionError("prompts of these pools have no tokens")

    def load_weights(self, checkpoint):
        raise AssertionError("nothing here replaces weights")

    def sample_groups(self, prompts, n, *, seed):
        self.calls += prompts
        if self.fails_at in prompts:
            raise KeyboardInterrupt
        rng = np.random.default_rng(seed)
        return [[self._completion(rng, int(rng.integers(1, 5))) for _ in range(n)] for _ in prompts]

    @staticmethod
    def _completion(rng, length):
        tokens = tuple(rng.integers(10, size=length).tolist())
        log_probs = tuple(np.float32(rng.normal(-1, 0.1, size=length)).tolist())
        return Completion(tokens, log_probs, "".join(map(str, tokens)), finished=length < 4)


@dataclass(frozen=True)
class FakeTask(Task):
    """Right is what begins with an even digit."""

    problems: tuple[Problem, ...] = tuple(Problem(f"fake/{k}", f"prompt {k}", "") for k in range(5))

    def rewards(self, problem, texts):
        return [float(int(text[0]) % 2 == 0) for text in texts]


IDS = [problem.id for problem in FakeTask().problems]


def fill(folder, policy, *, checkpoint="abc"):
    """Sample the pools of one step."""
    store = PoolStore(folder, IDENTITY, IDS)
    sample_pool(store, policy, FakeTask(), step=7, checkpoint=checkpoint, size=6, seed=3)
    return store


def _contents(store: PoolStore, step: int = 7) -> list:
    return [(pool.completions, pool.rewards.tolist()) for pool in (store.read(step, name) for name in IDS)]


def test_a_pool_comes_back_as_it_was_sampled(tmp_path):
    store = fill(tmp_path, FakePolicy())
    sampled = FakePolicy().sample("prompt 2", 6, seed=seed_of(3, "pool", 7, "fake/2"))
    pool = store.read(7, "fake/2")
    assert list(pool.completions) == sampled
    assert pool.rewards.tolist() == FakeTask().rewards(None, [completion.text for completion in sampled])
    assert pool.lengths.tolist() == [len(completion.token_ids) for completion in sampled]
    assert store.rewards(7, 4).shape == (5, 4)


def test_an_interrupted_pool_goes_on_at_the_prompt_in_hand_and_ends_the_same(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "a", FakePolicy(fails_at="prompt 3"))
    policy = FakePolicy()
    resumed = fill(tmp_path / "a", policy)
    assert policy.calls == ["prompt 3", "prompt 4"]
    assert _contents(resumed) == _contents(fill(tmp_path / "b", FakePolicy()))


def test_pools_of_other_settings_are_refused_and_the_setting_is_named(tmp_path):
    fill(tmp_path, FakePolicy())
    with pytest.raises(ValueError, match=r"other settings \(seed\)"):
        PoolStore(tmp_path, IDENTITY | {"seed": 4}, IDS)
    with pytest.raises(ValueError, match="problem_ids"):
        PoolStore(tmp_path, IDENTITY, IDS[::-1])


def test_pools_of_other_weights_are_refused(tmp_path):
    fill(tmp_path, FakePolicy())
    with pytest.raises(ValueError, match="other weights"):
        fill(tmp_path, FakePolicy(), checkpoint="xyz")


def test_the_pool_of_another_prompt_or_step_is_refused(tmp_path):
    store = fill(tmp_path, FakePolicy())
    store.path(7, "fake/1").write_bytes(store.path(7, "fake/2").read_bytes())
    with pytest.raises(ValueError, match="problem_id is 'fake/2'"):
        store.read(7, "fake/1")
    store.path(8, "fake/2").parent.mkdir()
    store.path(8, "fake/2").write_bytes(store.path(7, "fake/2").read_bytes())
    with pytest.raises(ValueError, match="step is '7'"):
        store.read(8, "fake/2")


@pytest.mark.parametrize("share", [0.0, 0.99])
def test_a_torn_pool_is_refused(tmp_path, share):
    store = fill(tmp_path, FakePolicy())
    content = store.path(7, "fake/1").read_bytes()
    store.path(7, "fake/1").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="damaged"):
        store.read(7, "fake/1")


def test_a_pool_that_was_not_sampled_is_missed_by_name(tmp_path):
    store = fill(tmp_path, FakePolicy())
    assert store.missing(9) == IDS
    with pytest.raises(FileNotFoundError, match="stage 'pools'"):
        store.read(9, "fake/1")
    with pytest.raises(ValueError, match="has 6 completions, not 7"):
        store.rewards(7, 7)


def test_the_digest_of_weights_sees_every_byte_and_needs_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="safetensors"):
        weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    first = weights_digest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"abd")
    assert weights_digest(tmp_path) != first
