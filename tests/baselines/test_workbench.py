"""`kaestat.check` names each fault that is planted, and no other; every method of ours passes."""

from importlib.util import find_spec

import numpy as np
import pytest

import kaestat
from kaestat import make_baseline, methods, value_risk
from kaestat.baselines import Baseline
from kaestat.baselines.registry import parse_method
from kaestat.baselines.workbench import CHECKS, FaultyBaseline
from kaestat.smoothing.selectors import SELECTORS
from tests.helpers.estimators import PARAMETERS
from tests.helpers.made_logs import small_run


class Sound(Baseline):
    """Mean of the prompt's past rewards, 1/2 without any."""

    def values(self, groups, visits, *, step, carry=None):
        return self.mean(groups, visits) + 0 * groups.reward

    def mean(self, groups, visits):
        xp = groups.xp
        count = xp.sum(visits.count, axis=-1, keepdims=True)
        total = xp.sum(visits.total, axis=-1, keepdims=True)
        return xp.where(count > 0, total / xp.clip(count, 1.0, None), 0.5 + 0 * total)


class OwnReward(Sound):
    def values(self, groups, visits, *, step, carry=None):
        return 0.9 * groups.reward


class LeaveOneOut(Sound):
    def values(self, groups, visits, *, step, carry=None):
        return groups.xp.sum(groups.carried, axis=-1, keepdims=True) / groups.count + 0 * groups.reward

    def own_derivative(self, groups, visits, *, step, carry=None):
        return 1 / groups.count

    def leave_one_out(self):
        return Promise()


class Promise(LeaveOneOut):
    def own_derivative(self, groups, visits, *, step, carry=None):
        return 0.0


class Shape(Sound):
    def values(self, groups, visits, *, step, carry=None):
        return self.mean(groups, visits)


class Finite(Sound):
    def mean(self, groups, visits):
        with np.errstate(invalid="ignore"):
            return groups.xp.sum(visits.total, axis=-1, keepdims=True) / groups.xp.sum(
                visits.count, axis=-1, keepdims=True
            )


class Padding(Sound):
    def values(self, groups, visits, *, step, carry=None):
        xp, others = groups.xp, groups.reward.shape[-1] - 1
        total = xp.sum(groups.reward, axis=-1, keepdims=True)
        return (total - groups.reward) / max(others, 1)


class VisitPadding(Sound):
    def mean(self, groups, visits):
        xp = groups.xp
        rates = visits.total / xp.clip(visits.count, 1.0, None)
        return xp.sum(rates, axis=-1, keepdims=True) / max(rates.shape[-1], 1)


class Horizon(Sound):
    horizon = 0.0


class Batches(Sound):
    def values(self, groups, visits, *, step, carry=None):
        xp = groups.xp
        rates = xp.sum(self.mean(groups, visits), axis=0, keepdims=True)  # meant for prompts: of steps it is another
        return rates + 0 * groups.reward

    pools_prompts = True


class PoolsPrompts(Sound):
    def values(self, groups, visits, *, step, carry=None):
        mean = self.mean(groups, visits)
        return (mean + groups.pooled(mean) / groups.reward.shape[-2]) / 2 + 0 * groups.reward


class Torch(Sound):
    def values(self, groups, visits, *, step, carry=None):
        total, count = (np.sum(np.asarray(part), axis=-1, keepdims=True) for part in (visits.total, visits.count))
        return np.where(count > 0, total / np.maximum(count, 1), 0.5) + 0 * np.asarray(groups.reward)


FAULTS = {
    OwnReward: "own_reward",
    LeaveOneOut: "own_reward",
    Shape: "shape",
    Finite: "finite",
    Padding: "padding",
    VisitPadding: "padding",
    Horizon: "horizon",
    Batches: "batches",
    PoolsPrompts: "pools_prompts",
    Torch: "torch",
}


@pytest.mark.parametrize(("baseline", "name"), FAULTS.items())
def test_a_planted_fault_gets_its_own_name(baseline, name):
    if name == "torch":
        pytest.importorskip("torch")
    with pytest.raises(FaultyBaseline, match=f"- {name}: ") as caught:
        kaestat.check(baseline())
    assert list(caught.value.faults) == [name]


OTHERS = [f"{name}:bandwidth=forward_cv" for name in ("kae_eb", "kae_stream", "local_linear")]


@pytest.mark.parametrize("method", [*methods(), *(f"kae:bandwidth={name}" for name in SELECTORS), *OTHERS])
def test_every_method_of_ours_passes(method):
    with_torch = find_spec("torch") is not None
    name, params = parse_method(method)
    passed = kaestat.check(make_baseline(name, **params, **PARAMETERS.get(name, {})))
    assert passed == tuple(each.__name__ for each in CHECKS if with_torch or each.__name__ != "torch")


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(TypeError, match="must be a Baseline, got str"):
        kaestat.check("kae")
    with pytest.raises(ValueError, match="Oracle needs"):
        kaestat.check(make_baseline("oracle"))
    with pytest.raises(ValueError, match="4 different ids"):
        kaestat.check(Sound(), prompts="aabc")


@pytest.mark.parametrize("score", [lambda *a: value_risk(*a, n_boot=0), kaestat.risk_differences])
def test_a_log_refuses_a_cheating_baseline(score):
    with pytest.raises(FaultyBaseline, match=r"own_reward: .* by 0\.9 per unit of reward, but own_derivative says 0"):
        score(small_run(n_prompts=10, n_epochs=4), [OwnReward()])


class Lookup(Sound):
    """Knows the log's prompts alone."""

    def values(self, groups, visits, *, step, carry=None):
        known = {prompt: 0.5 for prompt in range(20)}
        return groups.xp.asarray([[known[prompt]] for prompt in groups.prompt_ids]) + 0 * groups.reward


def test_a_log_checks_a_baseline_on_its_own_prompts():
    with pytest.raises(FaultyBaseline, match="raises KeyError"):
        kaestat.check(Lookup())
    Lookup.stepwise = True
    assert len(value_risk(small_run(n_prompts=20, n_epochs=4), [Lookup()], n_boot=0)) == 1
