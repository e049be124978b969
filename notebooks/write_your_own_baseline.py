# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write your own baseline
#
# A baseline in `kaestat` is a small frozen object with one method that matters, `values`. Once it is written, it works
# everywhere: on plain arrays, on a reward log, in the simulations beside all published methods, and in a trainer.
#
# You learn here
#
# - what `values` is given, and how to write it so that one formula serves a step, a log and a thousand replicates,
# - which checks catch the mistakes that such code really has,
# - how to put a baseline through a simulation with Monte Carlo errors, and on a reward log,
# - how to feed it from a training loop of your own, and how the conformance kit finds what is wrong with the loop.
#
# It needs a checkout, since the simulations are not part of the installed package.

# %%
import math
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(
    0, str(next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "simulations").is_dir()))
)

import kaestat
from kaestat.baselines import Baseline
from kaestat.baselines.kae import cold_start_value
from kaestat.core.arrays import ratio
from kaestat.datasets import simulated_run
from kaestat.integrations.shared import conformance
from simulations.bandits.paths import value_paths
from simulations.harness import RunSettings, Study, average, grid, ratio_of_means, run
from simulations.studies.best_baselines import served

plt.rcParams.update({"axes.spines.right": False, "axes.spines.top": False, "figure.dpi": 100})
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#4D4D4D"

# %% [markdown]
# ## The idea
#
# KAE's window is so many *steps* long. A prompt that is visited rarely may have no visit inside it. So count in visits
# instead: **the mean of the rest of the group and of the completions of the prompt's last `k` visits**, however long
# ago they were. Whether that is a good idea is what we want to find out.
#
# ## The code
#
# `values` gets the current groups, with rewards of shape `(..., P, G)` for `P` prompts with `G` completions each, and
# the past visits as arrays of shape `(..., P, V)`: how long ago (`lag`), how many completions (`count`), the sum of
# their rewards (`total`). Four rules make it fit everywhere:
#
# - no loops over prompts: leading axes may be replicates or the steps of a whole log,
# - a visit with `count == 0` is padding, and so are completions outside `groups.mask`; `others()` minds the
#   mask,
# - `groups.xp` is NumPy or torch, whichever the arrays are,
# - `horizon` says how far back a visit can matter, so that no more than that is stored.


# %%
@dataclass(frozen=True)
class LastVisits(Baseline):
    """Mean of the rest of the group and of the completions of the prompt's last k visits.

    Parameters
    ----------
    k : int
        Visits that count, however long ago.
    """

    k: int = 10

    def __post_init__(self):
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"k must be a whole number of at least 1, got {self.k!r}.")

    @property
    def horizon(self):
        return math.inf  # a visit of any age may be among the last k

    def values(self, groups, visits, *, step, carry=None):
        xp = groups.xp
        there = xp.astype(visits.count > 0, visits.count.dtype)  # padding may stand anywhere
        from_here_on = xp.flip(xp.cumulative_sum(xp.flip(there, axis=-1), axis=-1), axis=-1)  # oldest stands first
        counted = there * xp.astype(from_here_on <= self.k, there.dtype)
        mass = xp.sum(counted * visits.mass, axis=-1, keepdims=True)
        total = xp.sum(counted * visits.carried, axis=-1, keepdims=True)
        others_mass, others_total = groups.others()
        return ratio(total + others_total, mass + others_mass, cold_start_value(groups, "batch_mean"), xp)


# %% [markdown]
# A value is linear in the past rewards, so its weights can be read off by moving one visit's sum at a time. Here they
# are for a prompt that is visited at every step, and for one that is visited at every sixth, with four completions each
# time:


# %%
def weights_by_lag(baseline, lags):
    """Weight of one reward of each past visit in the value of the group's first completion."""
    n = len(lags)
    count, nothing = np.full((1, n), 4.0), np.zeros((1, n))
    group = kaestat.Groups(np.zeros((1, 4)))
    lag = np.array([lags], dtype=float)

    def value(total):
        return baseline.values(group, kaestat.Visits(lag=lag, count=count, total=total, total_sq=total), step=100)[0, 0]

    return np.array([value(np.eye(n)[[k]]) - value(nothing) for k in range(n)])


