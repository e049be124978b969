"""Where to spend completions, with feedback: the policy is trained on what was sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.optimize import minimize

from kaestat.sampling import POLICIES, Draw
from simulations.bandits.sampled_training import Way, completions, training
from simulations.bandits.softmax import SoftmaxBandit, rule_bandit
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.performance import paired_difference
from simulations.harness.study import grid

# Bias and variance: states that a short run under each policy has reached, and many draws from each.
SMALL = {"n_prompts": 96, "n_actions": 6, "n_features": 16}
SMALL_BUDGET, MOST, STEPS_BEFORE, DRAWS = 32, 4, 30, 100
RATE_BEFORE = 0.8

LARGE = {"n_prompts": 512, "n_actions": 8, "n_features": 32}
BUDGET, STEPS = 128, 120
EXCEPTIONS, SPREAD = 0.3, 5.0  # half of the values begin below .02 or above .98
CHECKPOINTS = (0, 15, 30, 60, 90, 120)
EDGES = (0.0, 0.02, 0.2, 0.5, 0.8, 0.98, 1.0)  # of values before training
SOLVED = 0.98
REFERENCE = "uniform"
WAYS = {
    "grpo": Way("grpo", group_size=8),
    "uniform": Way(),
    "neyman": Way(policy="neyman"),
    "neyman, clipped": Way(policy="neyman", correction="clipped"),
    "neyman, uncorrected": Way(policy="neyman", correction="none"),
    "near_half": Way("grpo", "near_half", group_size=8, floor=0.0, correction="none"),
    "mopps": Way("grpo", "mopps", group_size=8, floor=0.0, correction="none"),
}
# Of Adam: the best of .4, .8, 1.6, 3.2 and 6.4 for the last objective, on other problems.
RATES = dict.fromkeys(WAYS, 3.2) | {"neyman, clipped": 1.6, "grpo": 1.6, "near_half": 0.8, "mopps": 0.8}

N_CONFLICT, STARTS, BOX = 96, 2, [(-10.0, 10.0)] * 2
OBJECTIVES = ("value", "uncorrected")


def simulate(cell: Cell, streams: Streams) -> Samples:
    one = {"bias": _drawn_again, "learning": _learned, "limit": _optima}[cell["design"]]
    rngs = [streams.generators(name) for name in ("problem", "training", "draws")]
    rows = [one(cell, *each) for each in zip(*rngs, strict=True)]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _drawn_again(
    cell: Cell, problem: np.random.Generator, run: np.random.Generator, draws: np.random.Generator
) -> dict[str, float]:
    """Gradient estimates from one state, against the exact gradient."""
    bandit, way = rule_bandit(**SMALL, exceptions=EXCEPTIONS, spread=SPREAD, rng=problem), Way(policy=cell["policy"])
    sampler = way.sampler(SMALL["n_prompts"], SMALL_BUDGET, int(run.integers(2**31)), MOST)
    *_, (theta, _) = training(bandit, way, sampler, steps=STEPS_BEFORE, rate=RATE_BEFORE, rng=run)
    drawn = [sampler.draw(STEPS_BEFORE) for _ in range(DRAWS)]
    corrected, plain = gradient_estimates(bandit, theta, drawn, draws)
    exact, size = bandit.gradient(theta), bandit.prompt_gradients(theta)
    expected = np.array([draw.plan.expected for draw in drawn if draw.plan is not None])
    value = drawn[0].plan.prediction.value if drawn[0].plan is not None else np.empty(0)
    uniform = np.full((1, len(value)), SMALL_BUDGET / len(value))
    variance = partial(formula, noise=completion_noise(bandit, theta, value), gradient2=(size**2).sum(axis=-1))
    return {
        "gradient2": float(exact @ exact),
        "along": float((corrected.mean(axis=0) - exact) @ exact),
        "corrected": _squared_bias(corrected, exact),
        "plain": _squared_bias(plain, exact),
        "spread": float(((corrected - exact) ** 2).sum(axis=1).mean()),
        "formula": float(variance(expected).mean()),
        "formula_uniform": float(variance(uniform)[0]),
    }


def gradient_estimates(
    bandit: SoftmaxBandit, theta: np.ndarray, draws: Sequence[Draw], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of the gradient, one per draw, with the correction and without; shape (D, d) each.

    The baseline is what was predicted from the past.
    """
    prompts = np.concatenate([np.asarray(draw.rows()) for draw in draws])
    factor = np.concatenate([np.repeat(draw.correction, draw.counts) for draw in draws])
    value = np.concatenate([draw.plan.prediction.value[np.asarray(draw.rows())] for draw in draws if draw.plan])
    reward, score = completions(bandit, theta, prompts, rng)
    terms = (reward - value)[:, None] * score
    sums = [(weight[:, None] * terms).reshape(len(draws), -1, len(theta)) for weight in (factor, np.ones(len(factor)))]
    return sums[0].mean(axis=1), sums[1].mean(axis=1)


