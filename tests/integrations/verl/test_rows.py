"""Rows as verl holds them, in any order, with padding and sessions of several outputs: the library's numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.prompts import Prompt, read_prompt
from kaestat.integrations.verl.rows import BatchRows, completions_of, row_advantages, row_weights

METHODS = ("kae", "kae_eb", "spo", "ebpo", "local_linear", "rloo", "james_stein")


@st.composite
def runs(draw):
    """Steps of completions: each step a list of (prompt, reward, outputs of its session)."""
    completion = st.tuples(st.integers(0, 4), st.sampled_from([0.0, 1.0, 0.25]), st.integers(1, 3))
    return draw(st.lists(st.lists(completion, min_size=1, max_size=8), min_size=1, max_size=5))


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


@pytest.mark.parametrize("method", METHODS)
@given(steps=runs(), n_padding=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_each_row_has_the_advantage_of_its_completion(method, steps, n_padding, seed):
    rng = np.random.default_rng(seed)
    watched, plain = TrainerSession(AdvantageEstimator(method)), AdvantageEstimator(method)
    for step, completions in enumerate(steps):
        rows, numbers, rewards = rows_of(completions, n_padding, rng)
        found = row_advantages(watched, rows, step, list(rows.uids), rewards, None)
        prompts, plain_rewards, _ = zip(*completions, strict=True)
        expected = plain.step([f"id{prompt}" for prompt in prompts], plain_rewards, step)
        for number, advantage in zip(numbers, found.tolist(), strict=True):
            assert advantage == pytest.approx(0.0 if number is None else expected[number], rel=1e-5, abs=1e-6)


class RowsAdapter:
    """Conformance rows as verl's batches hold them; what a batch needs of verl itself is tested where verl is."""

    def __init__(self, estimator):
        self.session = TrainerSession(estimator)

    def rows(self, rows):
        prompts = [
            None if padding else read_prompt("extra_info.id", "", {} if key is None else {"id": key}, text)
            for text, key, padding in zip(rows.prompts, rows.ids, rows.padding, strict=True)
        ]
        return BatchRows(rows.uids, tuple(prompts), np.arange(len(prompts)), rows.padding)

    def advantages(self, rows):
        given = self.rows(rows), rows.step, list(rows.uids), torch.tensor(rows.rewards), None, rows.version
        return row_advantages(self.session, *given).numpy()

    late_advantages = advantages

    def advantages_beside(self, rows, dropped):
        found = self.advantages(rows)
        columns = completions_of(self.session, self.rows(dropped), dropped.rewards, None)
        self.session.observe(dropped.rewards, dropped.step, version=dropped.version, **columns)
        return found

    def state(self):
        return self.session.state_dict()

    def restore(self, state):
        self.session.load_state_dict(state)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_rows_conform(check):
    check(RowsAdapter)


def test_advantages_come_back_as_verl_gave_the_rewards():
    rows = BatchRows(("u", "u"), (Prompt(1, "h"),) * 2, np.arange(2), np.zeros(2, dtype=bool))
    watched = TrainerSession(AdvantageEstimator("kae"))
    found = row_advantages(watched, rows, 0, ["u", "u"], torch.tensor([1.0, 0.0]).half(), None)
    assert found.dtype == torch.float16 and found.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("index", [None, ["u", "v"], ["v", "u", "u"]])
def test_rows_that_are_not_those_of_the_batch_are_refused(index):
    rows = BatchRows(("v", "u"), (Prompt(1, "h"),) * 2, np.arange(2), np.zeros(2, dtype=bool))
    with pytest.raises(ValueError, match="other rows than those of this batch"):
        row_advantages(TrainerSession(AdvantageEstimator("kae")), rows, 0, index, torch.ones(2), None)


@given(steps=runs(), n_padding=st.integers(0, 3), seed=st.integers(0, 2**32 - 1))
def test_a_completion_weighs_what_the_outputs_of_its_session_weigh_together(steps, n_padding, seed):
    rng = np.random.default_rng(seed)
    watched, plain = TrainerSession(AdvantageEstimator("kae"), weights="length"), AdvantageEstimator("kae")
    for step, completions in enumerate(steps):
        rows, numbers, rewards = rows_of(completions, n_padding, rng)
        weights = torch.tensor(rng.integers(1, 9, len(numbers)))
        found = row_advantages(watched, rows, step, list(rows.uids), rewards, weights)
        together = np.zeros(len(completions))
        for number, weight in zip(numbers, weights.tolist(), strict=True):
            if number is not None:
                together[number] += weight
        prompts, plain_rewards, _ = zip(*completions, strict=True)
        expected = plain.step([f"id{prompt}" for prompt in prompts], plain_rewards, step, weights=together)
        for number, advantage in zip(numbers, found.tolist(), strict=True):
            assert advantage == pytest.approx(0.0 if number is None else expected[number], rel=1e-5, abs=1e-6)


def test_weights_of_rows_are_sums_over_the_tokens_that_verl_trains_on():
    mask, norms = torch.tensor([[1, 1, 0], [1, 0, 0]]), torch.tensor([[0.5, 0.25, 9.0], [2.0, 9.0, 9.0]])
    assert row_weights("none", mask, None) is None
    assert row_weights("length", mask, None).tolist() == [2, 1]
    assert row_weights("score_norm", mask, norms).tolist() == [0.75, 2.0]
