"""What the law needs of one prompt's completions: norms, class sums, and a short mean gradient.

With s_h the score of completion h, right answers' scores sum to r and wrong ones' to w. Every U-statistic of the
prompt's gradient is a function of ``|r|^2``, ``<r, w>``, ``|w|^2`` and the single squared norms, so that no matrix of
inner products is formed, and the metric can be any diagonal one. Inner products between prompts come from a sketch of
each prompt's mean gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from kaestat.integrations.adam_units import adam_factors
from llm_experiments.gradient.scores import distinct, score_gradients

PLAIN, ADAM = "plain", "adam"
METRICS = (PLAIN, ADAM)
SKETCH = 2**18  # numbers of a sketch; the error of an inner product is the product of the norms over their root, .2 %
SEED = 20261  # of the sketch: the same for all prompts, on one kind of device

Squares = Mapping[nn.Parameter, torch.Tensor]


@dataclass(frozen=True, eq=False)
class MetricScores:
    """One prompt's scores in one metric.

    norms (ndarray, shape (N,)): Squared norm of each completion's score.
    products (ndarray, shape (3,)): ``|r|^2``, ``<r, w>`` and ``|w|^2``, r and w the sums of right and of wrong
        completions' scores.
    mean (ndarray of float32, shape (D,)): Sketch of ``sum_h (R_h - mean R) s_h / (N - 1)``, an unbiased estimate of the
        prompt's gradient; the vector itself where it has at most `SKETCH` coordinates.
    """

    norms: np.ndarray
    products: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True, eq=False)
class PromptScores:
    """All metrics, and the log-probabilities, shape (N,), by which scores are known to be of the right weights."""

    metrics: Mapping[str, MetricScores]
    log_probs: np.ndarray


def prompt_scores(
    model: nn.Module,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    rewards: np.ndarray,
    squares: Squares,
    *,
    temperature: float,
) -> PromptScores:
    """Scores of one prompt's completions in the parameters that are trained, plain and in Adam's units.

    completions: Tokens, the end token included where it was reached. Equal ones are computed once.
    rewards (ndarray, shape (N,)): 0 or 1.
    squares: Mean squares, for Adam's units.
    Raises ValueError if a reward is neither 0 nor 1, or the prompt or a completion is empty.
    """
    rewards = np.asarray(rewards, dtype=float)
    if not np.isin(rewards, (0.0, 1.0)).all():
        strange = rewards[~np.isin(rewards, (0.0, 1.0))][0]
        raise ValueError(f"rewards must be 0 or 1 for the law's right and wrong answers, got {strange:g}.")
    own, index = distinct(completions)
    right = np.zeros(len(own), dtype=bool)
    right[index] = rewards == 1  # equal completions have one reward
    times = np.bincount(index)  # that each was drawn
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    factors = {PLAIN: [1.0] * len(trained), ADAM: [adam_factors(squares[parameter]) for parameter in trained]}
    norms = {name: np.zeros(len(own)) for name in METRICS}
    log_probs = np.zeros(len(own))
    sums = {kind: [torch.zeros_like(each, dtype=torch.float32) for each in trained] for kind in (True, False)}
    for row, (log_probs[row], gradients) in enumerate(score_gradients(model, prompt_ids, own, trained, temperature)):
        for place, gradient in enumerate(gradients):
            for name in METRICS:
                norms[name][row] += (gradient.float() * factors[name][place]).square().sum().item()
            sums[bool(right[row])][place].add_(gradient, alpha=times[row])
    metrics = {name: MetricScores(norms[name][index], *_summed(sums, factors[name], rewards)) for name in METRICS}
    return PromptScores(metrics, log_probs[index])


def _summed(
    sums: Mapping[bool, Sequence[torch.Tensor]], factors: Sequence[torch.Tensor | float], rewards: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Products of the class sums and the mean's sketch in one metric."""
    n, value, products = len(rewards), float(rewards.mean()), np.zeros(3)
    sketch = Sketch(sum(each.numel() for each in sums[True]))
    for of_right, of_wrong, factor in zip(sums[True], sums[False], factors, strict=True):
        right, wrong = (of_right * factor).flatten(), (of_wrong * factor).flatten()
        products += [torch.dot(a, b).item() for a, b in ((right, right), (right, wrong), (wrong, wrong))]
        sketch.add(((1 - value) * right - value * wrong) / (n - 1))
    return products, sketch.numpy()


class Sketch:
    """A vector in few numbers that keep inner products: each coordinate is added, with a random sign, to a random one.

    Charikar et al. (2002), "Finding frequent items in data streams". Products are unbiased, with variance at most
    ``(|a|^2 |b|^2 + <a, b>^2) / SKETCH``. Vectors of at most `SKETCH` coordinates are kept as they are.

    size: Coordinates of the vectors.
    """

    def __init__(self, size: int):
        self._exact = size <= SKETCH
        self._kept: list[torch.Tensor] = []
        self._random: torch.Generator | None = None

    def add(self, part: torch.Tensor) -> None:
        """The next coordinates."""
        if self._exact:
            self._kept.append(part.cpu())
            return
        if self._random is None:
            self._random = torch.Generator(part.device).manual_seed(SEED)
        drawn = torch.randint(2 * SKETCH, part.shape, generator=self._random, device=part.device)
        total = self._kept[0] if self._kept else torch.zeros(SKETCH, device=part.device)
        self._kept = [total.index_add_(0, drawn >> 1, (1 - 2 * (drawn & 1)) * part)]

    def numpy(self) -> np.ndarray:
        if not self._kept:
            return np.zeros(0, dtype=np.float32)
        return torch.cat(self._kept).float().cpu().numpy()
