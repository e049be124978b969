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
# # Analyse your run's rewards
#
# A training run with verifiable rewards writes down, for every completion, which prompt it answered, at which step,
# and what it was rewarded. That is enough to answer a question that seems to need more: **how wrong was the baseline?**
#
# You learn here
#
# - how to read a log and see what it holds,
# - why the error of a baseline can be estimated without bias from rewards alone, and how well,
# - how to compare methods on the same data, and to choose the bandwidth of KAE,
# - where the estimate can go wrong.
#
# The rewards are those of a real run if the environment variable `KAESTAT_DATA` names a folder with
# `acc_step_500_dev.json` (629 prompts of a 500-step GRPO run of Qwen2.5-Math-1.5B), and simulated if not.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator, NullLocator

import kaestat
from kaestat.datasets import simulated_run
from kaestat.logs.replay import replay
from kaestat.report.facts import LogFacts
from kaestat.report.tables import fact_lines

plt.rcParams.update({"axes.spines.right": False, "axes.spines.top": False, "figure.dpi": 100})
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#4D4D4D"


def plain(*axes):
    """Plain numbers on logarithmic axes."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


# %%
folder = os.environ.get("KAESTAT_DATA")
path = Path(folder) / "acc_step_500_dev.json" if folder else None
if path is not None and path.is_file():
    print(f"The rewards are real: {path.name}.")
    log = kaestat.read_log(path)
else:
    print("KAESTAT_DATA names no folder with a real log: the rewards are simulated.")
    log = simulated_run(n_prompts=629).log
for line in fact_lines(LogFacts.of(log)):
    print(line)

# %% [markdown]
# Your own run comes in by `kaestat.read_log("rewards.csv")` (CSV, Parquet, JSON lines; the dumps of TRL and verl
# too), or from arrays: `kaestat.RewardLog(prompt, step, reward)`. One thing must be right, and nobody can check it for
# you completely: **the same id must mean the same prompt at every step.** The `uid` of many trainers is drawn anew at
# each step; with it, no prompt ever comes back, and there is no past to learn from.
#
# A log is a table of completions, sorted by time:

# %%
log.frame.head()

# %% [markdown]
# ## What the rewards look like
#
# Two curves tell most about a run: the mean reward, and the share of groups whose rewards are all equal. In such a
# group every reward minus the group's mean is 0, so that GRPO learns nothing from it, however wrong the policy is.

# %%
visits = log.prompt_units
accuracy = visits.total / visits.counts
by_time = pd.DataFrame({"step": visits.visit_step, "reward": accuracy, "equal": np.isin(accuracy, (0.0, 1.0))})
curve = by_time.groupby("step").agg(
    reward=("reward", "mean"), error=("reward", "sem"), equal=("equal", "mean"), n=("equal", "size")
)
curve = curve[curve["n"] >= 30]
equal_error = np.sqrt(curve["equal"] * (1 - curve["equal"]) / curve["n"])

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for column, error, color, label in (
    ("reward", curve["error"], BLUE, "mean reward"),
    ("equal", equal_error, VERMILION, "share of groups with all rewards equal"),
):
    axes.plot(curve.index, curve[column], color=color, label=label)
    axes.fill_between(
        curve.index, curve[column] - 1.96 * error, curve[column] + 1.96 * error, color=color, alpha=0.2, linewidth=0
    )
axes.set(
    xlabel=f"{log.time_axis} of the prompt" if log.time_axis == "visit" else "training step", ylabel="mean over prompts"
)
axes.set_ylim(0, 1)
axes.legend(frameon=False)
axes.set_title("Bands: 95 % intervals over prompts", fontsize=9, loc="left")
plt.show()

# %% [markdown]
# ## How wrong was the baseline?
#
# A method assigns each completion a value $\hat V$; the best one is the prompt's current mean reward $V$, which nobody
# knows. But if $\hat V$ was made without the completion's own reward $Z$ (from the past, and from the rest of the
# group), then, given the past, the two are independent, and
#
# $$E\,(Z - \hat V)^2 \;=\; \operatorname{Var}(Z) \;+\; E\,(\hat V - V)^2 .$$
#
# The left side is a mean over the log. $\operatorname{Var}(Z)$ has an unbiased estimate in every group of two or more,
# its sample variance. **The difference is an unbiased estimate of the value's mean squared error**, for every method
# alike, without a single further completion. Averages are taken within each prompt first, and the standard error is
# over prompts, since the visits of one prompt go together.

# %%
METHODS = ["kae_eb", "kae", "kalman", "spo", "local_linear", "james_stein", "grpo", "reinforce++"]
risk = kaestat.value_risk(log, METHODS, n_boot=500)
risk.round(5)

# %%
shown = risk.sort_values("mse", ascending=False, ignore_index=True)
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.errorbar(
    1000 * shown["mse"],
    shown.index,
    xerr=1000 * np.stack([shown["mse"] - shown["ci_low"], shown["ci_high"] - shown["mse"]]),
    fmt="o",
    color=BLUE,
)
axes.set_yticks(shown.index, shown["method"])
axes.set_xscale("log")
plain(axes.xaxis)
axes.set(xlabel="value MSE (× 0.001, log scale), with 95 % bootstrap intervals over prompts")
axes.grid(axis="x", color="0.9")
plt.show()

# %% [markdown]
# The order of magnitude has a simple reason. GRPO's value is the mean of the seven other rewards of the group: its MSE
# is $\operatorname{Var}(Z)/7$ on average, whatever the policy does. KAE adds the prompt's past visits. They are
# slightly out of date, and there are many of them.
#
# ## Is it true?
#
# In a simulated run the truth is known, so that the estimate can be put to the test: the *true* mean squared error of
# each method against the estimate from rewards alone. The points must lie on the diagonal, within their intervals.

# %%
run = simulated_run(n_prompts=400, n_epochs=30, seed=1)
truth = run.values  # noqa: PD011 - no DataFrame
estimated = kaestat.value_risk(run.log, METHODS, n_boot=0)
units = run.log.prompt_units
later = np.repeat(units.earlier >= 1, units.counts)  # as value_risk does: visits with at least one before them
prompt = run.log.frame["prompt"].to_numpy()[later]
true = []
for name in METHODS:
    baseline = kaestat.make_baseline(name)
    if name in ("grpo", "reinforce++"):
        baseline = baseline.leave_one_out()
    squared = (replay(run.log, baseline)[0] - truth)[later] ** 2
    true.append(pd.Series(squared).groupby(prompt).mean().mean())
pd.DataFrame({"method": METHODS, "true": true, "estimated": estimated["mse"], "se": estimated["se"]}).round(5)

# %%
figure, axes = plt.subplots(figsize=(4.2, 4), layout="constrained")
ends = np.array([0.7 * min(true), 1.5 * max(true)]) * 1000
axes.plot(ends, ends, color=GREY, linewidth=1)
axes.errorbar(1000 * np.array(true), 1000 * estimated["mse"], yerr=1.96 * 1000 * estimated["se"], fmt="o", color=BLUE)
axes.set_xscale("log")
axes.set_yscale("log")
plain(axes.xaxis, axes.yaxis)
axes.set(xlabel="true value MSE (× 0.001)", ylabel="estimated from rewards alone\n(× 0.001, 95 % intervals)")
plt.show()
off = (estimated["mse"] - true) / estimated["se"]
print(f"The estimates are {off.abs().max():.1f} standard errors from the truth at most.")

# %% [markdown]
# ## Which of two methods?
#
# Two methods share the log, and most of their error bars with it: the same hard prompts are hard for both. So compare
# by the **paired** difference, not by whether two intervals overlap.

# %%
differences = kaestat.risk_differences(log, ["kae_eb", "kalman", "spo", "grpo"], reference="kae", n_boot=500)
separate = risk.set_index("method")["se"]
differences["se if they were independent"] = [
    np.hypot(separate[name], separate["kae"]) for name in differences["method"]
]
differences[["method", "difference", "se", "se if they were independent", "ci_low", "ci_high"]].round(5)

# %% [markdown]
# ## Which bandwidth?
#
# KAE weighs a visit by a kernel of how long ago it was, and the bandwidth says how fast weights fall. Short bandwidths
# leave noise, long ones average over a policy that has moved on. The risk of every bandwidth is in the log, too.

# %%
selection = kaestat.select_bandwidth(log, "loo_cv", n_boot=200)
risk_path = selection.path
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
axes.plot(risk_path["bandwidth"], 1000 * risk_path["risk"], color=BLUE)
axes.fill_between(
    risk_path["bandwidth"],
    1000 * (risk_path["risk"] - 1.96 * risk_path["se"]),
    1000 * (risk_path["risk"] + 1.96 * risk_path["se"]),
    color=BLUE,
    alpha=0.2,
    linewidth=0,
)
axes.axvline(
    selection.bandwidth, color=VERMILION, linestyle="--", label=f"lowest: {selection.bandwidth:.1f} {log.time_axis}s"
)
axes.axhline(1000 * risk.set_index("method").loc["grpo", "mse"], color=GREY, linestyle=":", label="GRPO")
axes.set_xscale("log")
axes.set_yscale("log")
plain(axes.xaxis, axes.yaxis)
axes.set(
    xlabel=f"bandwidth ({log.time_axis}s, log scale)",
    ylabel="value MSE (× 0.001, log scale),\n95 % intervals over prompts",
)
axes.legend(frameon=False)
plt.show()
print(f"bandwidth {selection.bandwidth:.1f} {selection.time_axis}s, standard error {selection.se:.1f}")

# %% [markdown]
# The valley is wide: any bandwidth within a factor of two of the best loses little, and all of them are far below GRPO.
# `kaestat.select_bandwidth(log, "forward_cv")` chooses by the past alone, as a running training would have to.
#
# ## Where this can go wrong
#
# - **Ids that are not stable.** Then each visit looks like a prompt's first, and no method differs from GRPO.
# - **Rewards that are not per completion.** If the log holds rewards after normalisation, the variance identity fails.
# - **One completion per visit.** Then $\operatorname{Var}(Z)$ is not identified, and no MSE is; differences still are
#   (`risk_differences` works, `value_risk` says so and refuses).
# - **A changed baseline changes the run.** The answer is about the values on *this* run's policies. What a better
#   baseline does to training is a question for training runs.
#
# ## What to try
#
# - Put in your own log. On the command line, `kaestat analyze rewards.csv --out report/` makes all of this, as a page.
# - Compare kernels: `kaestat.value_risk(log, ["kae:kernel=exponential,bandwidth=6", "kae:kernel=uniform"])`.
# - Thin the log to every fourth visit (`log.frame[log.frame["step"] % 4 == 0]`). Which method suffers most, and why?
# - Thin the groups to two completions. What happens to GRPO, and what to KAE?
