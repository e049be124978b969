"""A training step's KAE advantages against verl's stateless vectorised GRPO, on the same rows.

Timed on our side: all of ``AdvantageEstimator("kae", bandwidth=10).step``: checking, grouping the rows by id, looking
up ten past visits of every prompt, values, advantages in the order and type of the rewards, and recording the step. On
verl's: all of ``compute_grpo_vectorized_outcome_advantage``: grouping, means, standard deviations, advantages. Both
get a float32 torch tensor of rewards on the CPU (verl as one token per completion, its cheapest shape, with its mask)
and the same NumPy array of ids, built beforehand. verl's trainer makes UUID strings its ids, and to those the bound
applies. Integers it takes for group numbers as they stand, with no grouping at all; those rows are for information.
Torch has one thread: on busy cores a second one only makes it wait.

verl is not a dependency of this project. Its function is found where ``verl.trainer.ppo.core_algos`` can be imported;
for that verl 0.9.1 itself can be installed without its dependencies, with ray, omegaconf, transformers, tensordict and
codetiming beside it.
"""

import uuid
from collections.abc import Callable
from itertools import count

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import AdvantageEstimator

CODE = (
    "kaestat/core/arrays.py",
    "kaestat/core/samples.py",
    "kaestat/estimator",
    "kaestat/baselines/kae.py",
    "kaestat/history",
)
CLAIM = "A step of KAE with ten visits of history costs less than verl's stateless grpo_vectorized on the same rows"
SIZES = {"full": ((256, 8, 200), (16_384, 8, 15)), "tiny": ((4, 2, 2),)}
PAST_VISITS = 10


def run(size: str = "full") -> list[Row]:
    """Seconds of both and their ratio, by number of prompts, type of id and order of rows."""
    rows = []
    for n_prompts, group, repetitions in SIZES[size]:
        for id_type in ("string", "integer"):
            for order in ("grouped", "shuffled"):
                rows += _case(n_prompts, group, id_type, order, repetitions)
    return rows


def _case(n_prompts: int, group: int, id_type: str, order: str, repetitions: int) -> list[Row]:
    case = f"{n_prompts:,} × {group}, {id_type} ids, {order} rows"
    ids, reward = _samples(n_prompts, group, id_type, order)
    verl, missing = _verl(ids, reward)
    pieces = {"kae": _kae(ids, _as_torch(reward))} | ({"verl": verl} if verl else {})
    seconds = interleaved(pieces, repetitions=repetitions)
    quantity, bound = "kae step / verl grpo_vectorized", 1.0 if id_type == "string" else None
    return [
        *(Row(case, f"{name} step", "ms", estimate(1e3 * sample)) for name, sample in seconds.items()),
        Row(case, quantity, "ratio", ratio(seconds["kae"], seconds["verl"]) if verl else None, bound, note=missing),
    ]


def _samples(n_prompts: int, group: int, id_type: str, order: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    prompts = np.arange(n_prompts)
    if id_type == "string":
        prompts = np.array([str(uuid.UUID(bytes=rng.bytes(16))) for _ in prompts], dtype=object)
    ids = np.repeat(prompts, group)
    if order == "shuffled":
        ids = rng.permutation(ids)
    return ids, (rng.random(len(ids)) < 0.5).astype(np.float32)


def _kae(ids: np.ndarray, reward: object) -> Callable[[], object]:
    estimator, step = AdvantageEstimator("kae", bandwidth=10), count()
    for _ in range(PAST_VISITS):
        estimator.step(ids, reward, step=next(step))
    return lambda: estimator.step(ids, reward, step=next(step))


def _verl(ids: np.ndarray, reward: np.ndarray) -> tuple[Callable[[], object] | None, str]:
    try:
        from verl.trainer.ppo.core_algos import compute_grpo_vectorized_outcome_advantage
    except ImportError as error:
        return None, f"The ratio to verl was not measured: verl cannot be imported here ({error})."
    token_rewards = _as_torch(reward)[:, None]
    mask = token_rewards.new_ones(token_rewards.shape)
    return lambda: compute_grpo_vectorized_outcome_advantage(token_rewards, mask, ids), ""


def _as_torch(reward: np.ndarray) -> object:
    try:
        import torch
    except ImportError:
        return reward
    torch.set_num_threads(1)
    return torch.from_numpy(reward.copy())
