"""How the filter uses a group: values of its completions, and the group's likelihood under each hypothesis."""

from __future__ import annotations

from kaestat.baselines.filter_arrays import added_up, largest, spread_out
from kaestat.baselines.filter_belief import JUMPED, TINY, WAYS, Belief, Moving
from kaestat.core.arrays import Array, namespace, not_negative

LARGEST_GAIN = 60.0  # log evidence of a jump beyond that of the best way: what is more is as good


def values_of_binary(
    belief: Belief, known: Moving, unit: Array, count: Array, total: Array
) -> tuple[Array, Array | None]:
    """Values of completions with rewards of 0 and 1, own reward left out, (..., P, G), and the evidence of the group.

    That is what `likely_of_group` gives where the dispersion is 1, (..., M, P); None for another dispersion. ``unit``
    are rewards, (..., P, G); ``count`` and ``total`` have the shape (..., 1, P).
    """
    xp, others, rest = namespace(belief.parts), not_negative(count - 1), not_negative(total - 1)
    if not known.exact:
        rests = xp.stack([xp.minimum(total, others), rest], axis=-1)[..., 0, :, :]
        found, whole = values_of_any(belief, known, rests, count), None
        return spread_out(unit, found[..., 0], found[..., 1]), whole
    a, b = belief.beta(known)
    likely = _likely(belief, a, b, others, rest)
    size, solved = a + b, a + rest
    size += others
    expected = solved / size
    expected *= likely
    whole, of_success = _with_the_last(likely, expected, count, total), _mean(likely, expected)
    # The rest without a failure is as likely as that without a success, times the odds of these two.
    b += not_negative(count - total - 1)
    likely *= solved
    likely /= b
    solved += 1
    solved /= size
    solved *= likely
    of_failure = xp.where(total[..., 0, :] > 0, _mean(likely, solved), of_success)
    return spread_out(unit, of_failure, of_success), whole


def values_of_any(belief: Belief, known: Moving, rests: Array, count: Array) -> Array:
    """Values of completions with rewards in [0, 1]; see `values_of_binary`.

    ``rests`` has the sum of the others' rewards for each completion, (..., P, G); ``count`` is (..., 1, P).
    """
    xp, found, (a, b) = namespace(belief.parts), [], belief.beta(known)
    others = not_negative(count - 1) / known.dispersion
    for column in range(rests.shape[-1]):
        rest = xp.minimum(rests[..., column][..., None, :] / known.dispersion, others)
        likely = _likely(belief, a, b, others, rest)
        found.append(_mean(likely, likely * ((a + rest) / (a + b + others))))
    return xp.stack(found, axis=-1)


def likely_of_group(belief: Belief, known: Moving, count: Array, total: Array, plain: Array | None) -> Array:
    """Probability of each hypothesis times the evidence of the group, up to a factor; (..., M, P).

    The evidence of a group of zeros and ones is that of all but one of them, times the probability of that one.
    ``plain``, of shape (..., 1, P) as ``count`` and ``total``, marks groups of zeros and ones where the dispersion is
    1; None for no group.
    """
    whole, (a, b) = None, belief.beta(known)
    if plain is None or not bool(plain.all()):
        whole = _likely(belief, a, b, count / known.dispersion, total / known.dispersion)
    if plain is None or not bool(plain.any()):
        return whole
    others, rest = not_negative(count - 1), not_negative(total - 1)
    likely = _likely(belief, a, b, others, rest)
    of_rest = _with_the_last(likely, likely * ((a + rest) / (a + b + others)), count, total)
    return of_rest if whole is None else namespace(whole).where(plain, of_rest, whole)


def _with_the_last(likely: Array, expected: Array, count: Array, total: Array) -> Array:
    """What is likely with the completion that was left out: a success if there is one, or else a failure."""
    failed = not_negative(1 - total)  # 1 for a group without a success
    whole = failed * likely
    whole += (1 - failed - namespace(total).minimum(count, failed)) * expected
    return whole


def _mean(likely: Array, expected: Array) -> Array:
    """The mean over the hypotheses, (..., P), of what each expects times how likely it is."""
    return (added_up(expected) / (added_up(likely) + TINY))[..., 0, :]


def _likely(belief: Belief, a: Array, b: Array, count: Array, total: Array) -> Array:
    """Probabilities of the hypotheses, times the evidence of completions relative to about that of the best way."""
    if not bool((count > 0).any()):
        return belief.probability + 0 * total
    log, factor = evidence(a, b, count, total)
    log -= largest(log[..., WAYS, :])
    log[..., JUMPED, :] = LARGEST_GAIN - not_negative(LARGEST_GAIN - log[..., JUMPED, :])
    gain = namespace(log).exp(log)
    gain *= factor
    gain *= belief.probability
    return gain


def evidence(a: Array, b: Array, count: Array, total: Array) -> tuple[Array, Array]:
    """Probability of some successes and failures, in one order, under Beta(a, b): its logarithm and a factor.

    It is ``factor * exp(log)`` for ``total`` successes of ``count``, and ``log Gamma`` is that of Stirling's formula
    from the next integer on, accurate to 0.003.
    """
    xp = namespace(a)
    log, factor, last = _rising(a + b, count)
    log *= -1
    for z, k in ((a, total), (b, count - total)):
        part, grown, end = _rising(z, k)
        log += part
        end /= last
        part = xp.log(end)
        part *= k
        log += part
        factor /= grown
    return log, factor


def _rising(z: Array, k: Array) -> tuple[Array, Array, Array]:
    """``log (Gamma(z + 1 + k) / Gamma(z + 1)) - k log(end) + k``, the factor ``1 + k / z``, and ``end = z + 1 + k``."""
    up = z + 1
    ratio = k / up
    end = 1 + ratio
    out = namespace(z).log(end)
    out += ratio - (end - 1)  # what rounding took, which counts z times
    end *= up
    up -= 0.5
    out *= up
    ratio /= end
    ratio *= 1 / 12
    out -= ratio
    grown = k / z
    grown += 1
    return out, grown, end
