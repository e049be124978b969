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
# # From Nadaraya–Watson to KAE
#
# Kernelized advantage estimation is a kernel regression of rewards on training steps, evaluated at the last step. This
# notebook builds it up from the simplest case, with the exact bias and variance at every turn.
#
# You learn here
#
# - what bias and variance a kernel mean has at the end of the data, and what bandwidth balances them,
# - that the one-sided triangular kernel is not a matter of taste but the solution of a minimax problem,
# - how fast the error can fall with more data, and why a group mean's does not fall at all,
# - what KAE adds to Nadaraya–Watson, and why it leaves each completion's own reward out.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator, NullLocator
from scipy.optimize import minimize

import kaestat
from kaestat import theory
from kaestat.datasets import simulated_run
from kaestat.smoothing.kernels import as_kernel

plt.rcParams.update({"axes.spines.right": False, "axes.spines.top": False, "figure.dpi": 100})
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#4D4D4D"


def plain(*axes):
    """Plain numbers on logarithmic axes."""
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")


# %% [markdown]
# ## One prompt, one reward a step
#
# Take one prompt that is sampled once at every training step. Its value $V_t$, the probability of a right answer under
# the policy of step $t$, drifts as the policy learns. We see rewards 0 or 1. The Nadaraya–Watson estimate of the value
# *now*, at lag 0, is a weighted mean of the rewards at lags $0, 1, 2, \dots$
#
# $$\hat V = \sum_k w_k Y_k, \qquad w_k \propto K(k / b),$$
#
# with a kernel $K$ on $[0, \infty)$ and a bandwidth of $b$ steps. All data lie on one side of the point of interest:
# this is regression at a boundary, where a kernel cannot cancel a slope by looking to both sides.

# %%
steps = np.arange(400)
value = 0.25 + 0.45 / (1 + np.exp(-(steps - 260) / 60))
rng = np.random.default_rng(0)
reward = (rng.random(len(steps)) < value).astype(float)


def nadaraya_watson(reward, bandwidth, kernel="triangular"):
    """Kernel mean of all rewards up to each step, the step's own included."""
    lag = np.arange(len(reward), dtype=float)
    weight = as_kernel(kernel)(lag / bandwidth)
    total = np.convolve(reward, weight)[: len(reward)]
    return total / np.convolve(np.ones(len(reward)), weight)[: len(reward)]


figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
axes.plot(steps, reward, "|", color=GREY, markersize=5, alpha=0.5, label="reward")
axes.plot(steps, value, color="black", label="value $V_t$")
for bandwidth, color in ((8, VERMILION), (60, BLUE), (250, GREEN)):
    axes.plot(steps, nadaraya_watson(reward, bandwidth), color=color, linewidth=1.2, label=f"bandwidth {bandwidth}")
axes.set(xlabel="training step", ylabel="reward, value", ylim=(-0.05, 1.3))
axes.legend(frameon=False, ncols=5, loc="upper center", fontsize=8)
plt.show()

# %% [markdown]
# A short bandwidth follows the noise, a long one lags behind. Both errors are exact sums, no simulation needed:
#
# $$\text{bias} = \sum_k w_k V_{t-k} - V_t, \qquad \text{variance} = \sum_k w_k^2\, V_{t-k} (1 - V_{t-k}).$$
#
# `kaestat.theory.linear_error` computes them. The dots are 4,000 simulated runs, with 95 % Monte Carlo intervals: a
# formula should be checked by something that does not know it.

# %%
now = 300
path = value[now::-1]  # by lag
bandwidths = np.unique(np.round(np.geomspace(2, 300, 25)).astype(int))
exact = []
for bandwidth in bandwidths:
    weight = as_kernel("triangular")(np.arange(now + 1) / bandwidth)
    weight /= weight.sum()
    exact.append(theory.linear_error(weight, path, path * (1 - path), target=path[0]))
squared_bias, variance = np.array([[e.bias**2, e.variance] for e in exact]).T

