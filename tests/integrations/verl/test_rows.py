"""Rows as verl holds them, in any order, with padding and sessions of several outputs: the library's numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.prompts import Prompt
from kaestat.integrations.verl.rows import BatchRows, row_advantages, row_weights

METHODS = ("kae", "kae_eb", "spo", "ebpo", "local_linear", "rloo", "james_stein")


@st.composite
def runs(draw):
    """Steps of completions: each step a list of (prompt, reward, outputs of its session)."""
    completion = st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 0.25]), st.integers(1, 3))
    pair = [(0, 0.0, 1), (0, 1.0, 1)]  # methods of groups refuse a first step without one
    return [pair, *draw(st.lists(st.lists(completion, min_size=1, max_size=8), max_size=5))]


def rows_of(completions, n_padding, rng):
    """The rows in random order; where each completion's outputs went; rewards and response lengths."""
    outputs = [(number, output) for number, (*_, count) in enumerate(completions) for output in range(count)]
    outputs += [(None, k) for k in range(n_padding)]
    outputs = [outputs[k] for k in rng.permutation(len(outputs))]
    place = {pair: row for row, pair in enumerate(outputs)}
    uids, prompts, final, rewards = [], [], [], []
    for row, (number, _) in enumerate(outputs):
        prompt, reward, count = completions[number or 0]  # padding copies row 0
        uids.append("pad0" if number is None else f"{prompt:04x}")
        prompts.append(None if number is None else Prompt(f"id{prompt}", f"hash{prompt}"))
        final.append(row if number is None else place[number, count - 1])
        # Only the final output's reward may count, and never that of padding.
        rewards.append(reward if number is not None and final[-1] == row else rng.random())
    rows = BatchRows(
        uids=tuple(uids),
        prompts=tuple(prompts),
        final=np.array(final),
        padding=np.array([number is None for number, _ in outputs]),
    )
    return rows, [number for number, _ in outputs], torch.tensor(rewards)


@pytest.mark.filterwarnings("ignore:.*no group has more than one completion")
@pytest.mark.parametrize(("method", "weights"), [*((method, "none") for method in METHODS), ("kae", "length")])
@given(steps=runs(), n_padding=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_each_row_has_the_advantage_of_its_completion(method, weights, steps, n_padding, seed):
    """Which weighs what the outputs of its session weigh together."""
    rng = np.random.default_rng(seed)
    watched, plain = TrainerSession(AdvantageEstimator(method), weights=weights), AdvantageEstimator(method)
    for step, completions in enumerate(steps):
        rows, numbers, rewards = rows_of(completions, n_padding, rng)
        of_rows = rng.integers(1, 9, len(numbers))
        together = np.bincount([n for n in numbers if n is not None], of_rows[[n is not None for n in numbers]])
        weighs = watched.weighs
        given = torch.tensor(of_rows) if weighs else None
        found = row_advantages(watched, rows, step, list(rows.uids), rewards, given)
        prompts, plain_rewards, _ = zip(*completions, strict=True)
        ids = [f"id{prompt}" for prompt in prompts]
        expected = plain.step(ids, plain_rewards, step, weights=together if weighs else None)
        for number, advantage in zip(numbers, found.tolist(), strict=True):
            assert advantage == pytest.approx(0.0 if number is None else expected[number], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("index", [None, ["u", "v"], ["v", "u", "u"]])
def test_rows_that_are_not_those_of_the_batch_are_refused(index):
    rows = BatchRows(("v", "u"), (Prompt(1, "h"),) * 2, np.arange(2), np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match="other rows than those of this batch"):
        row_advantages(TrainerSession(AdvantageEstimator("kae")), rows, 0, index, torch.ones(2), None)


def test_weights_of_rows_are_sums_over_the_tokens_that_verl_trains_on():
    mask, norms = torch.tensor([[1, 1, 0], [1, 0, 0]]), torch.tensor([[0.5, 0.25, 9.0], [2.0, 9.0, 9.0]])
    assert row_weights("none", mask, None) is None
    assert row_weights("length", mask, None).tolist() == [2, 1]
    assert row_weights("score_norm", mask, norms).tolist() == [0.75, 2.0]