figure, panels = plt.subplots(1, 2, figsize=(7.5, 2.8), layout="constrained", sharey=True)
for axes, gap in zip(panels, (1, 6), strict=True):
    lags = np.arange(60, 0, -1)[::-1][gap - 1 :: gap][::-1]
    for baseline, color, marker, label in (
        (LastVisits(10), BLUE, "o", "last 10 visits"),
        (kaestat.make_baseline("kae", bandwidth=10), VERMILION, "s", "KAE, bandwidth 10 steps"),
    ):
        axes.plot(lags, weights_by_lag(baseline, lags), marker, color=color, markersize=4, label=label)
    axes.set(xlabel="lag (steps)", title="visited at every step" if gap == 1 else f"visited at every {gap}th step")
panels[0].set_ylabel("weight of one past reward")
panels[1].legend(frameon=False)
plt.show()

# %% [markdown]
# ## Does it compute what it says?
#
# First by hand, on numbers small enough for that. Two prompts; the first has three visits with padding between them,
# the second none at all, and a group of one: nothing is known of it but what the *other* prompt got.

# %%
groups = kaestat.Groups(
    reward=np.array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), mask=np.array([[True, True, True], [True, False, False]])
)
count = np.array([[4.0, 0.0, 4.0, 2.0], [0.0] * 4])
total = np.array([[4.0, 0.0, 1.0, 2.0], [0.0] * 4])
visits = kaestat.Visits(lag=np.array([[9.0, 1.0, 5.0, 2.0], [1.0] * 4]), count=count, total=total, total_sq=total)
LastVisits(k=2).values(groups, visits, step=9).round(4)

# %% [markdown]
# The last two visits of the first prompt hold 4 + 2 completions with 1 + 2 right ones. For its first completion the
# rest of the group adds 0 + 1 of two: (3 + 1) / (6 + 2) = 0.5; for the second it adds 2 of two: 5 / 8 = 0.625. The
# second prompt's value is the mean of the first one's rewards, 2 / 3 (the entries outside the mask mean nothing).
#
# Then what must hold on *any* numbers. These four checks catch most mistakes in code like this; the tests of `kaestat`
# run the same ones, and more, with Hypothesis.


# %%
def random_step(rng, replicates=(), prompts=5, size=4, past=6):
    """Rewards and visits at random, with padding."""
    count = rng.integers(0, 4, (*replicates, prompts, past)).astype(float)
    total = rng.binomial(count.astype(int), 0.4).astype(float)
    lag = np.broadcast_to(np.arange(past, 0, -1.0), count.shape)
    groups = kaestat.Groups((rng.random((*replicates, prompts, size)) < 0.5).astype(float))
    return groups, kaestat.Visits(lag=lag, count=count, total=total, total_sq=total)


def check(baseline):
    """Names of the properties that do not hold, on a hundred random steps."""
    broken, rng = set(), np.random.default_rng(0)
    for _ in range(100):
        groups, visits = random_step(rng)
        values = baseline.values(groups, visits, step=10)
        changed = groups.reward.copy()
        changed[2, 1] = 1 - changed[2, 1]
        other = baseline.values(kaestat.Groups(changed), visits, step=10)
        if other[2, 1] != values[2, 1]:
            broken.add("leave-one-out: a completion's own reward changes its value")
        shifted = kaestat.Visits(
            lag=visits.lag, count=visits.count, total=visits.total + 3 * visits.count, total_sq=visits.total_sq
        )
        if not np.allclose(baseline.values(kaestat.Groups(groups.reward + 3), shifted, step=10), values + 3):
            broken.add("shift: rewards that are all larger by 3 do not make the values larger by 3")
        order = rng.permutation(len(values))
        rows = kaestat.Visits(**{n: getattr(visits, n)[order] for n in ("lag", "count", "total", "total_sq")})
        if not np.allclose(baseline.values(kaestat.Groups(groups.reward[order]), rows, step=10), values[order]):
            broken.add("order: prompts in another order get other values")
        many, pasts = random_step(rng, replicates=(3,))
        whole = baseline.values(many, pasts, step=10)
        one = kaestat.Visits(**{n: getattr(pasts, n)[1] for n in ("lag", "count", "total", "total_sq")})
        if not np.allclose(whole[1], baseline.values(kaestat.Groups(many.reward[1]), one, step=10)):
            broken.add("replicates: a leading axis is not a loop over it")
    return sorted(broken) or ["nothing broken"]


