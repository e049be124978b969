"""Theorem 2's bound on the gradient MSE of Algorithm 1 in excess of the oracle's, with the four constants."""

from collections.abc import Callable
from dataclasses import dataclass

from kaestat.core.arrays import Array
from kaestat.core.checks import check_positive, check_whole
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.theory.value import theorem1_bound


@dataclass(frozen=True)
class GradientBound:
    """Theorem 2's four terms, in the paper's order.

    Attributes
    ----------
    drift : float
        ``O(h^2 / (B G))``: bias of the value from drift.
    discretisation : float
        ``O(1 / (i^2 h^2 B G))``: bias from sums in place of integrals.
    variance : float
        ``O(m / (i h B^2 G^2))``: variance of the value. With random visit times, see `theorem1_bound`, ``O(m / (i h B^2
        G))``.
    mutual : float
        ``O(m^2 / (i^2 h^2 B^3 G^2))``: completions of a group in each other's values, the proof's I_2.
    """

    drift: float
    discretisation: float
    variance: float
    mutual: float

    @property
    def excess(self) -> float:
        """The bound on ``MSE(ghat_KAE) - MSE(ghat_oracle)``."""
        return self.drift + self.discretisation + self.variance + self.mutual


def theorem2_bound(
    *,
    step: int,
    prompts: int,
    batch: int,
    group_size: int,
    h: float,
    drift: float,
    score_norm2: float,
    value_bound: float = 1.0,
    noise_variance: float = 0.25,
    kernel: str | Kernel | Callable[[Array], Array] = "triangular",
) -> GradientBound:
    """Theorem 2 (MSE of the gradient estimator) with explicit constants.

    The paper has ``MSE(ghat_KAE) = MSE(ghat_oracle) + O(h^2 / (B G)) + O(1 / (i^2 h^2 B G)) + O(m / (i h B^2 G^2)) +
    O(m^2 / (i^2 h^2 B^3 G^2))``. Its proof ends with ``I_1 + I_2``: the value's MSE times ``E[W]``, divided by B G, and
    the mutual term. With `theorem1_bound`'s constants for the value's bias and variance given n past visits, ``(a +
    b)^2 <= 2 a^2 + 2 b^2``, and n binomial with i trials and probability B / m::

        drift            2 w [c (mu1 + 1 / (i h)) / (1 - h)]^2     h^2 / (B G)
        discretisation   2 w [v K(0)]^2                            1 / (i^2 h^2 B G)
        variance         w G / (G - 1) max(R (s2 + G v^2), K(0) s2)    m / (i h B^2 G^2)
        mutual           2 w s2 K(0)^2 G / (G - 1)                 m^2 / (i^2 h^2 B^3 G^2)

    The last two use ``N = G n + G - 1 >= (G - 1) (n + 1)``, so ``E[1 / N] <= m / ((G - 1) i B)``, as
    ``E[1 / (n + 1)] <= m / ((i + 1) B)`` (the paper's binomial lemma); ``E[1 / N^2] <= 2 m^2 / ((G - 1) i B)^2``, as
    ``(n + 1)^2 >= (n + 1) (n + 2) / 2``; ``M >= h N`` since ``K(0) >= 1``; and ``||grad V||^2 <= E[W] Var(Z)``.

    Like the theorem it needs Assumptions 1 to 6. Without Assumption 6 (scores uncorrelated with rewards) the excess has
    another term (`excess_gradient_mse`). G must be 2 or more, as in the proof.

    Parameters
    ----------
    step : int
        i, steps before this one.
    prompts, batch, group_size : int
        m, B and G.
    h : float
        Bandwidth as a fraction of the elapsed steps, below 1.
    drift : float
        c: a value changes by at most ``c log(t2 / t1)`` from step t1 to t2.
    score_norm2 : float
        w, the largest mean squared score norm ``E[W]`` of a prompt.
    value_bound : float
        v, the largest absolute value.
    noise_variance : float
        s2, the largest variance of a reward.
    kernel : str, Kernel or callable
        Non-increasing, of support [0, 1] (Assumption 3).

    Raises
    ------
    ValueError
        If h is not in (0, 1), the kernel's support is not bounded by 1, the batch exceeds the prompts, or G is below 2.
    TypeError
        If something is not a number.

    Examples
    --------
    >>> bound = theorem2_bound(step=100, prompts=50, batch=10, group_size=2, h=0.1, drift=0.1, score_norm2=1.0)
    >>> round(bound.discretisation, 6)
    0.004
    """
    kernel, norm2 = as_kernel(kernel), check_positive("score_norm2", score_norm2, allow_zero=True)
    prompts, batch, group_size = (
        check_whole("prompts", prompts),
        check_whole("batch", batch),
        check_whole("group_size", group_size, least=2),
    )
    if batch > prompts:
        raise ValueError(f"batch must be at most the number of prompts, {prompts}; got {batch}.")
    value = theorem1_bound(
        step=step,
        visits=0,
        group_size=group_size,
        h=h,
        drift=drift,
        value_bound=value_bound,
        noise_variance=noise_variance,
        kernel=kernel,
    )
    samples, odds = batch * group_size, prompts / (step * batch)
    spread = value.variance * (group_size - 1)  # theorem1_bound's is per completion, and N is G - 1 without visits
    return GradientBound(
        drift=2 * norm2 * value.drift**2 / samples,
        discretisation=2 * norm2 * value.discretisation**2 / samples,
        variance=norm2 * spread * odds / (group_size - 1) / samples,
        mutual=2 * norm2 * noise_variance * (kernel.at_zero / h * odds) ** 2 / (group_size - 1) / samples,
    )
