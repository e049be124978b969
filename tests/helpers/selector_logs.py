"""Small logs for the selectors, as the slow references and as the library read them."""

import numpy as np

from kaestat import RewardLog, Visits
from tests.helpers.cases import visits
from tests.helpers.selector_references import Log


def random_log(
    seed: int, *, sizes=(1, 2, 3, 4), regular: bool = False, prompts: int = 5, visits: int = 9, trend: float = 0.0
) -> Log:
    """Bernoulli rewards of drifting prompts; ``regular`` visits every prompt at the same times."""
    rng = np.random.default_rng(seed)
    log = []
    for _ in range(prompts):
        n = visits if regular else int(rng.integers(2, visits + 1))
        times = np.arange(n) if regular else np.sort(rng.choice(4 * visits, size=n, replace=False))
        values = np.clip(rng.uniform(0.2, 0.8) + 0.1 * np.cumsum(rng.normal(size=n)) + trend * times, 0, 1)
        log.append(
            [
                (float(t), (rng.random(rng.choice(sizes)) < value).astype(float).tolist())
                for t, value in zip(times, values, strict=True)
            ]
        )
    return log


LOGS = {
    "ragged": random_log(1),
    "regular": random_log(2, sizes=(4,), regular=True),
    "one completion": random_log(3, sizes=(1,)),
    "two completions": random_log(4, sizes=(2,), prompts=8),
}
GRID = (1.5, 2.5, 4.0, 7.0, 12.0, 30.0)


def visits_of(log: Log, *, now: float | None = None) -> Visits:
    """The whole log as past visits seen from ``now``."""
    now = 1.0 + max(prompt[-1][0] for prompt in log) if now is None else now
    return visits(*[[(now - time, rewards) for time, rewards in prompt] for prompt in log])


def reward_log(log: Log) -> RewardLog:
    """The same log as the library's own; times must be whole.

    In the order of time, so that a log built from the frame of this one has its rows in the same places.
    """
    rows = [(p, t, z) for p, prompt in enumerate(log) for t, rewards in prompt for z in rewards]
    rows.sort(key=lambda row: row[1])
    prompt, time, reward = zip(*rows, strict=True)
    return RewardLog(prompt, time, reward)


def stretched(log: Log, factor: float) -> Log:
    """Times multiplied."""
    return [[(factor * t, rewards) for t, rewards in prompt] for prompt in log]
