"""The paper's J-fold reuse of minibatches against fresh minibatches and epochs: what each leaves for KAE to smooth."""

import numpy as np

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines import Baseline
from kaestat.baselines.registry import FIXED_PARAMETERS
from kaestat.sampling import schedules
from simulations.bandits.paths import value_paths
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, ratio_of_means

N_PROMPTS, BATCH, N_STEPS, REPEATS, GROUP_SIZE = 512, 32, 240, 10, 4
SCORED = range(80, N_STEPS, 4)
STEP_SD = 0.02  # logits per step: a real run's .13 per epoch of some forty steps
METHODS = ("kae", "kae:bandwidth=80", "kae_eb", "kae_eb:bandwidth=80", "rloo", "reinforce++")


def make_schedule(kind: str, seed: int) -> np.ndarray:
    """Prompt indices of every step, shape (T, B)."""
    if kind == "reuse":
        return schedules.reuse(N_PROMPTS, BATCH, N_STEPS, repeats=REPEATS, seed=seed)
    return {"uniform": schedules.uniform, "epochs": schedules.epochs}[kind](N_PROMPTS, BATCH, N_STEPS, seed=seed)


def simulate(cell: Cell, streams: Streams) -> Samples:
    # One schedule for all replicates: results are conditional on it, as in Theorem 1.
    schedule = make_schedule(cell["schedule"], seed=streams.seed)
    value = value_paths("random_walk", streams, N_STEPS, N_PROMPTS, scale=STEP_SD)
    value = np.take_along_axis(value, schedule[None], axis=2)  # (R, T, B)
    reward = (streams.uniform("rewards", N_STEPS, BATCH, GROUP_SIZE) < value[..., None]).astype(float)
    errors: dict[str, list[np.ndarray]] = {method: [] for method in METHODS}
    history = []
    for t in SCORED:
        visits = past_visits(schedule, reward.sum(axis=-1), t)
        history.append(np.mean(np.sum((visits.count > 0) & (visits.lag < 10), axis=-1)))
        for method in METHODS:
            values = _baseline(method).values(Groups(reward[:, t]), visits, step=t)
            errors[method].append(((values - value[:, t, :, None]) ** 2).mean(axis=(1, 2)))
    columns = {f"{method}|mse": np.mean(per_step, axis=0) for method, per_step in errors.items()}
    return columns | {"visits_within_10_steps": np.full(len(streams), np.mean(history))}


def past_visits(schedule: np.ndarray, total: np.ndarray, t: int) -> Visits:
    """Past of the prompts of step t, shape (R, B, V); ``total`` holds reward sums, shape (R, T, B)."""
    step, prompt, place = np.nonzero(schedule[:t, None, :] == schedule[t][None, :, None])
    order = np.lexsort((step, prompt))
    prompt, step, place = prompt[order], step[order], place[order]
    rank = np.arange(len(prompt)) - np.searchsorted(prompt, prompt)
    shape = (BATCH, int(rank.max(initial=-1)) + 1)
    lag, count = np.zeros(shape), np.zeros(shape)
    lag[prompt, rank], count[prompt, rank] = t - step, GROUP_SIZE
    sums = np.zeros((len(total), *shape))
    sums[:, prompt, rank] = total[:, step, place]
    everywhere = np.broadcast_to(lag, sums.shape), np.broadcast_to(count, sums.shape)
    return Visits(lag=everywhere[0], count=everywhere[1], total=sums, total_sq=sums)


def _baseline(method: str) -> Baseline:
    name, _, bandwidth = method.partition(":bandwidth=")
    params = {"bandwidth": float(bandwidth)} if bandwidth else FIXED_PARAMETERS.get(name, {})
    return make_baseline(name, **params).leave_one_out()


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = [average(name, column) for name, column in samples.items()]
    for name, column in samples.items():
        method, bar, _ = name.partition("|")
        if bar:
            estimates.append(ratio_of_means(f"{method}|ratio_to_grpo", column, samples["rloo|mse"]))
    return estimates


STUDY = Study(
    name="reuse_schedule",
    aims="How much of KAE's gain needs the reuse of minibatches, and what a wider bandwidth does without it.",
    mechanisms=f"{N_PROMPTS} prompts, {BATCH} a step, G = {GROUP_SIZE}, logit random walks; reuse with J = {REPEATS}.",
    estimands="Current values of the prompts of the step.",
    cells=grid(schedule=("reuse", "uniform", "epochs")),
    replicates=40,
    shard=10,
    simulate=simulate,
    summarise=summarise,
)
