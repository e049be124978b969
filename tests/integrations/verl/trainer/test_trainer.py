"""The V1 trainers on verl's real transfer queue: right numbers for padded, reordered batches, and right refusals."""

import numpy as np
import pytest
import torch
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import parse_method
from kaestat.integrations.shared import conformance
from tests.helpers.tiny_verl import SEPARATE, QueueAdapter, balance, compute, make_trainer, put, sample


def groups(step, n_prompts=5, seed=0):
    """Ragged groups of 1-3 completions, random names: (uid, session, prompt, reward, length) of each completion."""
    rng = np.random.default_rng([seed, step])
    found = []
    for prompt in rng.permutation(8)[:n_prompts]:
        uid = f"{rng.integers(1 << 60):016x}"
        for session in range(rng.integers(1, 4)):
            found.append((uid, session, int(prompt), float(rng.random() < (prompt + 1) / 9), int(rng.integers(1, 6))))
    return found


def samples_of(completions):
    return [
        sample(uid, session, 0, f"What is {prompt} + 1?", prompt, reward, length)
        for uid, session, prompt, reward, length in completions
    ]


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conforms(queue, check):
    check(lambda estimator: QueueAdapter(queue, estimator))


@pytest.mark.parametrize(
    "specification",
    [
        "kae:bandwidth=4",
        "kae:bandwidth=rate(c=2),kernel=exponential",
        "kae_eb",
        "kae_stream",
        "local_linear:bandwidth=6",
        "spo",
        "ebpo",
        "kalman",
        "kaestat_rloo",
        "pooled",
    ],
)
def test_advantages_are_the_librarys_after_verls_own_padding_and_reordering(queue, specification):
    name, _, given = specification.partition(":")
    options = [f"+algorithm.kaestat.params.{part.replace('=', '=' + chr(39), 1)}'" for part in given.split(",") if part]
    trainer = make_trainer(*options, method=name)
    method, params = parse_method(specification.removeprefix("kaestat_"))
    plain = AdvantageEstimator(method, **params)
    padded = 0
    for step in range(5):
        completions = groups(step)
        batch = put(queue, samples_of(completions))
        before = list(batch.keys)
        batch = balance(trainer, batch)
        assert batch.keys[: len(before)] != before, "verl did not reorder: the test shows nothing"
        found, _ = compute(queue, trainer, batch, step)
        ids, rewards = [c[2] for c in completions], [c[3] for c in completions]
        for key, expected in zip(before, plain.step(ids, rewards, step), strict=True):
            torch.testing.assert_close(found[key], torch.full_like(found[key], expected), rtol=1e-5, atol=1e-6)
        for key in set(batch.keys) - set(before):
            assert not found[key].any(), "a padding row has an advantage"
            padded += 1
    assert padded, "verl did not pad: the test shows nothing"


def test_a_session_of_several_outputs_is_one_completion_and_shares_its_advantage(queue):
    rows = [
        sample("u", 0, 0, "2+2=", 7, 1.0, 2),
        sample("u", 1, 1, "2+2=", 7, 0.0, 3),
        sample("u", 0, 1, "2+2=", 7, 1.0, 4),
        sample("u", 1, 0, "2+2=", 7, 0.0, 1),
        sample("u", 0, 2, "2+2=", 7, 1.0, 2),
    ]
    trainer = make_trainer()
    for step, expected in ((0, (1.0, -1.0)), (1, None)):
        found, _ = compute(queue, trainer, put(queue, rows), step)
        if expected is None:
            plain = AdvantageEstimator("kae")
            plain.step(["p"] * 2, [1.0, 0.0], 0)
            expected = plain.step(["p"] * 2, [1.0, 0.0], 1)
        for key, tokens in found.items():
            torch.testing.assert_close(tokens, torch.full_like(tokens, expected[int(key.split("_")[1])]))


@pytest.mark.parametrize(
    ("mode", "buffer", "sync_step"),
    [
        ("kaestat_sync", ReplayBuffer, 1),
        ("kaestat_colocate_async", ReplayBufferAsync, 1),
        ("kaestat_separate_async", ReplayBufferAsync, 4),
    ],
)
def test_a_trainer_of_ours_is_in_verls_mode(mode, buffer, sync_step):
    trainer = make_trainer(*SEPARATE, mode=mode)
    assert trainer.trainer_mode == trainer.config.trainer.v1.trainer_mode == mode.removeprefix("kaestat_")
    assert type(trainer.replay_buffer) is buffer
    trainer.global_steps, trainer.local_trigger_step = 3, sync_step - 1
    assert trainer.estimator_step == 3 * sync_step - 1, "two batches of one step must not have the same number"


def test_an_estimator_of_verls_gets_verls_trainer(queue):
    completions = [("u", 0, 1, 1.0, 2), ("u", 1, 1, 0.0, 3), ("v", 0, 1, 1.0, 1), ("v", 1, 1, 1.0, 1)]
    found, metrics = compute(queue, make_trainer(method="rloo"), put(queue, samples_of(completions)), 0)
    assert [tokens[0].item() for tokens in found.values()] == [1.0, -1.0, 0.0, 0.0]
    assert not metrics
