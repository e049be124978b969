"""What the filter makes of a move of all values at once."""

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import filter_shock
from kaestat.baselines.filter_shock import shifted


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.6), (0.3, 10.6), (2.3, 8.6), (20.0, 100.0)])
@pytest.mark.parametrize("by", [-2.5, -0.5, 0.5, 2.5])
def test_a_shock_moves_a_belief_as_far_as_its_values(a, b, by):
    """Where values may be near 0 or 1, the mean moves less: by 2.5 logits from .33 to .60, not to .86."""
    logit = np.linspace(-120, 120, 100_001)
    weight = np.exp(a * logit - (a + b) * np.logaddexp(0, logit))
    exact = (weight / (1 + np.exp(-logit - by))).sum() / weight.sum()
    beta = np.array([[[a]], [[b]]])
    after = shifted(beta, np.array([[by]]))
    assert after[0] / sum(after) == pytest.approx(exact, abs=0.01)
    np.testing.assert_allclose(shifted(after, np.array([[-by]])), beta, rtol=0.15)  # it tells nothing of the values


@pytest.mark.parametrize("turns", [1, 4])
def test_a_shock_is_known_at_once_better_later_and_to_prompts_that_come_later(turns):
    """Groups of 64 prompts take turns, with one completion each; errors before the shock are .016."""
    rng = np.random.default_rng(14)
    logit, error = rng.standard_normal((48, turns, 64)) - 1.25, []
    baseline, state, past = make_baseline("bayes_filter"), [None] * turns, [None] * turns
    carry = baseline.initial_carry()
    for t in range(8 * turns):
        now, at = t // turns, t % turns
        value = 1 / (1 + np.exp(-logit[:, at] - 1.25 * (now >= 6)))
        reward = (rng.random(value.shape) < value).astype(float)[..., None]
        seen = np.ones((48, 64, min(now, 1)))
        before = seen if past[at] is None else past[at]
        visits = Visits(turns * seen, seen, before, before, state=state[at])
        served = baseline.serve(Groups(reward), visits, step=t, carry=carry)
        carry, state[at], past[at] = served.carry, served.state, reward
        error.append(((served.values - value[..., None]) ** 2).mean())
    assert error[6 * turns] < (0.047 if turns == 1 else 0.056)  # .077 where no shock can be
    assert turns == 1 or np.mean(error[6 * turns + 1 : 7 * turns]) < 0.033  # where each step is on its own .046
    assert np.mean(error[7 * turns :]) < 0.0275


def errors_in_turns(logit: np.ndarray, turns: int) -> np.ndarray:
    """Error at each step; ``turns`` parts of the prompts take turns, with one completion each; logit (T, R, P)."""
    rng, baseline, state, errors = np.random.default_rng(14), make_baseline("bayes_filter"), [None] * turns, []
    value = 1 / (1 + np.exp(-logit))
    reward = (rng.random(value.shape) < value).astype(float)
    carry = baseline.initial_carry()
    for t in range(len(value) * turns):
        at = np.s_[..., t % turns :: turns]
        now, before = reward[t // turns][at], reward[max(t // turns - 1, 0)][at][..., None][..., : t // turns]
        visits = Visits(turns * np.ones_like(before), np.ones_like(before), before, before, state=state[t % turns])
        served = baseline.serve(Groups(now[..., None]), visits, step=t, carry=carry)
        carry, state[t % turns] = served.carry, served.state
        errors.append(((served.values[..., 0] - value[t // turns][at]) ** 2).mean())
    return np.array(errors)


def test_steps_of_few_rewards_bring_up_no_shock(monkeypatch):
    """A fixed chance per step, not per return, has 1.08 times the error where no shock can be."""
    logit = np.broadcast_to(np.random.default_rng(15).standard_normal((64, 40)), (16, 64, 40))
    errors = []
    for probability in (filter_shock.SHOCK, 0.0):
        monkeypatch.setattr(filter_shock, "SHOCK", probability)
        errors.append(errors_in_turns(logit, 4)[8:].mean())
    assert errors[0] < 1.04 * errors[1]


def test_a_log_without_a_returning_prompt_keeps_what_is_left_of_a_shock_beside_others():
    """What is served for several logs at once is what each alone gets."""
    rng, baseline = np.random.default_rng(0), make_baseline("bayes_filter")
    logit = rng.standard_normal((2, 12)) - 1.25 + 2.5 * (np.arange(12) >= 8)[:, None, None]
    reward, answers = (rng.random((12, 2, 12)) < 1 / (1 + np.exp(-logit))).astype(float)[..., None], []
    for of in (slice(0, 2), slice(1, 2)):
        carry, state, past = baseline.initial_carry(), None, None
        for step, now in enumerate(reward[:, of]):
            seen = np.ones_like(now) * (step > 0)
            seen[-1] *= step != 9  # all prompts of the last log are new
            visits = Visits.empty(Groups(now)) if past is None else Visits(seen, seen, past, past, state=state)
            served = baseline.serve(Groups(now), visits, step=step, carry=carry)
            carry, state, past = served.carry, served.state, now
        answers.append((served.values[-1], carry["left"][-1]))
    for both, alone in zip(*answers, strict=True):
        np.testing.assert_allclose(both, alone, atol=1e-6)
