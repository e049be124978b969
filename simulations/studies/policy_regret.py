"""Theorem 3 and Corollary 3: from gradient error to the suboptimality of the learned policy."""

import math
from functools import cache

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from kaestat import Groups, Visits, make_baseline
from simulations.bandits.softmax import SoftmaxBandit
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, ratio_of_means

N_PROMPTS, BATCH, GROUP_SIZE = 32, 8, 2
BETA, OFFSET = 60.0, 100  # learning rate BETA / (i + OFFSET): a 1/i schedule that does not begin with a leap
# Parameters are kept in this square, the theorem's Theta: there mu = .0089 and BETA > 1 / (2 mu). A ball about the
# start would not do: the objective has stationary points on the far side, and no PL constant at all.
LOWEST, HIGHEST = -0.3, 1.7
BANDWIDTH_CONSTANT = 1.0  # h_i = constant * i^(-1/3): h -> 0 and i h -> inf, as Corollary 3 asks
CHECKPOINTS = (30, 100, 300, 1000, 3000)
METHODS = ("none", "reinforce++", "grpo", "kae", "oracle")


@cache
def problem() -> tuple[SoftmaxBandit, float]:
    """A logistic policy on conflicting prompts, so that the optimum is inside, and the optimal objective."""
    rng = np.random.default_rng(7)
    # Long features gain from action 1 and saturate early; short ones lose from it, and go on losing: the optimum is
    # where both balance. Half of the prompts move along each axis.
    long = np.arange(N_PROMPTS) % 2 == 0
    axis = np.eye(2)[(np.arange(N_PROMPTS) // 2) % 2]
    direction = np.where(long, 2.0, 0.6)[:, None] * axis
    gain = np.where(long, 0.3, -0.3)
    base = rng.uniform(0.02, 0.68, N_PROMPTS) + np.where(long, 0.0, 0.3)
    features = np.stack([np.zeros_like(direction), direction], axis=1)
    bandit = SoftmaxBandit(features, np.stack([base, base + gain], axis=1).clip(0, 1))
    starts = np.random.default_rng(8).normal(size=(20, 2))
    tried = [minimize(lambda t: -bandit.objective(t), start, jac=lambda t: -bandit.gradient(t)) for start in starts]
    best = min(tried, key=lambda result: result.fun)
    if not ((best.x > LOWEST) & (best.x < HIGHEST)).all():
        raise ValueError("the optimum must lie inside the square of parameters.")
    return bandit, -float(best.fun)


def simulate(cell: Cell, streams: Streams) -> Samples:
    n_steps = cell["steps"]
    prompts = streams.each(
        "prompts", lambda rng: np.argsort(rng.random((n_steps, N_PROMPTS)), axis=1)[:, :BATCH]
    )  # (R, T, B), Assumption 1
    actions = streams.uniform("actions", n_steps, BATCH, GROUP_SIZE)
    outcomes = streams.uniform("outcomes", n_steps, BATCH, GROUP_SIZE)
    columns = {}
    for method in METHODS:
        columns |= _learn(method, prompts, actions, outcomes)
    return columns


def _learn(method: str, prompts: np.ndarray, actions: np.ndarray, outcomes: np.ndarray) -> Samples:
    """Stochastic gradient ascent with one method, all replicates at once."""
    bandit, optimum = problem()
    # Action 0 has no features, so the policy of two actions is a logistic one.
    feature, base, gain = bandit.features[:, 1], bandit.success[:, 0], bandit.success[:, 1] - bandit.success[:, 0]
    n_replicates, n_steps, _ = prompts.shape
    row = np.arange(n_replicates)[:, None]
    theta = np.zeros((n_replicates, 2))
    count = np.zeros((n_replicates, N_PROMPTS, n_steps), dtype=np.float32)
    total = np.zeros_like(count)
    columns = {}
    for i in range(n_steps):
        prompt = prompts[:, i]
        long_feature = feature[prompt]
        right = expit(np.einsum("rbd,rd->rb", long_feature, theta))  # probability of action 1, (R, B)
        action = (actions[:, i] < right[..., None]).astype(int)
        reward = (outcomes[:, i] < bandit.success[prompt[..., None], action]).astype(float)
        value = base[prompt] + gain[prompt] * right
        assigned = _values(method, reward, value, prompt, count, total, i)
        score = (action - right[..., None])[..., None] * long_feature[:, :, None, :]
        gradient = ((reward - assigned)[..., None] * score).mean(axis=(1, 2))
        count[row, prompt, i] = GROUP_SIZE
        total[row, prompt, i] = reward.sum(axis=-1)
        theta = np.clip(theta + BETA / (i + OFFSET) * gradient, LOWEST, HIGHEST)
        if i + 1 in CHECKPOINTS:
            gap = optimum - bandit.objective(theta)
            columns[f"{method}|gap_after_{i + 1:05d}"] = gap
            slope2 = (bandit.gradient(theta) ** 2).sum(axis=1)
            columns[f"{method}|pl_ratio_after_{i + 1:05d}"] = slope2 / (2 * np.maximum(gap, 1e-300))
            columns[f"{method}|gradient_noise_after_{i + 1:05d}"] = ((gradient - bandit.gradient(theta)) ** 2).sum(
                axis=1
            )
    return columns


def _values(
    method: str, reward: np.ndarray, value: np.ndarray, prompt: np.ndarray, count: np.ndarray, total: np.ndarray, i: int
) -> np.ndarray:
    """Values of the completions of step i, shape (R, B, G)."""
    if method == "oracle":
        return value[..., None]
    groups = Groups(reward)
    if method != "kae":
        return make_baseline(method).leave_one_out().values(groups, Visits.empty(groups), step=i)
    bandwidth = max(BANDWIDTH_CONSTANT * max(i, 1) ** (2 / 3), 1.0)
    window = slice(max(0, i - math.ceil(bandwidth)), i)
    row = np.arange(len(prompt))[:, None]
    past_count, past_total = (a[row, prompt, window].astype(float) for a in (count, total))
    visits = Visits.of_successes(i - np.arange(window.start, i), past_total, past_count)
    return make_baseline("kae", bandwidth=bandwidth).values(groups, visits, step=i)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = [average(name, column) for name, column in samples.items()]
    for name, column in samples.items():
        method, _, measure = name.partition("|")
        if measure.startswith("gap"):
            oracle = samples[f"oracle|{measure}"]
            estimates.append(ratio_of_means(f"{method}|{measure}_ratio_to_oracle", column, oracle))
            # The runs share their random numbers, so that this is more exact than the difference of two ratios.
            ahead = column - samples[f"kae|{measure}"]
            estimates.append(ratio_of_means(f"{method}|kae_ahead_{measure}", ahead, oracle))
    return estimates


STUDY = Study(
    name="policy_regret",
    aims="Better gradients give a smaller suboptimality gap: KAE near the oracle, ahead of GRPO and REINFORCE++.",
    mechanisms=f"Logistic policy, {N_PROMPTS} conflicting prompts, B = {BATCH}, G = {GROUP_SIZE}, learning rate "
    f"{BETA:g} / (i + {OFFSET}), h_i = i^(-1/3), parameters in [{LOWEST:g}, {HIGHEST:g}]^2; common random numbers.",
    estimands="The gap between the best objective (by optimisation of the exact objective) and the learned policy's.",
    cells=grid(steps=(1000,)),
    replicates=9600,
    shard=240,
    simulate=simulate,
    summarise=summarise,
)
