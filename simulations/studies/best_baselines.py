"""How near each method comes to the best baseline of every prompt, where weights go with rewards and where not."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import Baseline
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, ratio_of_means

N_PROMPTS, N_VISITS, SCORED_FROM = 64, 30, 8
WALK = 0.13  # logits per visit, as in a real run
OF_PROMPT, SCALE, NOISE = 0.5, 0.4, 0.7  # standard deviations of log weights


@dataclass(frozen=True)
class Regime:
    """How success rates are spread and move, and how much more wrong answers weigh.

    mean, size: Of the Beta distribution of the first success rates.
    drift: Logits per visit, common to all prompts.
    ratio, slope: A wrong answer weighs ``ratio * (p / (1 - p))^slope`` right ones, and these ``(1 - p)^slope``: with
        ratio and slope 1 a softmax over two answers.
    of_prompt: Standard deviation over prompts of the log of that ratio.
    """

    mean: float
    size: float
    drift: float
    ratio: float
    slope: float
    of_prompt: float = OF_PROMPT


REGIMES = {
    "independent": Regime(0.5, 1.2, 0.0, 1.0, 0.0, of_prompt=0.0),
    "independent on average": Regime(0.5, 1.2, 0.0, 1.0, 0.0),
    "wrong weighs 4": Regime(0.5, 1.2, 0.0, 4.0, 0.0),
    "softmax, .6 to .9": Regime(0.6, 1.5, 0.08, 2.0, 1.0),
    "late, near .95": Regime(0.93, 8.0, 0.03, 4.0, 1.2),
}
PLAIN = ("none", "reinforce++", "rloo", "kae", "kae_eb", "bayes_filter")
WEIGHTED = ("reinforce++", "kae", "kae_eb")
BOUND, VALUE = "best_baseline", "oracle"


def values_and_weights(regime: Regime, streams: Streams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Success rates, and mean weights of right and of wrong answers; each (R, T, P)."""
    a, b = regime.mean * regime.size, (1 - regime.mean) * regime.size
    start = logit(streams.each("start", lambda rng: rng.beta(a, b, N_PROMPTS)).clip(1e-3, 1 - 1e-3))[:, None]
    moves = WALK * streams.normal("walk", N_VISITS - 1, N_PROMPTS)
    walk = np.concatenate([np.zeros_like(start), np.cumsum(moves, axis=1)], axis=1)
    logits = np.clip(start + walk + regime.drift * np.arange(N_VISITS)[:, None], -7, 7)
    own = regime.of_prompt * streams.normal("ratio", 1, N_PROMPTS)
    right = np.exp(SCALE * streams.normal("scale", 1, N_PROMPTS)) * expit(-logits) ** regime.slope
    return expit(logits), right, right * regime.ratio * np.exp(regime.slope * logits + own)


@dataclass(frozen=True, eq=False)
class World:
    """Completions that were drawn, and what they were drawn from.

    value, right, wrong (ndarray, shape (R, T, P)): Success rates, and mean weights of right and of wrong answers.
    reward, weight: ndarray, shape (R, T, P, G).
    """

    value: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    reward: np.ndarray
    weight: np.ndarray

    @property
    def best(self) -> np.ndarray:
        """Best baseline of each prompt and visit, (R, T, P, 1)."""
        missed = self.value * self.right, (1 - self.value) * self.wrong
        return (missed[0] / (missed[0] + missed[1]))[..., None]

    def noise(self, baseline: np.ndarray) -> np.ndarray:
        """E[W (R - b)^2] given the baselines, (R, T, P, G) or broadcastable, over the scored visits; (R,)."""
        missed = self.value * self.right, (1 - self.value) * self.wrong
        both = missed[0][..., None] * (1 - baseline) ** 2 + missed[1][..., None] * baseline**2
        return both[:, SCORED_FROM:].mean(axis=(1, 2, 3))


def drawn(regime: Regime, size: int, streams: Streams) -> World:
    """Simulated prompts with groups of ``size`` completions."""
    value, right, wrong = values_and_weights(regime, streams)
    reward = (streams.uniform("rewards", N_VISITS, N_PROMPTS, size) < value[..., None]).astype(float)
    spread = np.exp(NOISE * streams.normal("weights", N_VISITS, N_PROMPTS, size) - NOISE**2 / 2)
    return World(value, right, wrong, reward, np.where(reward > 0, right[..., None], wrong[..., None]) * spread)


