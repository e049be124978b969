"""The loop of TRL's rollout worker, its own scoring of groups included, with the advantages of an estimator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields
from queue import Queue

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.history.delta import HistoryDelta
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.trl.group_scoring import RecordedSample, RecordingQueue
from tests.helpers.tiny_async_trl import InProcess, any_order, group

pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

# Prompt, rewards, version of the group, version of the policy when it is scored: late, repeated, out of order.
RUN = [
    ("a", [1.0, 0.0, 0.0], 1, 1),
    ("b", [1.0, 1.0, 0.0], 1, 2),
    ("a", [0.0, 0.0, 1.0], 3, 3),
    ("a", [1.0, 1.0, 1.0], 2, 4),
    ("b", [0.0, 1.0, 1.0], 4, 4),
    ("a", [0.0, 1.0, 0.0], 3, 5),
]


@pytest.fixture
def scoring():
    made = []

    def make(*args, **options):
        made.append(InProcess(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def deltas(samples):
    return [HistoryDelta.from_bytes(s.delta) for s in samples if isinstance(s, RecordedSample)]


def state_of(estimator, keys=("a", "b")):
    """Lag at step 100, count and sum of each visit of each prompt."""
    visits = estimator.history.visits(list(keys), 100)
    rows = zip(visits.lag, visits.count, visits.total, strict=True)
    return [sorted(zip(lag[n > 0], n[n > 0], s[n > 0], strict=True)) for lag, n, s in rows]


@pytest.mark.parametrize("method", ["kae:bandwidth=3", "rloo", "grpo", "spo:rho=0.9"])
def test_advantages_are_those_of_an_estimator_that_is_given_the_versions(method, scoring):
    options = {"scale": "none"} if method.startswith("spo") else {}
    loop, by_hand = scoring(any_order(method, **options)), AdvantageEstimator(method, order="any", **options)
    for name, rewards, version, now in RUN:
        samples = loop.score(group([name] * 3, rewards, version), now)
        wanted = by_hand.step([name] * 3, rewards, now, version=[version] * 3)
        assert [sample.advantage for sample in samples] == wanted.tolist()
        assert [sample.model_version for sample in samples] == [version] * 3


def test_without_the_versions_the_advantages_would_be_others(scoring):
    loop, by_hand = scoring(any_order("kae:bandwidth=3")), AdvantageEstimator("kae", bandwidth=3, order="any")
    found = [[s.advantage for s in loop.score(group([n] * 3, r, v), now)] for n, r, v, now in RUN]
    assert found != [by_hand.step([n] * 3, r, now).tolist() for n, r, _, now in RUN]


def test_all_else_of_a_sample_is_trls_own(scoring):
    ours, trls = scoring(any_order()), scoring(None)
    given = group(["a"] * 3, [1.0, None, 0.0], 2, rows=[1, 1, 2], group_id=5)
    for mine, theirs in zip(ours.score(given, 3), trls.score(given, 3), strict=True):
        for field in fields(theirs):
            if field.name not in ("advantage", "metrics"):
                np.testing.assert_equal(getattr(mine, field.name), getattr(theirs, field.name))
        assert mine.metrics.items() >= {k: v for k, v in theirs.metrics.items() if v == v}.items()
        assert {name.split("/")[0] for name in mine.metrics.keys() - theirs.metrics.keys()} == {"baseline"}


def test_all_rows_of_a_conversation_get_its_advantage_and_one_without_rows_counts(scoring):
    estimator = any_order("rloo")
    samples = scoring(estimator).score(group(["a"] * 3, [1.0, 0.0, 0.0], 1, rows=[2, 0, 1]), 1)
    assert [sample.advantage for sample in samples] == [1.0, 1.0, -0.5]
    assert [len(sample.input_ids) for sample in samples] == [3, 3, 5]


def test_a_conversation_without_a_reward_gets_no_advantage_and_is_not_recorded(scoring):
    estimator = any_order()
    samples = scoring(estimator).score(group(["a"] * 3, [1.0, None, 0.0], 1), 1)
    assert [sample.advantage for sample in samples] == [1.0, 0.0, -1.0]
    assert state_of(estimator, ["a"]) == [[(99.0, 2.0, 1.0)]]
    nothing = scoring(estimator).score(group(["a"] * 2, [None, None], 2), 2)
    assert [sample.advantage for sample in nothing] == [0.0, 0.0]
    assert state_of(estimator, ["a"]) == [[(99.0, 2.0, 1.0)]]


def test_what_samples_bring_along_is_the_history_of_the_worker(scoring):
    worker, trainer = any_order(), any_order()
    loop, carried = scoring(worker), []
    for turn, (name, rewards, version, now) in enumerate(RUN):
        rows = [0, 0, 0] if turn == 1 else None  # a group without a row waits for the next one
        samples = loop.score(group([name] * 3, rewards, version, rows=rows), now)
        carried.append(deltas(samples))
        assert not any(isinstance(sample, RecordedSample) for sample in samples[1:])
    assert [len(found) for found in carried] == [1, 0, 1, 1, 1, 1]
    for found in reversed(carried):  # in whatever order
        for delta in found:
            trainer.merge(delta)
    assert state_of(trainer) == state_of(worker)
    assert trainer.last_step == worker.last_step == 5


def test_what_a_group_brings_along_is_of_its_own_size_however_long_the_run(scoring):
    loop, sizes = scoring(any_order("kae:bandwidth=1000")), []
    for version in range(60):
        samples = loop.score(group([f"q{version % 20}"] * 8, [1.0, 0.0] * 4, version), version)
        sizes += [len(sample.delta) for sample in samples if isinstance(sample, RecordedSample)]
    assert len(sizes) == 60 and max(sizes) < 2400  # bytes
    assert max(sizes) - min(sizes) < 16  # digits of the step and of the delta's number


def test_what_an_estimator_knew_before_is_not_sent_again(scoring):
    warm = any_order()
    warm.step(["a", "a"], [1.0, 0.0], 1)
    (delta,) = deltas(scoring(warm).score(group(["a"] * 2, [1.0, 1.0], 2), 2))
    assert (delta.step.tolist(), delta.sums["count"].tolist()) == ([2], [2.0])


def test_a_group_that_trl_drops_as_stale_is_in_the_history(scoring):
    loop, trainer, queue = scoring(any_order()), any_order(), Queue()
    for name, rewards, version, now in RUN[:3]:
        for sample in loop.score(group([name] * 3, rewards, version), now):
            queue.put(sample)
    metrics = defaultdict(list)
    source = RecordingQueue(queue, trainer.merge)
    dataset = RolloutQueueDataset(source, lambda: 4, lambda age: None, 1.0, metrics, max_staleness=1)
    first = next(iter(dataset))
    assert len(metrics["sample/dropped_stale_total"]) == 6  # both groups of version 1
    assert first["metrics"]["baseline/known_prompts"] == 1.0
    assert state_of(trainer) == [[(97.0, 3.0, 1.0), (99.0, 3.0, 1.0)], [(99.0, 3.0, 2.0)]]
    assert source.qsize() == 2


def test_completions_are_weighed_by_their_tokens_in_the_loss(scoring):
    samples = scoring(any_order("opo"), weights="length").score(group(["a"] * 3, [1.0, 0.0, 1.0], 1, rows=[1, 2, 1]), 1)
    lengths, rewards = np.array([2.0, 6.0, 4.0]), np.array([1.0, 0.0, 1.0])
    wanted = rewards - np.sum(lengths * rewards) / lengths.sum()
    assert [s.advantage for s in samples] == pytest.approx(wanted[[0, 1, 1, 2]])


def test_the_history_is_kept_by_the_column_or_by_a_hash_of_the_prompt(scoring):
    by_column, by_hash = any_order(), any_order()
    scoring(by_column).score(group(["a"] * 2, [1.0, 0.0], 1), 1)
    scoring(by_hash, prompt_id=None).score(group(["a"] * 2, [1.0, 0.0], 1), 1)
    assert state_of(by_column, ["a"]) == state_of(by_hash, [hash_prompt([{"role": "user", "content": "prompt a"}])])


def test_ids_that_cannot_be_right_raise(scoring):
    given = group(["a"] * 2, [1.0, 0.0], 1)
    with pytest.raises(UnstablePromptIds, match=r"'uid'.*question_id, reward"):
        scoring(any_order(), prompt_id="uid").score(given, 1)
    given.prompts[1] = [{"role": "user", "content": "an environment's own words"}]
    with pytest.raises(UnstablePromptIds, match="names two prompts"):
        scoring(any_order()).score(given, 1)
    samples = scoring(any_order(), check=False).score(given, 1)
    assert [sample.advantage for sample in samples] == [1.0, -1.0]