runs = (rng.random((4000, now + 1)) < path).astype(float)
checked = bandwidths[2::5]
simulated = []
for bandwidth in checked:
    weight = as_kernel("triangular")(np.arange(now + 1) / bandwidth)
    squared_error = (runs @ (weight / weight.sum()) - path[0]) ** 2
    simulated.append((squared_error.mean(), 1.96 * squared_error.std() / np.sqrt(len(runs))))
simulated = np.array(simulated)

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(bandwidths, variance, color=VERMILION, linestyle="--", label="variance")
axes.plot(bandwidths, squared_bias, color=GREEN, linestyle=":", label="squared bias")
axes.plot(bandwidths, squared_bias + variance, color=BLUE, linewidth=2, label="MSE, exact")
axes.errorbar(
    checked, simulated[:, 0], yerr=simulated[:, 1], fmt="o", color="black", markersize=4, label="MSE, simulated"
)
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_ylim(1e-4, 0.3)
plain(axes.xaxis)
axes.set(xlabel="bandwidth (steps, log scale)", ylabel=f"error of the value at step {now} (log scale)")
axes.legend(frameon=False)
plt.show()
best = bandwidths[np.argmin(squared_bias + variance)]
print(f"best bandwidth on this path: about {best} steps")
off = np.abs(simulated[:, 0] - (squared_bias + variance)[2::5]) / (simulated[:, 1] / 1.96)
print(f"largest distance of simulation and formula: {off.max():.1f} standard errors")

# %% [markdown]
# ## Not one path, but every path
#
# We do not know the path. Suppose only that it moves by at most $L$ per step. The bias is worst when the value drifts
# at full speed in one direction, $L \sum_k w_k k$, and the variance does not depend on the path if we bound that of a
# reward by $s^2$. For the triangular kernel with an integer bandwidth $m$ and one reward a step both are exact:
#
# $$\text{bias} = L\,\frac{m-1}{3}, \qquad \text{variance} = s^2\,\frac{2(2m+1)}{3m(m+1)},
# \qquad m^* \approx \Big(\frac{6 s^2}{L^2}\Big)^{1/3}.$$

# %%
s2 = 0.25
rows = []
for lipschitz in (0.03, 0.01, 0.003, 0.001):
    m = theory.optimal_integer_bandwidth(lipschitz=lipschitz, noise_variance=s2)
    error = theory.integer_bandwidth_error(m, lipschitz=lipschitz, noise_variance=s2)
    rows.append(
        {
            "L per step": lipschitz,
            "best m": m,
            "(6 s²/L²)^(1/3)": (6 * s2 / lipschitz**2) ** (1 / 3),
            "worst MSE": float(error.mse),
            "share of squared bias": float(error.bias**2 / error.mse),
        }
    )
pd.DataFrame(rows).round(4)

# %% [markdown]
# At the optimum a third of the error is squared bias and two thirds are variance: an honest interval for the value has
# to be wider than one that counts noise alone.
#
# ## Which kernel? The minimax answer
#
# Drop the kernel, and ask for the weights themselves: which $w$ with $\sum_k w_k = 1$ have the smallest worst-case MSE
#
# $$\Big(L \sum_k w_k k\Big)^2 + s^2 \sum_k w_k^2\;?$$
#
# A quadratic problem. Its Karush–Kuhn–Tucker conditions say $w_k \propto (\tau - k)_+$ for some $\tau$: **a straight
# line that ends at zero, the triangular kernel.** A numerical optimiser that knows nothing of this finds the same line:

# %%
lipschitz, lags = 0.02, np.arange(30.0)


def worst_mse(w):
    return (lipschitz * w @ lags) ** 2 + s2 * w @ w


found = minimize(
    worst_mse,
    np.full(len(lags), 1 / len(lags)),
    jac=lambda w: 2 * lipschitz**2 * (w @ lags) * lags + 2 * s2 * w,
    bounds=[(0, None)] * len(lags),
    constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(len(lags))},
    method="SLSQP",
    options={"ftol": 1e-14, "maxiter": 500},
)
line = theory.minimax_weights(lags, s2, lipschitz)
print(f"largest difference of a weight: {np.abs(found.x - line).max():.1e}")

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.plot(lags, line, color=BLUE, linewidth=2, label="minimax weights, closed form")
axes.plot(lags, found.x, "o", color="black", markersize=4, label="numerical optimiser")
for name, color, dashes in (("uniform", VERMILION, "--"), ("exponential", GREEN, ":")):
    bandwidth = theory.optimal_bandwidth(name, lipschitz=lipschitz, noise_variance=s2)
    weight = as_kernel(name)(lags / bandwidth)
    axes.plot(lags, weight / weight.sum(), color=color, linestyle=dashes, label=f"{name}, at its best bandwidth")