@dataclass(frozen=True)
class WithOwn(LastVisits):
    """The mistake that everybody makes once: the group's mean, the completion itself included."""

    def values(self, groups, visits, *, step, carry=None):
        mean = groups.reward.mean(axis=-1, keepdims=True)
        return (super().values(groups, visits, step=step) + mean) / 2


for baseline in (LastVisits(), WithOwn()):
    print(baseline, "->", *check(baseline), sep="\n    ")

# %% [markdown]
# ## Is it any good? A simulation
#
# A study in `simulations` declares its cells, simulates replicates from named random streams, and reports every number
# with its Monte Carlo standard error. Methods share the random numbers, so that their ratio has a small error. We take
# three of the paths on which all published methods are compared: values that stand still, walk at random, or jump once.
# Here each prompt is visited at every step, where "the last 10 visits" are the last 10 steps: a *uniform* kernel.
# Theory says that it cannot be much worse than the triangular one, and not better in the worst case.

# %%
COMPARED = {
    "last 10 visits": LastVisits(10),
    "last 4 visits": LastVisits(4),
    "kae": kaestat.make_baseline("kae", bandwidth=10),
    "kalman": kaestat.make_baseline("kalman"),
    "grpo": kaestat.make_baseline("grpo").leave_one_out(),
}


def simulate(cell, streams):
    """Value MSE of each method, one number for each replicate."""
    value = value_paths(cell["path"], streams, 30, 64)
    reward = (streams.uniform("rewards", 30, 64, 8) < value[..., None]).astype(float)
    columns = {}
    for name, baseline in COMPARED.items():
        error = (served(baseline, reward) - value[..., None])[:, 1:]  # from the second visit on
        columns[f"{name}|mse"] = (error**2).mean(axis=(1, 2, 3))
    return columns


def summarise(cell, samples):
    means = [average(name, column) for name, column in samples.items()]
    return means + [
        ratio_of_means(f"{name.partition('|')[0]}|ratio_to_kae", column, samples["kae|mse"])
        for name, column in samples.items()
    ]


study = Study(
    name="last_visits",
    aims="Is a window in visits as good as a kernel in steps?",
    mechanisms="64 prompts with 8 completions at each of 30 steps; three kinds of value path; rewards 0 and 1.",
    estimands="Each prompt's current value, from the second step on.",
    methods=tuple(COMPARED),
    measures=("mse", "ratio_to_kae"),
    cells=grid(path=("static", "random_walk", "jump")),
    replicates=24,
    shard=12,
    simulate=simulate,
    summarise=summarise,
)
with tempfile.TemporaryDirectory() as folder:
    result = run(study, RunSettings(out=folder, backend="sequential"))
assert not result.failures
ratios = result.summary[result.summary["measure"] == "ratio_to_kae"]
ratios.pivot_table(index="method", columns="path", values="estimate").round(3)

# %%
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
others = [name for name in COMPARED if name != "kae"]
for k, (path, color, marker) in enumerate(
    (("static", BLUE, "o"), ("random_walk", GREEN, "s"), ("jump", VERMILION, "D"))
):
    rows = ratios[ratios["path"] == path].set_index("method").loc[others]
    place = np.arange(len(others)) + 0.18 * (k - 1)
    error = 1.96 * rows["mcse"]
    axes.errorbar(rows["estimate"], place, xerr=error, fmt=marker, color=color, label=path.replace("_", " "))
axes.axvline(1, color=GREY, linewidth=1)
axes.set_xscale("log")
axes.set_xticks([0.7, 1, 1.5, 2, 3, 5, 7], labels=["0.7", "1", "1.5", "2", "3", "5", "7"])
axes.minorticks_off()
axes.set_yticks(range(len(others)), others)
axes.set(xlabel="value MSE relative to KAE with bandwidth 10 (log scale), 95 % Monte Carlo intervals")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# Values that stand still favour long windows, and a jump shorter ones: no window is best everywhere, which is why the
# bandwidth has to be chosen from data. The group mean alone (`grpo`) is far behind on each path.
#
# ## And on a run's rewards
#
# `value_risk` takes baseline objects beside names. The idea was for prompts that come rarely, so score it on a log in
# which each prompt is visited every sixth step or so.