def simulate(cell: Cell, streams: Streams) -> Samples:
    size = cell["group_size"]
    world = drawn(REGIMES[cell["regime"]], size, streams)
    noise, reward, weight = world.noise, world.reward, world.weight
    columns = {f"{BOUND}|noise": noise(world.best), f"{VALUE}|noise": noise(world.value[..., None])}
    for method in PLAIN:
        if method != "rloo" or size > 1:  # group means need two
            columns[f"{method}|noise"] = noise(served(make_baseline(method).leave_one_out(), reward))
    for method in WEIGHTED:
        columns[f"{method}, weighted|noise"] = noise(served(make_baseline(method).leave_one_out(), reward, weight))
    return columns


def served(
    baseline: Baseline, reward: np.ndarray, weight: np.ndarray | None = None, *, batches: int = 1, steps: Any = None
) -> np.ndarray:
    """Values of every completion of a run; (R, T, P, G) as the rewards.

    batches: Steps that a visit of all prompts takes, each with as many of them.
    steps: The first step of each visit, (T,); by default one visit follows the other.
    """
    by_prompt = [None if part is None else np.moveaxis(part, 1, -2) for part in (reward, weight)]
    series = Visits.of(0.0, *by_prompt)
    sums = {field.name: getattr(series, field.name) for field in fields(series)}
    sums = {name: column for name, column in sums.items() if column is not None and name != "lag"}
    carry, states, values = baseline.initial_carry(), [None] * batches, np.empty_like(reward)
    steps, size = batches * np.arange(reward.shape[1]) if steps is None else steps, reward.shape[2] // batches
    for t, turn in np.ndindex(reward.shape[1], batches):
        start, here = int(max(0, t - baseline.max_visits)), slice(turn * size, (turn + 1) * size)
        past = {name: column[..., here, start:t] for name, column in sums.items()}
        lag = np.broadcast_to((steps[t] - steps[start:t]).astype(float), past["count"].shape)
        groups = Groups(reward[:, t, here], weight=None if weight is None else weight[:, t, here])
        visits = Visits(lag=lag, **past, state=states[turn])
        step = baseline.serve(groups, visits, step=int(steps[t]) + turn, carry=carry)
        values[:, t, here], carry, states[turn] = step.values, step.carry, step.state  # noqa: PD011 (no frame)
    return values


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Every method's noise, its ratio to that of the best baseline, and of ``kae_eb`` what weights add to it."""
    bound = samples[f"{BOUND}|noise"]
    estimates = [average(f"{BOUND}|noise", bound)]
    for name, column in samples.items():
        method = name.partition("|")[0]
        if method != BOUND:
            estimates += [average(name, column), ratio_of_means(f"{method}|ratio_to_best", column, bound)]
    gain = samples["kae_eb, weighted|noise"] - samples["kae_eb|noise"]
    lost = ratio_of_means("kae_eb, weighted|over_plain", gain, bound)
    return [*estimates, lost]


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per method: its largest and its mean ratio to the best baseline's noise."""
    ratio = summary[summary["measure"] == "ratio_to_best"].groupby("method")["estimate"]
    frame = pd.DataFrame({"max_ratio_to_best": ratio.max(), "mean_ratio_to_best": ratio.mean()})
    return frame.reset_index().sort_values("max_ratio_to_best", ignore_index=True)


STUDY = Study(
    name="best_baselines",
    aims="When weights matter, and how near a baseline that is estimated with them comes to the best of each prompt.",
    mechanisms=f"{N_PROMPTS} prompts, all visited together {N_VISITS} times; logits walk at random; Bernoulli rewards; "
    "log-normal weights whose mean depends on the reward, by regime and prompt.",
    estimands=f"Noise of the gradient, E[W (R - b)^2], over visits {SCORED_FROM} and later, relative to that of "
    "b* = E[W R] / E[W] of each prompt and visit.",
    cells=grid(regime=tuple(REGIMES), group_size=(1, 2, 4, 8)),
    replicates=12,
    shard=12,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
