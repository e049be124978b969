"""Theorem 2 and Corollary 2: from value error to gradient error, with and without Assumption 6."""

import math

import numpy as np

from kaestat import Groups, Visits, make_baseline
from simulations.bandits.softmax import SoftmaxBandit, one_hot_bandit
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means

N_ACTIONS = 40
DRIFT = 0.15  # past values are V - DRIFT log(i / t), as under a 1/i learning rate, kept in [.02, .98]
METHODS = ("kae", "kae_eb", "reinforce++", "grpo")


def simulate(cell: Cell, streams: Streams) -> Samples:
    bandit = _bandit(cell)
    theta = np.zeros(N_ACTIONS)
    scores, value, best = bandit.scores(theta), bandit.values(theta), bandit.best_baselines(theta)
    norm2 = (scores**2).sum(axis=-1)

    prompt = streams.each("prompts", lambda rng: rng.permutation(cell["m"])[: cell["batch"]])  # (R, B)
    action = (streams.uniform("actions", cell["batch"], cell["group_size"]) * N_ACTIONS).astype(int)
    reward = bandit.success[prompt[..., None], action]
    score = scores[prompt[..., None], action]  # (R, B, G, d)
    weight = norm2[prompt[..., None], action]
    plain, weighted = _past(cell, streams, value[prompt], _norm2_by_reward(bandit, norm2)[prompt])

    truth = {"none": np.zeros_like(value), "oracle": value, "best_baseline": best}
    values = {name: np.broadcast_to(known[prompt][..., None], reward.shape) for name, known in truth.items()}
    bandwidth = max(cell["h"] * cell["step"], 1.0)
    for name in METHODS:
        extra = {"bandwidth": bandwidth} if name.startswith("kae") else {}
        baseline = make_baseline(name, **extra).leave_one_out()
        values[name] = baseline.values(Groups(reward), plain, step=cell["step"])
        values[f"{name}, weighted"] = baseline.values(Groups(reward, weight=weight), weighted, step=cell["step"])

    gradient, columns = bandit.gradient(theta), {}
    for name, assigned in values.items():
        estimate = ((reward - assigned)[..., None] * score).mean(axis=(1, 2))
        columns[f"{name}|gradient_mse"] = ((estimate - gradient) ** 2).sum(axis=-1)
        columns[f"{name}|value_mse"] = ((assigned - value[prompt][..., None]) ** 2).mean(axis=(1, 2))
        # Theorem 2's identity: the excess over the oracle is the score-weighted value error over B G.
        excess = (weight * (assigned - value[prompt][..., None]) ** 2).mean(axis=(1, 2))
        columns[f"{name}|identity_excess"] = excess / (cell["batch"] * cell["group_size"])
        columns[f"{name}|distance_to_best"] = ((assigned - best[prompt][..., None]) ** 2).mean(axis=(1, 2))
    return columns


def _bandit(cell: Cell) -> SoftmaxBandit:
    """The same bandit for all replicates of a cell, and for all cells of that size."""
    rng = np.random.default_rng(np.random.SeedSequence((cell["m"], 2)))
    return one_hot_bandit(cell["m"], N_ACTIONS, wrong_norm2=cell["wrong_norm2"], rng=rng)


def _norm2_by_reward(bandit: SoftmaxBandit, norm2: np.ndarray) -> np.ndarray:
    """Squared score norm of a wrong and of a right action, shape (m, 2)."""
    right = bandit.success > 0
    return np.stack([norm2.max(axis=1, where=~right, initial=0), norm2.max(axis=1, where=right, initial=0)], axis=1)


def _past(cell: Cell, streams: Streams, value: np.ndarray, norm2: np.ndarray) -> tuple[Visits, Visits]:
    """Past visits under Assumption 1 (a step samples a prompt with probability B / m), without and with weights."""
    reach = min(math.ceil(max(cell["h"] * cell["step"], 1.0)), cell["step"])
    lag = np.arange(reach, 0, -1, dtype=float)
    visited = streams.uniform("visited", cell["batch"], reach) < cell["batch"] / cell["m"]
    elapsed = np.maximum(cell["step"] - lag, 1)
    past_value = np.clip(value[..., None] - DRIFT * np.log(cell["step"] / elapsed), 0.02, 0.98)
    drawn = streams.uniform("past", cell["batch"], reach, cell["group_size"])
    total = ((drawn < past_value[..., None]).sum(axis=-1) * visited).astype(float)
    count = visited * float(cell["group_size"])
    wrong, right = norm2[..., 0, None], norm2[..., 1, None]
    plain = {"lag": np.broadcast_to(lag, total.shape), "count": count, "total": total, "total_sq": total}
    weights = {
        "weight": right * total + wrong * (count - total),
        "weight_sq": right**2 * total + wrong**2 * (count - total),
        "weighted_total": right * total,
        "weighted_total_sq": right * total,
        "weight_sq_total": right**2 * total,
        "weight_sq_total_sq": right**2 * total,
    }
    return Visits(**plain), Visits(**plain, **weights)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = [average(name, column) for name, column in samples.items()]
    oracle = samples["oracle|gradient_mse"]
    for name in dict.fromkeys(column.partition("|")[0] for column in samples):
        mse = samples[f"{name}|gradient_mse"]
        estimates.append(average(f"{name}|excess_over_oracle", mse - oracle))
        estimates.append(ratio_of_means(f"{name}|ratio_to_oracle", mse, oracle))
        if name not in ("oracle", "best_baseline"):
            estimates.append(
                ratio_of_means(f"{name}|excess_over_identity", mse - oracle, samples[f"{name}|identity_excess"])
            )
    return estimates


BASE = {"step": 100, "h": 0.2, "batch": 32, "group_size": 4, "m": 64, "wrong_norm2": 1.0}


def _varied(**changes: tuple) -> tuple[Cell, ...]:
    """The base cell with one factor changed at a time."""
    return tuple(Cell(BASE | {name: value}) for name, values in changes.items() for value in values)


STUDY = Study(
    name="gradient_mse",
    aims="Excess of the gradient MSE over the oracle's in h, i, B, G and m; Assumption 6 holding, and violated.",
    mechanisms="Softmax bandit at a uniform policy; 1/i drift of past values; prompts sampled by Assumption 1. "
    "wrong_norm2 = 1 makes score norms independent of the reward; at 5 wrong actions have five times the squared norm.",
    estimands="The gradient of J, exactly; oracle: the value; best baseline: E[W Z] / E[W].",
    cells=(
        Cell(BASE),
        *_varied(h=(0.05, 0.1, 0.4), step=(25, 50, 200), batch=(8, 16, 64), group_size=(2, 8), m=(128,)),
        *_varied(wrong_norm2=(2.0, 5.0)),
    ),
    replicates=400,
    shard=100,
    simulate=simulate,
    summarise=summarise,
)
