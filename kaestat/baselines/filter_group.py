"""How the filter uses a group: values of its completions, and the group's likelihood under each hypothesis."""

from __future__ import annotations

from array_api_compat import device

from kaestat.baselines.filter_arrays import added_up, as_type_of, largest
from kaestat.baselines.filter_belief import JUMPED, TINY, WAYS, Belief, Moving
from kaestat.core.arrays import Array, namespace, not_negative

LARGEST_GAIN = 60.0  # log evidence of a jump beyond that of the best way: what is more is as good


def values_of_binary(belief: Belief, known: Moving, unit: Array, count: Array, total: Array) -> tuple[Array, Array]:
    """Values of completions with rewards of 0 and 1, own reward left out, (..., P, G), and the evidence of the group.

    That is what `likely_of_group` gives where the dispersion is 1, (..., M, P). ``unit`` are rewards, (..., P, G);
    ``count`` and ``total`` have the shape (..., 1, P).
    """
    xp = namespace(belief.parts)
    others = not_negative(count - 1)
    columns = xp.minimum(total, others), not_negative(total - 1)
    rest = xp.concat([column[..., None, :, :] for column in columns], axis=-3)
    if not known.exact:
        others, rest = others / known.dispersion, rest / known.dispersion[..., None, :, :]
    likely, expected = _likely_and_expected(belief, known, others, rest)
    value = (added_up(expected) / (added_up(likely) + TINY))[..., 0, :]
    succeeded = as_type_of(unit, value)  # to choose by it takes twice as long: processors cannot guess rewards
    values = value[..., 1, :, None] * succeeded
    values += value[..., 0, :, None] * (1 - succeeded)
    return values, _with_the_last(likely, expected, count, total)


def values_of_any(belief: Belief, known: Moving, rests: Array, count: Array) -> Array:
    """Values of completions with rewards in [0, 1]; see `values_of_binary`.

    ``rests`` has the sum of the others' rewards for each completion, (..., P, G); ``count`` is (..., 1, P).
    """
    xp, found = namespace(belief.parts), []
    others = not_negative(count - 1) / known.dispersion
    for column in range(rests.shape[-1]):
        rest = xp.minimum(rests[..., column][..., None, :] / known.dispersion, others)
        likely, expected = _likely_and_expected(belief, known, others, rest[..., None, :, :])
        found.append((added_up(expected) / (added_up(likely) + TINY))[..., 0, 0, :])
    return xp.stack(found, axis=-1)


def likely_of_group(belief: Belief, known: Moving, count: Array, total: Array, plain: Array | None) -> Array:
    """Probability of each hypothesis times the evidence of the group, up to a factor; (..., M, P).

    The evidence of a group of zeros and ones is that of all but one of them, times the probability of that one.
    ``plain``, of shape (..., 1, P) as ``count`` and ``total``, marks groups of zeros and ones where the dispersion is
    1; None for no group.
    """
    whole = None
    if plain is None or not bool(plain.all()):
        came = count / known.dispersion, (total / known.dispersion)[..., None, :, :]
        whole = _gain(*evidence(belief.beta(known), *came))[..., 0, :, :] * belief.probability
    if plain is None or not bool(plain.any()):
        return whole
    rest = not_negative(total - 1)[..., None, :, :]
    of_rest = _with_the_last(*_likely_and_expected(belief, known, not_negative(count - 1), rest), count, total)
    return of_rest if whole is None else namespace(whole).where(plain, of_rest, whole)


def _with_the_last(likely: Array, expected: Array, count: Array, total: Array) -> Array:
    """What is likely with the completion that was left out: the first column without a 0, the last without a 1."""
    xp = namespace(total)
    succeeded = xp.minimum(total, xp.ones_like(total))
    failed = 1 - succeeded
    whole = succeeded * expected[..., -1, :, :]
    whole += failed * likely[..., 0, :, :]
    whole -= xp.minimum(count, failed) * expected[..., 0, :, :]
    return whole


def _likely_and_expected(belief: Belief, known: Moving, others: Array, rest: Array) -> tuple[Array, Array]:
    """Probabilities times the evidence of the rest of the group, and these times the mean that it leaves.

    ``others`` is (..., 1, P), and ``rest`` and what is returned have an axis before the hypotheses.
    """
    beta, probability = belief.beta(known), belief.probability[..., None, :, :]
    a, b = beta[..., :1, :, :], beta[..., 1:, :, :]
    if bool((others > 0).any()):
        likely = _gain(*evidence(beta, others, rest))
        likely *= probability
    else:
        likely = probability + 0 * rest
    expected = a + rest
    expected /= a + b + others[..., None, :, :]
    expected *= likely
    return likely, expected


def _gain(log: Array, factor: Array) -> Array:
    """Evidence relative to about that of the best way."""
    xp = namespace(log)
    log -= largest(log[..., WAYS, :])
    log[..., JUMPED, :] = LARGEST_GAIN - not_negative(LARGEST_GAIN - log[..., JUMPED, :])
    gain = xp.exp(log)
    gain *= factor
    return gain


def evidence(beta: Array, count: Array, total: Array) -> tuple[Array, Array]:
    """Probability of some successes and failures, in one order, under Beta distributions: its logarithm and a factor.

    It is ``factor * exp(log)`` for ``total`` successes, (..., C, 1, P), of ``count``, (..., 1, P), under ``beta``,
    (..., 2, M, P); each is (..., C, M, P). ``log Gamma`` is that of Stirling's formula from the next integer on,
    accurate to 0.003.
    """
    xp, columns = namespace(beta), total.shape[-3]
    successes, failures = slice(None, columns), slice(columns, -1)  # and last, both together
    z, k = _pieces(beta, count, total, successes, failures)
    ratio = k / z
    ratio += 1
    factor = ratio[..., -1:, :, :] / ratio[..., successes, :, :]
    factor /= ratio[..., failures, :, :]
    z += 1
    ratio[...] = k
    ratio /= z
    end = 1 + ratio
    gone = end - 1
    gone -= ratio
    rising = xp.log(end)
    rising -= gone  # what rounding took, which counts z times
    end *= z
    z -= 0.5
    rising *= z
    ratio /= end
    ratio *= 1 / 12
    rising -= ratio  # log (Gamma(z + k) / Gamma(z)) - k log(end) + k, for the z that was one more, and end = z + k
    share = end[..., :-1, :, :]
    share /= end[..., -1:, :, :]
    share = xp.log(share)
    share *= k[..., :-1, :, :]
    rising[..., :-1, :, :] += share
    log = rising[..., successes, :, :]
    log -= rising[..., -1:, :, :]
    log += rising[..., failures, :, :]
    return log, factor


def _pieces(beta: Array, count: Array, total: Array, successes: slice, failures: slice) -> tuple[Array, Array]:
    """Parameters, (..., 2 C + 1, M, P), and how many completions each grows by, (..., 2 C + 1, 1, P)."""
    xp, like, size = namespace(beta), {"dtype": beta.dtype, "device": device(beta)}, 2 * total.shape[-3] + 1
    z = xp.empty((*beta.shape[:-3], size, *beta.shape[-2:]), **like)
    z[..., successes, :, :] = beta[..., :1, :, :]
    z[..., failures, :, :] = beta[..., 1:, :, :]
    z[..., -1, :, :] = beta[..., 0, :, :] + beta[..., 1, :, :]
    k = xp.empty((*total.shape[:-3], size, *total.shape[-2:]), **like)
    k[..., successes, :, :] = total
    k[..., failures, :, :] = count[..., None, :, :] - total
    k[..., -1, :, :] = count
    return z, k
