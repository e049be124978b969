"""What sampling would have been worth, from a log alone."""

import numpy as np
import pandas as pd
import pytest

from kaestat import RewardLog
from kaestat.logs.sampling_risk import SAMPLING_COLUMNS, sampling_risk
from kaestat.sampling import POLICIES, PromptSampler


def made(values: np.ndarray, group_size: int, seed: int) -> pd.DataFrame:
    """A log of prompts with values (T, P), all of them at every step."""
    steps, prompts = values.shape
    rng = np.random.default_rng(seed)
    reward = (rng.random((steps, prompts, group_size)) < values[..., None]).astype(float)
    step, prompt = (np.repeat(a.ravel(), group_size) for a in np.indices(values.shape))
    return pd.DataFrame({"prompt": prompt, "step": step, "reward": reward.ravel()})


def values_of(steps: int, prompts: int, seed: int = 0) -> np.ndarray:
    return np.tile(np.random.default_rng(seed).beta(0.5, 0.5, prompts), (steps, 1))


def slowly(frame: pd.DataFrame, policy: str, part: float, floor: float, seed: int) -> float:
    """Noise by loops, with the same draws."""
    group_size = int(frame.groupby(["step", "prompt"]).size().max())
    log = RewardLog.from_frame(frame)
    sampler = PromptSampler(
        log.prompts,
        group_size,
        policy=policy,
        most=group_size,
        floor=floor,
        correction="full" if floor else "none",
        seed=seed,
    )
    rng = np.random.default_rng([seed, 1])
    noise = 0.0
    for step, rows in log.frame.groupby("step"):
        rewards = {log.prompts[code]: group["reward"].to_numpy() for code, group in rows.groupby("prompt")}
        names = list(rewards)
        budget = round(part * len(rows))
        draw = sampler.draw(int(step), among=names, budget=budget)
        for place, name in enumerate(names):
            b, nu = draw.plan.prediction.value[place], draw.plan.expected[place]
            noise += budget * np.mean((rewards[name] - b) ** 2) / nu / len(names) ** 2
        ids, drawn = [], []
        for name, n in zip(draw.prompt_ids, draw.counts, strict=True):
            chosen = rng.permutation(len(rewards[name]))[:n]
            ids += [name] * int(n)
            drawn += rewards[name][chosen].tolist()
        sampler.observe(ids, drawn, int(step))
    return noise


@pytest.mark.parametrize("policy", ["neyman", "mopps"])
def test_the_worth_is_that_of_the_slow_reference(policy):
    frame = made(values_of(6, 10), 4, seed=1)
    frame = frame[(frame["prompt"] + frame["step"]) % 4 > 0]  # steps of 7 and of 8 prompts
    found = sampling_risk(RewardLog.from_frame(frame), [policy], floor=0.2, seed=7, n_boot=0)
    expected = slowly(frame, "uniform", 0.5, 0.0, 7) / slowly(frame, policy, 0.5, 0.2, 7)
    np.testing.assert_allclose(found["worth"], expected, rtol=1e-9)


def test_uniform_is_worth_itself_and_neyman_more_where_values_differ():
    table = sampling_risk(made(values_of(20, 60), 8, seed=2), ["uniform", "neyman", "dapo"], n_boot=200)
    assert list(table.columns) == SAMPLING_COLUMNS
    by = table.set_index("policy")
    assert by.loc["uniform", "worth"] == by.loc["dapo", "worth"] == 1
    assert by.loc["neyman", "ci_low"] > 1.05 and by.loc["neyman", "ci_high"] < 2.5
    assert by.loc["neyman", "dead"] < by.loc["uniform", "dead"]
    assert by.loc["neyman", "signal"] > 1.2
    assert by.loc["uniform", "effective"] == 1 and by.loc["neyman", "largest_correction"] <= 10


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (-1, 0), (0, 10), (-0.3, 0.4)])
@pytest.mark.parametrize("policy", POLICIES)
def test_figures_do_not_depend_on_the_coding_of_rewards(policy, low, high):
    frame, groups = made(values_of(8, 20), 4, seed=5), policy != "knapsack" and high == 10
    coded = frame.assign(reward=low + (high - low) * frame["reward"])
    plain, other = (sampling_risk(each, [policy], groups=groups, n_boot=40) for each in (frame, coded))
    pd.testing.assert_frame_equal(other, plain, rtol=1e-9)


def test_a_policy_that_leaves_prompts_out_has_no_such_worth():
    table = sampling_risk(made(values_of(10, 40), 4, seed=7), ["near_half", "uniform"], floor=0.0, n_boot=40)
    assert table["worth"].tolist() == [0.0, 1.0] and table["dead"][0] < 0.9 * table["dead"][1]
    assert table["se"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(policies=[]), "policies is empty"),
        (dict(policies=["best"]), "unknown 'best'"),
        (dict(policies=["knapsack"], groups=True), "group_size"),
        (dict(budget=0), "budget"),
        (dict(budget=2), "budget"),
        (dict(predictor="rloo"), "keeps no history"),
        (dict(log=made(values_of(1, 4), 2, seed=8)), "occurs once"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampling_risk(**({"log": made(values_of(3, 4), 2, seed=8)} | arguments))
