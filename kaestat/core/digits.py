"""Whether sums of squared rewards keep enough digits, and variances from them.

A history keeps ``sum Z`` and ``sum Z^2`` of each visit in double precision (16 digits). Variances are differences of
these: where rewards lie k times their range away from 0, ``2 log10 k`` digits are lost. What is learned from variances
(bandwidths, shrinkage, standard errors) is then wrong, and from k = 1e8 on it means nothing.
"""

from kaestat.core.arrays import Array, Groups, Visits, namespace

FARTHEST = 3e5  # ranges away from 0: learned bandwidths agree up to there, and not at 1e6
SMALLEST = 1e-150  # range whose square has all its digits
ROUNDING = 64.0  # of sums over visits, in units of the last place


def beyond_rounding(difference: Array, of: Array) -> Array:
    """The difference of two sums, 0 where it is less than the rounding of the larger one, ``of``."""
    xp = namespace(difference)
    return xp.where(difference > ROUNDING * xp.finfo(difference.dtype).eps * of, difference, xp.zeros_like(difference))


def variance_from(square: Array, mean: Array) -> Array:
    """``square - mean**2`` for means of Z^2 and Z; exactly 0 where all rewards are equal."""
    return beyond_rounding(square - mean**2, square)


def lost_digits(low: float, high: float) -> str | None:
    """What is wrong with rewards between ``low`` and ``high``, and what to do; None if nothing is."""
    span = high - low
    if not span > 0:
        return None
    if max(-low, high) > FARTHEST * span:
        return (
            f"rewards lie more than {FARTHEST:.0f} times their range away from 0, and sums of their squares lose the "
            "digits that differ: bandwidths, shrinkage and standard errors learned from them are wrong. Subtract one "
            "constant from all rewards of the run."
        )
    if span < SMALLEST:
        return (
            f"rewards differ by less than {SMALLEST:g}, and their squares vanish: bandwidths, shrinkage and standard "
            "errors learned from them are wrong. Multiply all rewards of the run by one constant."
        )
    return None


def lost_digits_of(groups: Groups, visits: Visits) -> str | None:
    """`lost_digits` of a step's rewards and of its prompts' past mean rewards, as NumPy arrays.

    Without a past nothing is known: the rewards of a first step may happen to be alike.
    """
    present = groups.reward if groups.mask is None else groups.reward[groups.mask]
    if not present.size:
        return None
    low, high = float(present.min()), float(present.max())
    if lost_digits(low, high) is None:  # the usual case costs no more than this
        return None
    means = visits.total[visits.count > 0] / visits.count[visits.count > 0]
    return lost_digits(min(low, float(means.min())), max(high, float(means.max()))) if means.size else None
