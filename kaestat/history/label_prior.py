"""A prior from difficulty labels, such as the quintiles of a public data set, and a few measured pass rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping

import numpy as np

from kaestat.history.prior import BEFORE_THE_RUN, Prior

ENOUGH = 3  # measured prompts of a label; with fewer, those of all labels stand for it
MOST = 1000  # completions that a label may count as


def prior_of_labels(
    labels: Mapping[Hashable, Hashable],
    measured: Mapping[Hashable, tuple[float, int]],
    *,
    step: int = BEFORE_THE_RUN,
) -> Prior:
    """The prior of prompts that have a label: the mean pass rate of it, which counts for what it tells.

    Labels say how hard a prompt is, and not how often this policy solves it. Some prompts that were measured tell what
    a label means. It counts as the completions that would tell as much: with the mean m of the rates of a label and
    their variance t beyond the noise of their measurement, ``m (1 - m) / t - 1``, as of a Beta distribution. So labels
    from another model, or its pass rates cut into quantiles, count for no more than they are worth here.

    Parameters
    ----------
    labels : mapping of prompt ids to hashables
        Of any prompts; labels mean nothing beyond being the same or not.
    measured : mapping of prompt ids to (mean reward, completions)
        Pass rates of some prompts with the policy that training starts from, each of two completions or more. These
        prompts have their own rate as their prior, and no label's.
    step : int
        See `Prior`.

    Returns
    -------
    Prior

    Raises
    ------
    ValueError
        If fewer than three measured prompts have a label, a rate is outside of [0, 1], or a count is below 2.

    Examples
    --------
    >>> labels = {"a": "easy", "b": "easy", "c": "easy", "d": "easy", "e": "hard"}
    >>> prior = prior_of_labels(labels, {"a": (0.75, 8), "b": (1.0, 8), "c": (0.5, 8)})
    >>> prior.prompt_ids, prior.sums["count"].tolist()
    (['a', 'b', 'c', 'd', 'e'], [8.0, 8.0, 8.0, 3.0, 3.0])
    """
    rates: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    for key, (mean, count) in measured.items():
        if not 0 <= mean <= 1 or count < 2:
            raise ValueError(f"measured: {key!r} has ({mean!r}, {count!r}); give a rate in [0, 1] of two or more.")
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
    return Prior.of_mapping(known | dict(measured), step=step)


def _worth(pairs: list[tuple[float, int]]) -> tuple[float, int]:
    """Mean of rates, and as how many completions it counts."""
    rate, count = np.array(pairs, dtype=float).T
    mean = float(np.mean(rate))
    noise = float(np.mean(rate * (1 - rate) / (count - 1)))
    spread = max(float(np.var(rate, ddof=1)) - noise, mean * (1 - mean) / (MOST + 1))
    size = mean * (1 - mean) / spread - 1 if spread > 0 else float(MOST)
    return mean, int(np.clip(round(size), 1, MOST))
