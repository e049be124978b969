"""The one-shot regime: one prompt, repeated B times in every batch (paper, figure 1 and its appendix)."""

import numpy as np
from scipy.special import expit, logit

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines.registry import FIXED_PARAMETERS
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, reduction

N_STEPS, FIRST_SCORED = 40, 10
START, PER_STEP = 0.36, 0.02  # accuracy of the prompt, and its rise in logits per step


def simulate(cell: Cell, streams: Streams) -> Samples:
    copies, group_size = cell["copies"], cell["group_size"]
    value = expit(logit(START) + PER_STEP * np.arange(N_STEPS))
    reward = (streams.uniform("rewards", N_STEPS, copies, group_size) < value[:, None, None]).astype(float)
    by_stream = ("kae_stream", "rloo") if group_size > 1 else ("kae_stream",)
    errors: dict[str, list[np.ndarray]] = {}
    for t in range(FIRST_SCORED, N_STEPS):
        for name in by_stream:
            errors.setdefault(name, []).append(_squared_error(name, reward, value, t, copies_as_one=False))
        for name in ("pooled", "kae"):
            errors.setdefault(name, []).append(_squared_error(name, reward, value, t, copies_as_one=True))
    labels = {"rloo": "grpo", "pooled": "pooled_oracle"}
    return {f"{labels.get(name, name)}|mse": np.mean(per_step, axis=0) for name, per_step in errors.items()}


def _squared_error(name: str, reward: np.ndarray, value: np.ndarray, t: int, *, copies_as_one: bool) -> np.ndarray:
    """Mean squared error of the values of one step, shape (R,); rows are streams, or the one prompt."""
    if copies_as_one:
        reward = reward.reshape(*reward.shape[:2], 1, -1)
    visits = Visits.of(np.arange(t, 0, -1), np.moveaxis(reward[:, :t], 1, 2))
    values = make_baseline(name, **FIXED_PARAMETERS.get(name, {})).values(Groups(reward[:, t]), visits, step=t)
    return ((values - value[t]) ** 2).mean(axis=(1, 2))


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    estimates = [average(name, column) for name, column in samples.items()]
    if "grpo|mse" in samples:
        estimates += [
            reduction(f"{name.partition('|')[0]}|reduction_vs_grpo_pct", column, samples["grpo|mse"])
            for name, column in samples.items()
            if name != "grpo|mse"
        ]
    return estimates


STUDY = Study(
    name="one_shot",
    aims="What KAE by stream gains over GRPO, and how far both stay from the oracle that pools a step's B G rewards.",
    mechanisms="One prompt, B copies of G completions at each step, success rate rising steadily.",
    estimands="The prompt's current value.",
    cells=grid(copies=(128,), group_size=(1, 4, 8)),
    replicates=40,
    shard=10,
    simulate=simulate,
    summarise=summarise,
)
