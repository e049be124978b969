"""What baselines say of pooling prompts is what changing another prompt's rewards finds."""

from __future__ import annotations

import numpy as np
import pytest

from kaestat import RewardLog, make_baseline
from kaestat.logs.replay import replay
from kaestat.smoothing.selectors import SELECTORS
from tests.helpers.estimators import PARAMETERS, UNWEIGHTED

PROMPTS, STEPS, GROUP = 12, 10, 4
CASES = [(name, {}) for name in UNWEIGHTED] + [("kae", {"bandwidth": name}) for name in SELECTORS]


def log(shift: bool) -> RewardLog:
    """Every prompt at every step; with ``shift`` the rewards of all but the first are others."""
    rng = np.random.default_rng(3)
    value = np.linspace(0.2, 0.8, STEPS)[None, :, None] * rng.uniform(0.5, 1, (PROMPTS, 1, 1))
    draws = rng.random((2, PROMPTS, STEPS, GROUP))
    reward = (draws[0] < value).astype(float)
    if shift:
        reward[1:] = (draws[1] < np.abs(np.sin(7 * value)))[1:]
    prompt, step, _ = np.indices(reward.shape)
    return RewardLog(prompt.ravel(), step.ravel(), reward.ravel())


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda part: str(part))
def test_the_flag_is_what_changing_the_other_prompts_finds(name, params):
    baseline = make_baseline(name, **PARAMETERS.get(name, {}), **params)
    plain, shifted = log(False), log(True)
    first = ((plain.frame["prompt"] == 0) & (plain.frame["step"] > 0)).to_numpy()
    np.testing.assert_array_equal(plain.frame["reward"][first], shifted.frame["reward"][first])
    before, after = replay(plain, baseline)[0][first], replay(shifted, baseline)[0][first]
    assert (np.abs(before - after).max() > 1e-9) == baseline.pools_prompts


def test_a_subset_of_a_log_is_the_log_of_those_prompts():
    whole = log(False)
    kept = np.arange(PROMPTS) % 3 != 0
    rows = kept[whole.frame["prompt"]]
    frame = whole.frame[rows]
    fresh = RewardLog(np.array(whole.prompts)[frame["prompt"]], frame["step"], frame["reward"])
    part = whole.subset(kept)
    assert part.prompts == fresh.prompts
    np.testing.assert_array_equal(part.frame.to_numpy(), fresh.frame.to_numpy())
    np.testing.assert_array_equal(part.prompt_units.total, fresh.prompt_units.total)
    with pytest.raises(ValueError, match="kept is False for every prompt"):
        whole.subset(np.zeros(PROMPTS, dtype=bool))
