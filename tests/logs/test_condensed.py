"""Logs of few distinct rewards are served by how often each occurs: the same risks as completion by completion."""

import numpy as np
import pytest

from kaestat import RewardLog, make_baseline, methods
from kaestat.baselines.reward_range import on_range
from kaestat.logs import scoring
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import risk_baseline
from kaestat.logs.scoring import Measure, Scored, visit_risks

MADE = {name: make_baseline(name) for name in methods()}
COUNTED = [
    name for name, made in MADE.items() if made.counts_suffice and not (made.missing_input or made.needs_weights)
]


def ragged(values, seed=0):
    """Groups of one to seven completions, some of them all alike, prompts that come and go."""
    rng = np.random.default_rng(seed)
    prompt, step, reward = [], [], []
    for now in range(12):
        for who in rng.choice(9, size=rng.integers(2, 8), replace=False):
            size = int(rng.integers(1, 8))
            prompt += [int(who)] * size
            step += [now * int(rng.integers(1, 3)) if now < 1 else now] * size
            reward += list(rng.choice(values, size=size)) if rng.random() < 0.7 else [values[0]] * size
    return RewardLog(prompt, step, reward)


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.1, 1.0), (-1.0, 1.0)])
@pytest.mark.parametrize("method", [*COUNTED, "kae:bandwidth=3", "local_linear:bandwidth=4"])
def test_counting_equal_rewards_changes_no_risk(method, values, monkeypatch):
    log = ragged(values)
    row = Scored(method, on_range(risk_baseline(method), *reward_range(log)))
    assert log.prompt_units.condensed.times is not None
    found = visit_risks(log, row, Measure(absolute=False))
    monkeypatch.setattr(scoring, "_counts_suffice", lambda *_: False)
    expected = visit_risks(log, row, Measure(absolute=False))
    precise = 1e-5 if method == "bayes_filter" else 1e-10  # single precision
    np.testing.assert_allclose(found, expected, rtol=precise, atol=precise)
