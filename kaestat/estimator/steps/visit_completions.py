"""Completions with the sums of a visit, for formulas that need completions when only sums are known."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from kaestat.core.arrays import Groups, Visits
from kaestat.history.late_visits import hidden


def completions_of(visits: Visits) -> Groups:
    """One group of shape (P, G) per visit of shape (P, 1): as many completions as it has, with its mean and variance.

    Rewards of 0 and 1 are what they were; of others, half lie above the mean and half below. Linear and quadratic
    functions of the rewards are the same as with the actual completions. With weights, each has the mean weight.
    """
    count, mass = visits.count, visits.mass
    some, heavy = np.maximum(count, 1.0), np.where(mass > 0, mass, 1.0)
    mean = visits.carried / heavy
    variance = np.clip(visits.carried_sq / heavy - mean**2, 0.0, None)
    above = np.where(visits.total == visits.total_sq, visits.total, np.floor(count / 2))
    below = count - above
    high = mean + np.sqrt(variance * below / np.maximum(above, 1.0))
    low = mean - np.sqrt(variance * above / np.maximum(below, 1.0))
    place = np.arange(int(count.max(initial=0)))
    present = place < count
    return Groups(
        reward=np.where(present, np.where(place < above, high, low), 0.0),
        mask=present,
        weight=None if visits.weight is None else np.where(present, mass / some, 0.0),
    )


def split_now(visits: Visits) -> tuple[Visits, Visits | None]:
    """Visits of lag 1 and more, and visits of lag 0, at most one per row, in one column; None if there are none."""
    now = (visits.count > 0) & (visits.lag == 0)
    if not now.any():
        return visits, None
    held = {field.name: getattr(visits, field.name) for field in fields(visits) if field.name != "state"}
    column = {name: np.sum(array * now, axis=-1, keepdims=True) for name, array in held.items() if array is not None}
    return hidden(visits, ~now), Visits(**column)


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