axes.set(xlabel="lag (steps)", ylabel="weight of the reward")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# What does another kernel cost? In the limit of many steps each kernel's worst-case MSE at its own best bandwidth is a
# constant times $(L s^2)^{2/3}$. Uniform and exponential weights cost 8 % more than the triangular ones. That is
# little, and the exponential kernel buys something for it: one number per prompt is all the state it needs.

# %%
kernels = ("triangular", "epanechnikov", "half-normal", "uniform", "exponential")
constants = pd.DataFrame(
    {
        "kernel": kernels,
        "mu1": [as_kernel(k).mu1 for k in kernels],
        "R": [as_kernel(k).roughness for k in kernels],
        "bandwidth constant": [as_kernel(k).lipschitz_bandwidth_constant for k in kernels],
        "worst-case MSE constant": [as_kernel(k).worst_case_mse_constant for k in kernels],
    }
)
best_constant = constants["worst-case MSE constant"].min()
constants.assign(**{"cost (%)": 100 * (constants["worst-case MSE constant"] / best_constant - 1)}).round(4)

# %% [markdown]
# ## How fast the error falls
#
# Let a run have $n$ steps and let the value move by at most 1 over the *whole* run, so that $L = 1/n$ per step. More
# steps then mean more rewards per unit of drift. With the best bandwidth the worst-case MSE falls like $n^{-2/3}$,
# Stone's rate, which no estimator beats over this class. A group mean of eight has the same variance at every $n$.

# %%
sizes = np.array([10**k for k in range(2, 8)])
kae_mse = []
for n in sizes:
    m = theory.optimal_integer_bandwidth(lipschitz=1 / n, noise_variance=s2)
    kae_mse.append(float(theory.integer_bandwidth_error(m, lipschitz=1 / n, noise_variance=s2).mse))
slopes = theory.local_rate_slopes(list(sizes))

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.loglog(sizes, kae_mse, "o-", color=BLUE, label="kernel mean, best bandwidth, one reward a step")
axes.loglog(sizes, kae_mse[-1] * (sizes / sizes[-1]) ** (-2 / 3), color=GREY, linestyle=":", label="slope -2/3")
axes.axhline(s2 / 7, color=VERMILION, linestyle="--", label="leave-one-out mean of a group of 8")
axes.set(xlabel="steps n of the run (log scale)", ylabel="worst-case MSE (log scale)")
axes.legend(frameon=False)
plt.show()
print("slopes between neighbours:", slopes.round(5))

# %% [markdown]
# ## From here to KAE
#
# A training step has a *group* of $G$ completions per prompt, and a prompt is not visited at every step. KAE (Algorithm
# 1 of the paper) is the same weighted mean with two changes:
#
# $$\hat V_g = \frac{\sum_v K(l_v / b)\, S_v \;+\; K(0)\,\big(\sum_k Z_k - Z_g\big)}
# {\sum_v K(l_v / b)\, n_v \;+\; K(0)\,(G - 1)}.$$
#
# - Past visits $v$, at lag $l_v$, enter by their number of completions $n_v$ and the sum $S_v$ of their rewards. That
#   is all the history has to keep.
# - The current group enters **without the completion's own reward** $Z_g$.

# %%
groups = kaestat.Groups(np.array([[1.0, 0.0, 0.0, 1.0]]))
visits = kaestat.Visits(
    lag=np.array([[6.0, 2.0]]),
    count=np.array([[4.0, 4.0]]),
    total=np.array([[1.0, 3.0]]),
    total_sq=np.array([[1.0, 3.0]]),
)
values = kaestat.make_baseline("kae", bandwidth=10).values(groups, visits, step=20)
w6, w2, w0 = (2 * (1 - lag / 10) for lag in (6, 2, 0))
by_hand = (w6 * 1 + w2 * 3 + w0 * (2 - 1)) / (w6 * 4 + w2 * 4 + w0 * 3)
print("values:", values.round(4), " by hand, for a completion of reward 1:", round(by_hand, 4))