# %%
folder = os.environ.get("KAESTAT_DATA")
path = Path(folder) / "acc_step_500_dev.json" if folder else None
if path is not None and path.is_file():
    print(f"The rewards are real: {path.name}.")
    log = kaestat.read_log(path)
else:
    print("KAESTAT_DATA names no folder with a real log: the rewards are simulated.")
    log = simulated_run(n_prompts=629).log
frame = log.frame
seldom = kaestat.RewardLog(frame["prompt"], 6 * frame["step"] + frame["prompt"] % 6, frame["reward"])
METHODS = [LastVisits(4), LastVisits(10), LastVisits(20), *(f"kae:bandwidth={b}" for b in (10, 60, 120)), "grpo"]
risk = kaestat.value_risk(seldom, METHODS, n_boot=300)
risk.assign(method=risk["method"].astype(str)).drop(columns=["n_prompts", "n_visits"]).round(5)

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
shown = risk[::-1].reset_index(drop=True)
ends = np.stack([shown["mse"] - shown["ci_low"], shown["ci_high"] - shown["mse"]])
axes.errorbar(1000 * shown["mse"], shown.index, xerr=1000 * ends, fmt="o", color=BLUE)
axes.set_yticks(shown.index, shown["method"].astype(str))
axes.set(xlabel="value MSE (× 0.001), 95 % bootstrap intervals over prompts", xlim=(0, None))
axes.grid(axis="x", color="0.9")
plt.show()

# %% [markdown]
# With a visit every six steps, `kae` at 10 steps sees one past visit and gives much away; at 60 to 120 steps it is as
# good as ever. A window in visits needs no such care.
#
# ## Into a training loop
#
# `AdvantageEstimator(LastVisits(10))` is all that a loop needs. Whether *the loop* is right is another question: rows
# come reordered, padded, split over processes, and under names that are new at each step. `kaestat.integrations
# .conformance` has a check for each trap. It wants an object with three methods around the loop's own code. Here is a
# first attempt, as one would write it, with the trainer's group names as prompt ids:


# %%
class FirstAttempt:
    """Advantages of a step's rows, by the trainer's group names."""

    def __init__(self, estimator):
        self.estimator = estimator

    def advantages(self, rows):
        return self.estimator.step(rows.uids, rows.rewards, rows.step)

    def state(self):
        return self.estimator.state_dict()

    def restore(self, state):
        self.estimator.load_state_dict(state)


for name, why in conformance.run_checks(FirstAttempt).items():
    print(f"{name:22s}{why}")

# %% [markdown]
# The kit names what is wrong: names that are drawn anew at each step lose the history, and padding rows enter values.
# Both are silent in training, where the loss only gets noisier. The fixed loop knows a prompt by its text, and masks
# the padding:


# %%
class Fixed(FirstAttempt):
    """Prompts are known by their text, and padding is masked."""

    def advantages(self, rows):
        return self.estimator.step(rows.prompts, rows.rewards, rows.step, mask=~rows.padding)


failures = conformance.run_checks(Fixed)
assert not failures, failures
print(f"all {len(conformance.CHECKS)} checks pass")

estimator = kaestat.AdvantageEstimator(LastVisits(10))
for step in range(3):
    advantages = estimator.step(["a", "a", "b", "b"], [1.0, 0.0, 1.0, step % 2], step)
print("advantages of the third step:", advantages.round(3))

# %% [markdown]
# ## What to try
#
# - Is KAE at 120 steps better than the last 10 visits, or is that noise? `kaestat.risk_differences` tells.
# - Make the window end softly: weights `1 - rank / k` instead of 1. What does that change, on which path?
# - Break `values` on purpose: forget that padding may stand between visits, or that `flip` is needed. Which check sees
#   it?
# - Add `LastVisits(10)` to more paths (`simulations.bandits.paths.PATHS` lists six) and to groups of one completion.
# - Give it weights: `visits.mass` and `groups.others()` know them already. Set `takes_weights = True` and pass
#   `weights=` to `AdvantageEstimator.step`.
