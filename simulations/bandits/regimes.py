"""Simulated prompts whose values do more than walk, each regime with the Bayes filter that knows its parameters."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from simulations.bandits.bayes_filter import Grid, Moves, known_values
from simulations.bandits.paths import START_MEAN, START_WITHIN, start_values
from simulations.harness import Streams

N_PROMPTS, N_VISITS, FEW_VISITS = 64, 30, 3
WALK, SLOW = 0.15, 0.05  # logits per visit
JUMP, SHOCK, DRIFT = 0.05, 2.5, 0.15  # probability per visit; logits; standard deviation over prompts, logits per visit
DEAD = 0.002  # success rate of a dead prompt
CONCENTRATION = 20.0  # of Beta rewards around their mean
GAPS, WALK_PER_STEP = (2, 25), 0.05
DRIFTS = np.linspace(-3.0, 3.0, 13)  # standard deviations at which the reference has a filter of its own
GRID = Grid(START_MEAN, START_WITHIN)


@dataclass(frozen=True, eq=False)
class World:
    """Completions, what they were drawn from, and what a filter that knows its parameters says of each.

    value: ndarray, shape (R, T, P).
    reward, known (ndarray, shape (R, T, P, G)): Rewards, and the reference's leave-one-out values.
    step (ndarray of int, shape (T,)): Training step of each visit; all prompts are visited together.
    """

    value: np.ndarray
    reward: np.ndarray
    known: np.ndarray
    step: np.ndarray


def _walked(streams: Streams, sd: np.ndarray | float, n_visits: int) -> np.ndarray:
    moves = np.broadcast_to(sd, (n_visits - 1,))[:, None] * streams.normal("walk", n_visits - 1, N_PROMPTS)
    walk = np.cumsum(moves, axis=1)
    return np.concatenate([np.zeros_like(walk[:, :1]), walk], axis=1)


def walk(streams: Streams, n_visits: int = N_VISITS) -> tuple[np.ndarray, np.ndarray, Moves]:
    """Logits walk by 0.15 a visit."""
    move = GRID.walk(WALK)
    start = logit(start_values(streams, N_PROMPTS))[:, None]
    return expit(start + _walked(streams, WALK, n_visits)), GRID.prior[None], lambda t, belief: belief @ move


def three_visits(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """As `walk`, three visits in all."""
    return walk(streams, FEW_VISITS)


def half_dead(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """As `three_visits`; half of the prompts hardly ever succeed, and do not move."""
    value, prior, moves = three_visits(streams)
    dead = streams.uniform("dead", N_PROMPTS) < 0.5
    grid = GRID.values
    at = np.zeros_like(prior[0])
    at[np.argmin(np.abs(grid - DEAD))] = 1.0
    value = np.where(dead[:, None], grid[np.argmin(np.abs(grid - DEAD))], value)
    both = np.stack([prior[0] / 2, at / 2])
    return value, both, lambda t, belief: np.stack([moves(t, belief[..., 0, :]), belief[..., 1, :]], axis=-2)


def jumps(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """With probability .05 a visit a value is drawn anew."""
    jumped = streams.uniform("jumps", N_VISITS, N_PROMPTS) < JUMP
    fresh = np.stack([start_values(streams, N_PROMPTS, f"fresh {t}") for t in range(N_VISITS)], axis=1)
    jumped[:, 0] = True
    newest = np.maximum.accumulate(np.where(jumped, np.arange(N_VISITS)[:, None], 0), axis=1)
    value = np.take_along_axis(fresh, newest, axis=1)
    prior = GRID.prior
    return value, prior[None], lambda t, belief: (1 - JUMP) * belief + JUMP * belief.sum(-1, keepdims=True) * prior


def shock(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """Logits walk by 0.05 a visit; after a third of the visits all gain 2.5 at once."""
    at, move = N_VISITS // 3, GRID.walk(SLOW)
    shifted = _shifted(GRID.logits, SHOCK)
    start = logit(start_values(streams, N_PROMPTS))[:, None]
    value = expit(start + _walked(streams, SLOW, N_VISITS) + SHOCK * (np.arange(N_VISITS) >= at)[:, None])
    return value, GRID.prior[None], lambda t, belief: belief @ move @ shifted if t == at else belief @ move


def _shifted(logits: np.ndarray, by: float) -> np.ndarray:
    """Transition of a move by so much; (K, K)."""
    spacing = logits[1] - logits[0]
    target = np.clip(logits + by, logits[0], logits[-1])
    return np.clip(1 - np.abs(logits - target[:, None]) / spacing, 0.0, None)


def own_drift(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """Each prompt's logit moves by an amount of its own at every visit, and walks by 0.05."""
    drift = DRIFT * streams.normal("drift", 1, N_PROMPTS)
    start = logit(start_values(streams, N_PROMPTS))[:, None]
    value = expit(start + _walked(streams, SLOW, N_VISITS) + drift * np.arange(N_VISITS)[:, None])
    share = np.exp(-0.5 * DRIFTS**2)
    prior = (share / share.sum())[:, None] * GRID.prior
    moves = np.stack([GRID.walk(SLOW) @ _shifted(GRID.logits, DRIFT * z) for z in DRIFTS])
    return value, prior, lambda t, belief: np.einsum("...dk,dkl->...dl", belief, moves, optimize=True)