# %% [markdown]
# Why leave it out? If the value contains its own reward with weight $w$, then $E[(Z - \hat V)\,\nabla\log\pi]$ shrinks
# to $(1 - w)$ of what it should be: the gradient is biased towards 0. For the mean of a group of $G$ that is $1 - 1/G$
# for every prompt alike, a mere change of the learning rate. For KAE the weight depends on how much past a prompt has,
# so prompts would be reweighed by their history. Leaving the reward out makes the question go away. A simulation with
# one logit shows it: the policy answers right with probability $p$, and the score of a completion is $Z - p$.

# %%
p, group_size, n_runs = 0.3, 4, 200_000
drawn = (rng.random((n_runs, group_size)) < p).astype(float)
past_total, past_mass = rng.binomial(8, p, n_runs)[:, None] * 0.8, 8 * 0.8
everything = (past_total + drawn.sum(axis=1, keepdims=True)) / (past_mass + group_size)
others = (past_total + drawn.sum(axis=1, keepdims=True) - drawn) / (past_mass + group_size - 1)
for name, estimate in (("own reward included", everything), ("own reward left out", others)):
    gradient = ((drawn - estimate) * (drawn - p)).mean(axis=1)
    error = gradient.std() / np.sqrt(n_runs)
    print(f"{name:20s} mean gradient {gradient.mean():.5f} ± {error:.5f}   true {p * (1 - p):.5f}")
print(
    f"own weight {1 / (past_mass + group_size):.4f}, so expected {p * (1 - p) * (1 - 1 / (past_mass + group_size)):.5f}"
)

# %% [markdown]
# ## The bandwidth of a run
#
# Nobody tells us $L$. But the risk of each bandwidth can be estimated from the log (see *Analyse your run's rewards*).
# The other way round, the best bandwidth tells how fast values drift: solve $b^* = (6 s^2 / (n L^2))^{1/3}$ for $L$.

# %%
folder = os.environ.get("KAESTAT_DATA")
file = Path(folder) / "acc_step_500_dev.json" if folder else None
if file is not None and file.is_file():
    print(f"The rewards are real: {file.name}.")
    log = kaestat.read_log(file)
else:
    print("KAESTAT_DATA names no folder with a real log: the rewards are simulated.")
    log = simulated_run(n_prompts=629).log
rows = []
for kernel in ("triangular", "exponential"):
    selection = kaestat.select_bandwidth(log, "loo_cv", kernel, n_boot=200)
    risk = selection.path["risk"].min()
    rows.append(
        {"kernel": kernel, "best bandwidth": selection.bandwidth, "se": selection.se, "value MSE × 1000": 1000 * risk}
    )
noise = log.prompt_units.variance.mean()
group_size = log.prompt_units.counts.mean()
drift = np.sqrt(6 * noise / group_size / rows[0]["best bandwidth"] ** 3)
print(f"mean reward variance {noise:.3f}, {group_size:.0f} completions a visit")
print(f"drift worth L = {drift:.4f} per {log.time_axis}")
pd.DataFrame(rows).round(2)

# %% [markdown]
# The two kernels agree about the error, though their bandwidths differ: the exponential kernel's mass reaches further
# for the same number, as its constants above say (0.63 against 1.82).
#
# ## What to try
#
# - Make the value fall instead of rise in the first figure, or jump. Which bandwidths suffer?
# - Estimate with `kaestat.make_baseline("local_linear")`. It removes the bias of a constant slope and pays with
#   variance (look at `as_kernel("triangular").local_linear_roughness`). Where does it win?
# - Change $G$ in the last simulation to 1. What is left of the gradient if the own reward is included?
# - `theory.minimax_weights` takes a variance for every lag. Let visits have 1, 4 or 16 completions. What do the weights
#   look like now, and what does KAE do instead?
