"""The numbers of "Start with what you know": what a prior is worth, on a real run and with a prior of another policy.

``PYTHONPATH=. python docs/figures/warm_start_numbers.py``, in a checkout, writes ``warm_start_other_policy.csv`` beside
this file within a minute, and ``warm_start_real_run.csv`` where ``KAESTAT_DATA`` names the folder of the real run's
log. tests/docs checks that the files are what it writes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat import AdvantageEstimator, Prior
from kaestat.core.storage import write_atomically

FOLDER = Path(__file__).parent
REAL_LOG = "acc_step_500_dev.json"
N_VISITS, GROUP, DRAWS = 44, 8, 3
METHODS = (
    "kae_eb",
    "kae_eb:kernel=exponential,bandwidth=12",
    "bayes_filter",
    "kae",
    "kae:bandwidth=20",
    "kalman",
    "spo",
    "logit_shift",
)
N_EPOCHS, TURNS, N_PROMPTS, N_REPLICATES = 8, 10, 200, 6
OTHER_POLICIES = [
    (method, count, off)
    for method in ("kae_eb", "kae", "kalman", "bayes_filter")
    for count in (8, 64)
    for off in (0.0, 1.5)
]


def successes(path: Path) -> np.ndarray:
    """Successes among the eight completions of the first 44 visits of each prompt of the real run, shape (P, V)."""
    content = json.loads(path.read_text())
    return np.array([[round(GROUP * rate) for rate in rates[:N_VISITS]] for rates in content.values()])


def squared_errors(method: str, of_visits: np.ndarray, *, warm: bool, seed: int) -> np.ndarray:
    """Unbiased squared errors of the values of all visits but the first, shape (P, V - 1).

    A visit has one completion, drawn from the group of eight, and its value is held against the mean of the other
    seven. The first visit has one as well, or it is a prior of all eight.
    """
    rng = np.random.default_rng(seed)
    prompts = list(range(len(of_visits)))
    estimator = AdvantageEstimator(method)
    errors = []
    for visit, k in enumerate(of_visits.T):
        reward = (rng.random(len(k)) < k / GROUP).astype(float)
        if visit == 0 and warm:
            estimator.add_prior(Prior.of_rates(prompts, k / GROUP, np.full(len(k), GROUP), step=0))
            continue
        estimator.step(prompts, reward, visit)
        mean = (k - reward) / (GROUP - 1)
        errors.append((mean - estimator.values) ** 2 - mean * (1 - mean) / (GROUP - 2))  # noqa: PD011
    return np.array(errors[1 - len(of_visits.T) :]).T


def real_run(of_visits: np.ndarray) -> pd.DataFrame:
    """``method, warm, visits, mse, se``: over all visits but the first, and visits 1 to 5; errors over prompts."""
    rows = []
    for method in METHODS:
        for warm in (True, False):
            found = [squared_errors(method, of_visits, warm=warm, seed=seed) for seed in range(DRAWS)]
            for visits, part in (("all", slice(None)), ("1-5", slice(5))):
                of_prompts = np.mean(found, axis=0)[:, part].mean(axis=1)
                se = of_prompts.std(ddof=1) / len(of_prompts) ** 0.5
                rows.append((method, warm, visits, of_prompts.mean(), se))
    return pd.DataFrame(rows, columns=["method", "warm", "visits", "mse", "se"])


def simulated(rng: np.random.Generator) -> np.ndarray:
    """Values of each epoch and prompt: logits that walk, with a common drift; shape (E, P)."""
    steps = rng.normal(0.05, 0.2, (N_EPOCHS, N_PROMPTS))
    return _expit(rng.normal(-0.5, 1.8, N_PROMPTS) + np.cumsum(steps, axis=0))


def errors_of_epochs(method: str, count: int, off: float, seed: int) -> np.ndarray:
    """Mean squared errors in each epoch, without a prior and with one of a policy ``off`` logits worse; (2, E).

    Prompts come in turns, once an epoch of ten steps, with one completion each.
    """
    rng = np.random.default_rng([seed, count])
    value = simulated(rng)
    reward = (rng.random(value.shape) < value).astype(float)
    prompts = np.arange(N_PROMPTS)
    sampled = _expit(np.log(value[0] / (1 - value[0])) - off)
    prior = Prior.of_rates(prompts, rng.binomial(count, sampled) / count, np.full(N_PROMPTS, count))
    errors = np.zeros((2, N_EPOCHS, N_PROMPTS))
    estimators = AdvantageEstimator(method), AdvantageEstimator(method, prior=prior)
    for estimator, error in zip(estimators, errors, strict=True):
        for step in range(N_EPOCHS * TURNS):
            epoch, here = step // TURNS, prompts[step % TURNS :: TURNS]
            estimator.step(here, reward[epoch, here], step)
            error[epoch, here] = (estimator.values - value[epoch, here]) ** 2  # noqa: PD011
    return errors.mean(axis=-1)


def other_policies() -> pd.DataFrame:
    """``method, count, off, epochs, cold, warm, se``: squared errors, and the standard error of their difference."""
    rows = []
    for method, count, off in OTHER_POLICIES:
        errors = np.array([errors_of_epochs(method, count, off, seed) for seed in range(N_REPLICATES)])
        for epochs, part in (("first", slice(1)), ("last four", slice(-4, None))):
            cold, warm = errors[:, :, part].mean(axis=-1).T
            se = (warm - cold).std(ddof=1) / N_REPLICATES**0.5
            rows.append((method, count, off, epochs, cold.mean(), warm.mean(), se))
    return pd.DataFrame(rows, columns=["method", "count", "off", "epochs", "cold", "warm", "se"])


def _expit(logit: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logit))


if __name__ == "__main__":
    log = Path(os.environ.get("KAESTAT_DATA", "")) / REAL_LOG
    if log.is_file():
        write_atomically(
            FOLDER / "warm_start_real_run.csv", real_run(successes(log)).to_csv(index=False, float_format="%.6g")
        )
    write_atomically(FOLDER / "warm_start_other_policy.csv", other_policies().to_csv(index=False, float_format="%.6g"))