def completion_noise(bandit: SoftmaxBandit, theta: np.ndarray, value: np.ndarray) -> np.ndarray:
    """``E (R - b)^2 |s|^2`` of one completion of each prompt, by enumeration; shape (m,)."""
    norm2 = (bandit.scores(theta) ** 2).sum(axis=-1)
    error2 = bandit.success * (1 - value[:, None]) ** 2 + (1 - bandit.success) * value[:, None] ** 2
    return (bandit.policy(theta) * error2 * norm2).sum(axis=-1)


def formula(expected: np.ndarray, *, noise: np.ndarray, gradient2: np.ndarray) -> np.ndarray:
    """Variance of the corrected estimate, for independent numbers that are the floor or the ceiling of the expected.

    ``sum pi^2 (m / nu - |g|^2 (1 - E n (n - 1) / nu^2))``: systematic sampling is within joint inclusions of it.
    """
    whole = np.floor(expected)
    pairs = whole * (whole - 1 + 2 * (expected - whole))
    terms = noise / expected - gradient2 * (1 - pairs / expected**2)
    return terms.sum(axis=-1) / expected.shape[-1] ** 2


def _squared_bias(estimates: np.ndarray, exact: np.ndarray) -> float:
    """Without bias of its own: the halves' deviations are independent."""
    first, second = (half.mean(axis=0) - exact for half in (estimates[::2], estimates[1::2]))
    return float(first @ second)


def _learned(
    cell: Cell, problem: np.random.Generator, run: np.random.Generator, draws: np.random.Generator
) -> dict[str, float]:
    """Training with feedback, at an equal number of completions."""
    way = WAYS[cell["way"]]
    bandit = rule_bandit(**LARGE, exceptions=EXCEPTIONS, spread=SPREAD, rng=problem)
    rate = cell.factors.get("rate", RATES[cell["way"]])
    sampler = way.sampler(LARGE["n_prompts"], BUDGET, int(draws.integers(2**31)))
    path, least, of_solved = [], np.inf, []
    for theta, draw in training(bandit, way, sampler, steps=STEPS, rate=rate, rng=run):
        path.append(theta)
        relative = draw.plan.expected * LARGE["n_prompts"] / BUDGET if draw.plan is not None else np.empty(0)
        least = min(least, relative.min())
        if len(path) > STEPS // 2:
            solved = bandit.values(theta) > SOLVED
            of_solved.append(relative[solved].mean())
    columns = {f"objective_{step}": float(bandit.objective(path[step])) for step in CHECKPOINTS}
    return columns | {"least": least, "of_solved": float(np.mean(of_solved))} | _by_start(bandit, path[-1])


def _optima(
    cell: Cell, problem: np.random.Generator, run: np.random.Generator, draws: np.random.Generator
) -> dict[str, float]:
    """The optimum of the mean value, and of what uncorrected sampling maximises, where prompts conflict."""
    bandit, columns = conflict_bandit(problem), {}
    starts = np.concatenate([np.zeros((1, 2)), 2 * run.normal(size=(STARTS, 2))])
    for name in OBJECTIVES:
        tried = [minimize(_descent(bandit, name), start, jac=True, method="L-BFGS-B", bounds=BOX) for start in starts]
        theta = min(tried, key=lambda found: found.fun).x
        columns |= {f"{name}|{measure}": number for measure, number in _levels(bandit, theta).items()}
    return columns | {f"start|{measure}": number for measure, number in _levels(bandit, np.zeros(2)).items()}


