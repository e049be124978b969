"""One replay of a log with and without some prompts equals replays of the smaller logs, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kaestat import RewardLog, make_baseline
from kaestat.baselines.kae import KernelBaseline
from kaestat.baselines.registry import METHODS, parse_method
from kaestat.datasets import simulated_run
from kaestat.logs import replay as module
from kaestat.logs.jackknife import jackknife_groups, replayed_interval
from kaestat.logs.replay import copies_at_once, replay, replayed
from kaestat.logs.risk import prompt_risks
from kaestat.logs.scoring import Measure, Scored, visit_risks
from kaestat.smoothing.selectors import SELECTORS

KNOWN = {
    "oracle": {"value": lambda prompts, step: [0.25] * len(prompts)},
    "cluster_blend": {"clusters": lambda prompts: [int(prompt) % 3 for prompt in prompts]},
    "outside_value": {"outside": lambda prompts, step: [0.1 * (int(prompt) % 7) for prompt in prompts]},
    "remax": {"greedy": lambda prompts, step: [1.0] * len(prompts)},
    "critic": {"features": lambda prompts: np.array([[float(prompt), np.sin(prompt)] for prompt in prompts])},
}
PROMPTS, STEPS = 13, 10
SPECIFICATIONS = [
    *(name for name, method in METHODS.items() if not method.baseline.needs_weights),
    "reinforce++ left out",
    "kae:kernel=exponential",
    "kae_eb:bandwidth=4",
    "kae_eb:kernel=exponential,bandwidth=auto",
    "kae_stream:bandwidth=auto",
    "james_stein:paper_factor=true",
]
SELECTED = [f"kae:bandwidth={name}" for name in SELECTORS if name != "fixed"]


def make(specification: str):
    name, params = parse_method(specification.removesuffix(" left out"))
    baseline = make_baseline(name, **params, **KNOWN.get(name, {}))
    return baseline.leave_one_out() if specification.endswith("left out") else baseline


def ragged_log(seed: int, streams: bool = False, binary: bool = True) -> RewardLog:
    """Groups of 0 to 5 completions; prompts that come late, that vanish, and some that occur once; gaps between steps.

    Prompts 0 and 1 have the first and the last steps for themselves.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for t, step in enumerate(np.cumsum(rng.integers(1, 4, STEPS))):
        for prompt in range(PROMPTS):
            alone = prompt < 2 and (t < 2 or t >= STEPS - 2)
            within = 2 + prompt % 2 <= t < STEPS - 2 - prompt % 3 and rng.random() < 0.8
            if not (t == prompt - 7 if prompt >= PROMPTS - 3 else alone or within):
                continue
            size = int(rng.integers(1, 6))
            value = 1 / (1 + np.exp(-(prompt - 7) / 3 - 0.1 * t))
            reward = rng.random(size) < value if binary else rng.choice([0.0, 0.25, 1.0], size)
            rows += [(prompt, step, r, g % 2) for g, r in enumerate(reward)]
    prompt, step, reward, group = map(list, zip(*rows, strict=True))
    return RewardLog(prompt, step, reward, group if streams else None)


def even_log(seed: int) -> RewardLog:
    """Full groups of every prompt at every step, where arrays have no padding and lags are shared."""
    rng = np.random.default_rng(seed)
    prompt, step, _ = np.indices((PROMPTS, STEPS, 4))
    reward = rng.random(prompt.shape) < 1 / (1 + np.exp(-(prompt - 7) / 3 - 0.1 * step))
    return RewardLog(prompt.ravel(), step.ravel(), reward.ravel())


LOGS = {
    "ragged": ragged_log(1),
    "streams, rewards between": ragged_log(3, streams=True, binary=False),
    "even": even_log(4),
}


def groups_left_out(log: RewardLog, seed: int, n_groups: int = 3) -> np.ndarray:
    """All prompts, those without each of some groups, without the first two, and no more than three."""
    number = np.asarray(log.prompts)
    group = np.random.default_rng(seed).permutation(len(number)) % n_groups
    return np.stack([number >= 0, *(group != k for k in range(n_groups)), number >= 2, number % 5 == 1])


def together(log: RewardLog, baseline, kept: np.ndarray) -> np.ndarray:
    """Values and own derivatives, (2, L, N)."""
    found = np.full((2, len(kept), len(log.frame)), np.nan)
    for part in replayed(log, baseline, kept=kept):
        found[0, :, part.completions], found[1, :, part.completions] = part.values, part.own_derivatives
    return found


