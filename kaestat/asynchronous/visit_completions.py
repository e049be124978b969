"""Completions with the sums of a visit, for formulas that need completions when only sums are known."""

import math
from dataclasses import fields

import numpy as np

from kaestat.asynchronous.late_history import hidden
from kaestat.core.arrays import Groups, Visits, ratio

APART = 1e-9  # relative difference of two rewards up to which they count as equal, and rounding of whole numbers
ROUNDING = 1e-14  # of a mean square
NOTHING = 1e-12  # share of a visit's weight up to which a completion's weight is rounding of 0


def completions_of(visits: Visits) -> Groups:
    """One group of shape (P, G) per visit of shape (P, 1): as many completions as it has, with its mean and variance.

    Rewards of 0 and 1 are what they were; of others, half lie above the mean and half below. Linear and quadratic
    functions of the rewards are the same as with the actual completions. With weights, the completions of each of the
    two rewards have at most two weights, which keep the visit's sum and sum of squares.
    """
    high, low, above = _two_rewards(visits)
    count, weight = visits.count, None
    place = np.arange(int(count.max(initial=0)))
    present, is_high = place < count, place < above
    if visits.weight is not None:
        mean = _share(visits.carried, visits.mass, high)
        high, low = np.maximum(high, mean), np.minimum(low, mean)  # the weighted mean is between them
        apart = (above > 0) & (above < count) & (high - low > APART * (np.abs(high) + np.abs(low)))
        mean_sq = _share(visits.mass_sq_carried, visits.mass_sq, mean)
        of_high = [
            np.where(apart, np.clip(_share(at - low, high - low, at), 0.0, 1.0), _share(above, count, count))
            for at in (mean, mean_sq)
        ]
        of_low = [1 - share for share in of_high]
        sums = visits.mass, visits.mass_sq
        heavy = _weights(place, above, *(s * each for s, each in zip(of_high, sums, strict=True)))
        light = _weights(place - above, count - above, *(s * each for s, each in zip(of_low, sums, strict=True)))
        weight = np.where(is_high, heavy, light)
        weight = np.where(present & (weight > NOTHING * visits.mass), weight, 0.0)
    return Groups(np.where(present, np.where(is_high, high, low), 0.0), mask=present, weight=weight)


def _two_rewards(visits: Visits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A high and a low reward, and how many completions have the high one; (P, 1) each."""
    count = visits.count
    above = np.where(visits.total == visits.total_sq, visits.total, np.floor(count / 2))
    return *_two(_share(visits.total, count, 0.0), _share(visits.total_sq, count, 0.0), count, above), above


def _weights(place: np.ndarray, count: np.ndarray, total: np.ndarray, total_sq: np.ndarray) -> np.ndarray:
    """Weight of the completion at each place, with a sum and a sum of squares: half are heavy, or fewer if need be.

    No weight is negative if at most ``total^2 / total_sq`` are heavy.
    """
    heavy = np.minimum(np.floor(count / 2), np.floor(_share(total**2, total_sq, 0.0) + APART))
    high, low = _two(_share(total, count, 0.0), _share(total_sq, count, 0.0), count, heavy)
    return np.where(place < heavy, high, np.maximum(low, 0.0))


def _two(mean: np.ndarray, mean_sq: np.ndarray, count: np.ndarray, above: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers, of which ``above`` of ``count`` are the higher, with a mean and a mean square."""
    below, variance = count - above, mean_sq - mean**2
    variance = np.where(variance > ROUNDING * mean_sq, variance, 0.0)
    high = mean + np.sqrt(variance * below / np.maximum(above, 1.0))
    return high, mean - np.sqrt(variance * above / np.maximum(below, 1.0))


def _share(part: np.ndarray, whole: np.ndarray, otherwise: np.ndarray | float) -> np.ndarray:
    return ratio(part, whole, otherwise, np)


def split_now(visits: Visits, most: float = math.inf) -> tuple[Visits, Visits | None]:
    """The newest ``most`` visits of lag 1 and more, and those of lag 0, at most one per row, in one column, or None."""
    present = visits.count > 0
    now, earlier = present & (visits.lag == 0), present & (visits.lag > 0)
    newer = np.cumsum(earlier[:, ::-1], axis=1)[:, ::-1]
    past = hidden(visits, earlier & (newer <= most))
    if not now.any():
        return past, None
    columns = {field.name: getattr(visits, field.name) for field in fields(visits) if field.name != "state"}
    summed = {name: np.sum(a * now, axis=-1, keepdims=True) for name, a in columns.items() if a is not None}
    return past, Visits(**summed)


def joined(groups: Groups, others: Groups) -> Groups:
    """Groups with further completions in additional columns."""
    weight = None
    if groups.weight is not None:
        weight = np.concatenate([groups.weight, others.weight], axis=-1)
    return Groups(
        reward=np.concatenate([groups.reward, others.reward], axis=-1),
        mask=np.concatenate([groups.present > 0, others.present > 0], axis=-1),
        weight=weight,
        prompt_ids=groups.prompt_ids,
    )