def gaps(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """Prompts return after 2 or after 25 steps; logits walk by 0.05 a step."""
    sd = WALK_PER_STEP * np.sqrt(gap_lengths())
    transition = {float(s): GRID.walk(float(s)) for s in np.unique(sd)}
    start = logit(start_values(streams, N_PROMPTS))[:, None]
    value = expit(start + _walked(streams, sd, N_VISITS))
    return value, GRID.prior[None], lambda t, belief: belief @ transition[float(sd[t - 1])]


def gap_lengths() -> np.ndarray:
    """Steps between visits, the same for every replicate; (T - 1,)."""
    return np.random.default_rng(5).choice(GAPS, size=N_VISITS - 1)


def two_states(streams: Streams) -> tuple[np.ndarray, np.ndarray, Moves]:
    """Learning and forgetting: values are .05 or .9, and change with probability .06 a visit."""
    grid = GRID.values
    low, high = (int(np.argmin(np.abs(grid - p))) for p in (0.05, 0.9))
    change = streams.uniform("change", N_VISITS, N_PROMPTS) < np.r_[0.5, np.full(N_VISITS - 1, 0.06)][:, None]
    value = np.where(np.cumsum(change, axis=1) % 2 == 1, grid[high], grid[low])
    prior, move = np.zeros_like(grid), np.zeros((len(grid), len(grid)))
    prior[[low, high]] = 0.5
    move[[low, high], [low, high]], move[[low, high], [high, low]] = 0.94, 0.06
    return value, prior[None], lambda t, belief: belief @ move


REGIMES = {
    "walk .15": walk,
    "jumps, .05 a visit": jumps,
    "all +2.5 logits": shock,
    "own drift, sd .15": own_drift,
    "3 visits": three_visits,
    "3 visits, half dead": half_dead,
    "Beta rewards": walk,
    "gaps of 2 and 25": gaps,
    "two states": two_states,
}


def world(regime: str, group_size: int, streams: Streams) -> World:
    """One of `REGIMES`, drawn, with what its reference says."""
    value, prior, moves = REGIMES[regime](streams)
    kappa = CONCENTRATION if regime == "Beta rewards" else None
    reward = rewards_of(value, group_size, streams, kappa)
    return World(value, reward, known_values(reward, prior, moves, kappa=kappa), steps_of(regime, value.shape[1]))


def rewards_of(value: np.ndarray, group_size: int, streams: Streams, kappa: float | None = None) -> np.ndarray:
    """Rewards of 0 and 1 around values of shape (R, T, P), or Beta rewards of that concentration; (R, T, P, G)."""
    shape = (*value.shape[1:], group_size)
    if kappa is None:
        return (streams.uniform("rewards", *shape) < value[..., None]).astype(float)
    a, b = (np.clip(kappa * p, 1e-3, None)[..., None] for p in (value, 1 - value))
    gamma = [
        np.stack([rng.standard_gamma(np.broadcast_to(of[r], shape)) for r, rng in enumerate(streams.generators(n))])
        for n, of in (("above", a), ("below", b))
    ]
    return np.clip(gamma[0] / (gamma[0] + gamma[1]), 1e-6, 1 - 1e-6)


def steps_of(regime: str, n_visits: int) -> np.ndarray:
    """Training step of each visit of a regime, shape (T,)."""
    return np.concatenate([[0], np.cumsum(gap_lengths())]) if regime.startswith("gaps") else np.arange(n_visits)