@pytest.mark.parametrize(
    ("specification", "name"),
    [
        *zip(SPECIFICATIONS, itertools.cycle(LOGS), strict=False),  # each method on one of the logs
        *itertools.product(SELECTED, ["ragged"]),
        *itertools.product(["kae_eb", "bayes_filter", "ebpo"], LOGS),
    ],
)
def test_one_replay_equals_those_of_the_logs_without_some_prompts(specification, name):
    log, baseline = LOGS[name], make(specification)
    kept = groups_left_out(log, 7)
    found = together(log, baseline, kept)
    assert np.isfinite(found).all()
    for copy, some in enumerate(kept[:1] if scores_with_all(baseline) else kept):
        here = some[log.frame["prompt"]]
        np.testing.assert_allclose(found[:, copy, here], replay(log.subset(some), baseline), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@given(
    specification=st.sampled_from(["ebpo", "kae", "kae_eb", "bayes_filter", "critic", "james_stein"]),
    seed=st.integers(0, 2**32 - 1),
    streams=st.booleans(),
    binary=st.booleans(),
)
@example(specification="bayes_filter", seed=209, streams=False, binary=False)  # a shock in one copy alone
@example(specification="bayes_filter", seed=19, streams=False, binary=False)  # one copy holds zeros and ones so far
def test_it_does_so_for_any_groups(specification, seed, streams, binary):
    log, baseline = ragged_log(seed, streams, binary), make(specification)
    kept, rtol = groups_left_out(log, seed), 1e-6 if specification == "bayes_filter" else 1e-9  # single precision
    found = together(log, baseline, kept)
    for copy, some in enumerate(kept[:1] if scores_with_all(baseline) else kept):
        here = some[log.frame["prompt"]]
        np.testing.assert_allclose(found[:, copy, here], replay(log.subset(some), baseline), rtol=rtol, atol=0.1 * rtol)


def scores_with_all(baseline) -> bool:
    """Whether the candidates of a learned bandwidth are scored at values for which all prompts are pooled."""
    return isinstance(baseline, KernelBaseline) and baseline.pools_values and baseline.selector.running is not None


@pytest.mark.parametrize("seed", range(3))
def test_candidates_scored_with_all_prompts_give_the_error_of_replays_one_by_one(seed):
    """The risks of the copies are those of replays of the smaller logs, within a tenth of their error; and the same
    width of intervals follows, within 5 %."""
    log = simulated_run(n_prompts=60, n_epochs=12, group_size=4, seed=seed).log
    scored = prompt_risks(log, ["kae_eb", "grpo"], again=True, seed=seed)
    group = jackknife_groups(len(log.prompts), seed=seed, n_groups=len(scored.left_out))
    without = [prompt_risks(log.subset(group != k), ["kae_eb", "grpo"]) for k in range(group.max() + 1)]
    exact, found = np.array([each.per_prompt[:, :1].mean(axis=0) for each in without]), scored.left_out[:, :1]
    whole, se = scored.per_prompt[:, 0].mean(), scored.per_prompt[:, :1].std(axis=0, ddof=1) / np.sqrt(len(group))
    assert np.abs(found - exact).max() < se / 10
    errors = [replayed_interval(whole, left, scored.apart[:, :1], se, len(group))[0] for left in (found, exact)]
    np.testing.assert_allclose(*errors, rtol=0.05)


@pytest.mark.parametrize(
    "specification", [s for s in SPECIFICATIONS + SELECTED if s != "oracle" and make(s).pools_prompts]
)
def test_prompts_that_are_left_out_do_change_the_others(specification):
    """Or else the test above could not fail."""
    log = LOGS["ragged"]
    kept = groups_left_out(log, 7)
    found = together(log, make(specification), kept)[0]
    here = kept[1][log.frame["prompt"]]
    assert np.abs(found[0, here] - found[1, here]).max() > 1e-6


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize(
    "method", ["kae", "kae:kernel=exponential", "kae:normalization=algorithm1", "kae_eb", "kae_stream", "local_linear"]
)
def test_several_bandwidths_at_once_equal_each_alone(method, name):
    log, bandwidths = LOGS[name], [1.5, 4.0, 30.0]
    parsed, params = parse_method(method)
    baseline = make_baseline(parsed, **params)
    assert isinstance(baseline, KernelBaseline)
    found = visit_risks(log, Scored(method, baseline.at_each(bandwidths)), Measure(False), copies=3)
    for k, bandwidth in enumerate(bandwidths):
        alone = make_baseline(parsed, bandwidth=bandwidth, **params)
        expected = visit_risks(log, Scored(method, alone), Measure(False))[0]
        np.testing.assert_allclose(found[k], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("specification", ["kae_eb", "bayes_filter", "james_stein"])
def test_copies_that_do_not_fit_the_memory_are_replayed_in_turns(specification, monkeypatch):
    log, baseline = LOGS["ragged"], make(specification)
    kept = groups_left_out(log, 7)
    whole = visit_risks(log, Scored(specification, baseline), Measure(False), kept=kept)
    monkeypatch.setattr(module, "LARGEST_STEP", 1)
    assert copies_at_once(log, baseline, len(kept)) == 1
    there = kept[:, log.prompt_units.visit_prompt]
    in_turns = visit_risks(log, Scored(specification, baseline), Measure(False), kept=kept)
    np.testing.assert_allclose(in_turns[there], whole[there], rtol=1e-9, atol=1e-12)