def conflict_bandit(rng: np.random.Generator) -> SoftmaxBandit:
    """What raises middling prompts from .35 towards .65 harms mastered ones, which fall from nearly 1 towards .72.

    Half of the prompts are of either kind; two parameters, the same two answers for all, and prompts differ in how far
    they follow, so that the optima are inside.
    """
    follows = rng.lognormal(sigma=0.7, size=(N_CONFLICT, 1)) * np.abs(rng.normal(size=(N_CONFLICT, 2)))
    mastered = (np.arange(N_CONFLICT) < N_CONFLICT // 2)[:, None]
    success = np.where(mastered, [1.0, 0.72], [0.35, 0.65])
    base = np.where(mastered, [0.0, -2.0], [0.0, 0.0])
    return SoftmaxBandit(np.stack([np.zeros_like(follows), follows], axis=1), success, base)


def _descent(bandit: SoftmaxBandit, objective: str) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Minus an objective and its gradient."""

    def both(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value = bandit.values(theta)
        if objective == "value":
            return -float(value.mean()), -bandit.gradient(theta)
        weight = np.sqrt(value * (1 - value)) * 8 / np.pi
        return -float(uncorrected_objective(value).mean()), -(weight @ bandit.prompt_gradients(theta)) / len(value)

    return both


def _levels(bandit: SoftmaxBandit, theta: np.ndarray) -> dict[str, float]:
    mastered, middling = np.split(bandit.values(theta), 2)
    return {"value": (mastered.mean() + middling.mean()) / 2, "mastered": mastered.mean(), "middling": middling.mean()}


def _by_start(bandit: SoftmaxBandit, theta: np.ndarray) -> dict[str, float]:
    """What values have gained, by where they began."""
    start, value = bandit.values(np.zeros_like(theta)), bandit.values(theta)
    place = np.clip(np.searchsorted(EDGES, start) - 1, 0, len(EDGES) - 2)
    return {f"gain_{k}": float((value - start)[place == k].mean()) for k in range(len(EDGES) - 1)}


def uncorrected_objective(value: np.ndarray) -> np.ndarray:
    """``int_0^V sqrt(p (1 - p)) dp``, divided by what it is at V = 1: what sampling by the deviation maximises."""
    centred = 2 * value - 1
    return (centred * np.sqrt(value * (1 - value)) * 2 + np.arcsin(centred)) / np.pi + 0.5


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Biases as shares of the squared gradient; of the optima also the share of the gain that is kept."""
    if cell["design"] == "learning":
        return [average(f"{cell['way']}|{measure}", column) for measure, column in samples.items()]
    if cell["design"] == "limit":
        gains = [samples[f"{name}|value"] - samples["start|value"] for name in ("uncorrected", "value")]
        estimates = [average(name, column) for name, column in samples.items()]
        return [*estimates, ratio_of_means("uncorrected|share_of_gain", *gains)]
    exact = samples["gradient2"]
    ratios = {
        "along": (samples["along"], exact),
        "squared_bias": (samples["corrected"], exact),
        "squared_bias_uncorrected": (samples["plain"], exact),
        "variance_to_formula": (samples["spread"], samples["formula"]),
        "worth": (samples["formula_uniform"], samples["formula"]),
    }
    return [ratio_of_means(f"{cell['policy']}|{measure}", *columns) for measure, columns in ratios.items()]


def compare(cells: Sequence[Cell], samples: Sequence[Samples]) -> list[Estimate]:
    """The last objective of each way less that of uniform sampling, on the same problems."""
    found = {cell.factors.get("way"): sample for cell, sample in zip(cells, samples, strict=True)}
    if REFERENCE not in found:
        return []
    last = f"objective_{STEPS}"
    return [
        paired_difference(f"{way}|difference", sample[last], found[REFERENCE][last])
        for way, sample in found.items()
        if way != REFERENCE
    ]


STUDY = Study(
    name="sampling",
    aims="Drawing prompts by their predicted values: is the corrected gradient unbiased under every policy, does its "
    "variance follow the formula, what is learned from equal completions, and what is lost without the correction?",
    mechanisms=f"One right action of {LARGE['n_actions']} per prompt, by a linear rule with {EXCEPTIONS:.0%} "
    f"exceptions; a softmax policy with {LARGE['n_features']} shared parameters, trained by Adam on what is sampled, "
    f"{BUDGET} of {LARGE['n_prompts']} prompts' completions a step (bias: {SMALL_BUDGET} of {SMALL['n_prompts']}).",
    estimands="The exact gradient of the mean value; the mean value after training.",
    methods=(*POLICIES, *WAYS, *OBJECTIVES),
    measures=(
        "along",
        "squared_bias",
        "squared_bias_uncorrected",
        "variance_to_formula",
        "worth",
        "objective",
        "difference",
        "gain",
        "least",
        "of_solved",
        "value",
        "mastered",
        "middling",
        "share_of_gain",
    ),
    cells=(
        *grid(design=("bias",), policy=tuple(POLICIES)),
        *grid(design=("learning",), way=tuple(WAYS)),
        *grid(design=("limit",)),
    ),
    replicates=8,
    shard=4,
    simulate=simulate,
    summarise=summarise,
    compare=compare,
    common=("policy", "way"),
)
