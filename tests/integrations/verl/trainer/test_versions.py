"""Versions of the policy from verl's tags, and groups that its own replay buffer drops, on its real transfer queue."""

import numpy as np
import pytest

from kaestat import AsynchronousEstimator
from tests.helpers.tiny_verl import SEPARATE, compute, make_trainer, put, sample

FILTER = ("algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward")
BANDWIDTH = "+algorithm.kaestat.params.bandwidth=5"

# Step of training (0-based), prompt, rewards, and the versions of the weights that ended the completions.
RUN = [
    (0, "a", [1.0, 0.0], [0, 0]),
    (1, "b", [0.0, 0.0], [0, 1]),
    (2, "a", [1.0, 1.0], [1, 1]),
    (3, "a", [0.0, 1.0], [1, 3]),
    (3, "b", [1.0, 1.0], [2, 3]),
    (5, "a", [0.0, 0.0], [2, 4]),
]


def tagged(uid, prompt, rewards, ended, index):
    rows = [sample(uid, k, 0, f"prompt {prompt}", index, reward, 2 + k) for k, reward in enumerate(rewards)]
    tags = [{"global_steps": 1, "min_global_steps": 0, "max_global_steps": version} for version in ended]
    return rows, tags


def batch_of(queue, number):
    _, prompt, rewards, ended = RUN[number]
    return put(queue, *tagged(f"u{number}", prompt, rewards, ended, "ab".index(prompt)))


@pytest.mark.parametrize("mode", ["kaestat_colocate_async", "kaestat_separate_async"])
@pytest.mark.parametrize("weights", ["none", "length"])
def test_advantages_are_the_librarys_with_the_versions_of_the_tags(queue, mode, weights):
    options = SEPARATE if mode.endswith("separate_async") else ()
    trainer = make_trainer(*options, BANDWIDTH, f"+algorithm.kaestat.weights={weights}", mode=mode)
    per_version = trainer.parameter_sync_step
    assert per_version == (4 if options else 1)
    plain, found, wanted = AsynchronousEstimator("kae", bandwidth=5), [], []
    for number, (step, prompt, rewards, ended) in enumerate(RUN):
        tokens, _ = compute(queue, trainer, batch_of(queue, number), step)
        found += [float(row[0]) for row in tokens.values()]
        lengths = np.arange(2.0, 2 + len(rewards)) if weights == "length" else None
        ids, version = [prompt] * len(rewards), np.array(ended) * per_version
        wanted += plain.step(ids, rewards, step * per_version, version=version, weights=lengths).tolist()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    in_order = AsynchronousEstimator("kae", bandwidth=5)
    assert not np.allclose(found, [a for s, p, r, _ in RUN for a in in_order.step([p] * 2, r, s * per_version)])


def test_without_a_tag_or_with_one_from_the_future_the_run_stops(queue):
    trainer = make_trainer(mode="kaestat_colocate_async")
    for version in (None, 3):
        batch = put(queue, *tagged("u", "a", [1.0, 0.0], [version, 0], 0))
        with pytest.raises(ValueError, match=f"max_global_steps of 'u_0_0' is {version} at step 2"):
            compute(queue, trainer, batch, 2)


def finished(queue, uid, begun, rows, tags):
    """A group that waits in verl's queue, as its agent loops leave it."""
    put(queue, rows, [{**tag, "status": "success"} for tag in tags])
    prompt = [{"is_prompt": True, "status": "finished", "global_steps": begun}]
    queue.kv_batch_put(keys=[uid], partition_id="train", tags=prompt)


def known(trainer):
    """Count and sum of each version of prompts a and b in the history."""
    keys = ['["sums","train",0]', '["sums","train",1]']
    visits = trainer.session.estimator.history.visits(keys, 100)
    rows = zip(visits.lag, visits.count, visits.total, strict=True)
    return [{int(100 - lag): (c, t) for lag, c, t in zip(*row, strict=True) if c} for row in rows]


@pytest.mark.parametrize(
    ("mode", "options", "dropped"),
    [
        ("kaestat_colocate_async", ("trainer.v1.sampler.max_off_policy_threshold=2",), "stale"),
        ("kaestat_colocate_async", FILTER, "equal"),
        ("kaestat_sync", FILTER, "equal"),
    ],
)
@pytest.mark.parametrize("weights", ["none", "length"])
def test_groups_that_verl_drops_are_in_the_history(queue, mode, options, dropped, weights, recwarn):
    trainer = make_trainer(*options, BANDWIDTH, f"+algorithm.kaestat.weights={weights}", mode=mode)
    assert not [warning for warning in recwarn if "1/2" in str(warning.message)]
    trainer.replay_buffer.refill_fn = lambda count: None
    trainer.replay_buffer.poll_interval = 0.01
    trainer.global_steps, begun = 5, 1 if dropped == "stale" else 5
    finished(queue, "old", begun, *tagged("old", "a", [1.0, 1.0], [3, 4], 0))
    finished(queue, "new", 5, *tagged("new", "b", [1.0, 0.0], [4, 4], 1))
    try:
        batch, metrics = trainer.replay_buffer.sample(global_steps=5, partition_id="train", batch_size=1)
        assert {key.split("_")[0] for key in batch.keys} == {"new"} and any("evicted" in name for name in metrics)
        assert known(trainer) == [{3: (1.0, 1.0), 4: (1.0, 1.0)}, {}]
        found, _ = compute(queue, trainer, batch, 4)
        assert known(trainer) == [{3: (1.0, 1.0), 4: (1.0, 1.0)}, {4: (2.0, 1.0)}]
        assert [float(row[0]) for row in found.values()] == [1.0, -1.0]
    finally:
        if left := list((queue.kv_list() or {}).get("train", {})):
            queue.kv_clear(keys=left, partition_id="train")


@pytest.mark.parametrize("option", ["algorithm.use_kl_in_reward=True", "+algorithm.kaestat.weights=score_norm"])
def test_where_reward_or_weight_are_not_known_yet_a_filter_is_warned_of(option):
    squares = "actor_rollout_ref.actor.calculate_sum_pi_squared=True"
    with pytest.warns(UserWarning, match="pulls its values towards 1/2"):
        make_trainer(*FILTER, option, squares, BANDWIDTH, mode="kaestat_colocate_async")
