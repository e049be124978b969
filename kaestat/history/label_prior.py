"""Pass rates from difficulty labels, such as the quintiles of a public data set; for `Prior.of_labels`."""

from collections import defaultdict
from collections.abc import Hashable, Mapping

import numpy as np

ENOUGH = 3  # measured prompts of a label; with fewer, those of all labels stand for it
MOST = 1000  # completions that a label may count as


def rates_of_labels(
    labels: Mapping[Hashable, Hashable], measured: Mapping[Hashable, tuple[float, int]]
) -> dict[Hashable, tuple[float, int]]:
    """Rate and count of each prompt; see `kaestat.history.prior.Prior.of_labels`."""
    rates: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    for key, (mean, count) in measured.items():
        if not 0 <= mean <= 1 or count < 2:
            raise ValueError(
                f"measured: {key!r} has ({mean!r}, {count!r}); give a rate in [0, 1] of two or more completions."
            )
        if key in labels:
            rates[labels[key]].append((mean, count))
    together = [pair for pairs in rates.values() for pair in pairs]
    if len(together) < ENOUGH:
        raise ValueError(
            f"measured: {len(together)} of these prompts have a label; measure {ENOUGH} or more, some of each label."
        )
    worth = {label: _worth(pairs if len(pairs) >= ENOUGH else together) for label, pairs in rates.items()}
    of_any = _worth(together)
    known = {key: worth.get(label, of_any) for key, label in labels.items()}
    return known | dict(measured)


def _worth(pairs: list[tuple[float, int]]) -> tuple[float, int]:
    """Mean of rates, and as how many completions it counts."""
    rate, count = np.array(pairs, dtype=float).T
    mean = float(np.mean(rate))
    noise = float(np.mean(rate * (1 - rate) / (count - 1)))
    spread = max(float(np.var(rate, ddof=1)) - noise, mean * (1 - mean) / (MOST + 1))
    size = mean * (1 - mean) / spread - 1 if spread > 0 else float(MOST)
    return mean, int(np.clip(round(size), 1, MOST))
