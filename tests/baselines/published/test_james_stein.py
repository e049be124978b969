"""James-Stein shrinkage (Zeng et al., 2025)."""

from statistics import fmean, pvariance

from tests.helpers.method_case import MethodCase
from tests.helpers.references import others, per_completion, weighted_mean


def james_stein(case, *, paper_factor=False):
    """Zeng et al. (2025); lambda and target from the other groups alone.

    With weights, means are weighted and ``(sum w)^2 / sum w^2`` takes the place of the group's size.
    """

    def squared_error_of_mean(z, w):
        n = sum(w) ** 2 / sum(x * x for x in w)
        squares = sum(x * (y - weighted_mean(z, w)) ** 2 for x, y in zip(w, z, strict=True))
        return squares / sum(w) / (n - 1) if n > 1 + 1e-9 else None

    def value(p, g):
        rest = [(z, w) for z, w in others(list(zip(case.rewards, case.weights, strict=True)), p) if sum(w) > 0]
        mine = others(case.rewards[p], g), others(case.weights[p], g)
        if not rest:
            return weighted_mean(*mine)
        means = [weighted_mean(z, w) for z, w in rest]
        noises = [noise for z, w in rest if (noise := squared_error_of_mean(z, w)) is not None]
        v, s = (fmean(noises) if noises else 0.0), pvariance(means)
        shrinkage = v / (v + s + 1e-6)
        if paper_factor:
            shrinkage *= (len(rest) - 1) / len(rest)
        target = fmean(means)
        return (1 - shrinkage) * weighted_mean(*mine, otherwise=target) + shrinkage * target

    return per_completion(case, value)


CASES = [
    MethodCase("james_stein", james_stein, weighted=True),
    MethodCase("james_stein", james_stein, {"paper_factor": True}),
]
