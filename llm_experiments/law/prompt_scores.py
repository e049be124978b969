"""What the law needs of one prompt's completions, in one backward pass: norms, class sums, and a short mean gradient.

With s_h the score of completion h, right answers' scores sum to r and wrong ones' to w. Every U-statistic of the
prompt's gradient is a function of ``|r|^2``, ``<r, w>``, ``|w|^2`` and the single squared norms, so that no matrix of
inner products is formed, and the metric can be any diagonal one. Inner products between prompts come from a sketch of
each prompt's mean gradient.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from kaestat.integrations.adam_units import Units, adam_factors
from kaestat.integrations.gradient_norms import norms_in_backward
from llm_experiments.gradient.pool import CompletionPool
from llm_experiments.gradient.reverse_pass import requiring, undisturbed
from llm_experiments.policies.token_scores import completion_log_probs

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
    batch_tokens: int,
) -> PromptScores:
    """Scores of one prompt's completions in the parameters that are trained, plain and in Adam's units.

    completions: Tokens, the end token included where it was reached. Equal ones are computed once.
    rewards (ndarray, shape (N,)): 0 or 1.
    squares: Mean squares, for Adam's units.
    Raises ValueError if a reward is neither 0 nor 1, an argument is out of range, or the model is not understood.
    """
    rewards = np.asarray(rewards, dtype=float)
    if not np.isin(rewards, (0.0, 1.0)).all():
        strange = rewards[~np.isin(rewards, (0.0, 1.0))][0]
        raise ValueError(f"rewards must be 0 or 1 for the law's right and wrong answers, got {strange:g}.")
    pool = CompletionPool.of(prompt_ids, completions, vocabulary=model.get_input_embeddings().num_embeddings)
    right = np.zeros(len(pool), dtype=bool)
    right[pool.index] = rewards == 1  # equal completions have one reward
    times = np.bincount(pool.index, minlength=len(pool))  # that each was drawn
    norms = {name: np.zeros(len(pool)) for name in METRICS}
    log_probs = np.zeros(len(pool))
    sums: dict[bool, dict[nn.Parameter, torch.Tensor]] = {True: {}, False: {}}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with undisturbed(model), requiring(trained):
        for rows in _batches(pool, right, batch_tokens):
            with torch.enable_grad(), norms_in_backward(model, [Units(None), Units(squares)]) as found:
                scores = _scores(model, pool, rows, times[rows], temperature)
                found.begin(scores)
                _, *gradients = torch.autograd.grad(scores.sum(), [found.reached, *trained], allow_unused=True)
            log_probs[rows] = scores.detach().double().cpu().numpy() / times[rows]
            for name, values in zip(METRICS, found.norms, strict=True):
                norms[name][rows] = values.double().cpu().numpy() / times[rows] ** 2
            total = sums[bool(right[rows[0]])]
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    total[parameter] = total[parameter].add_(gradient) if parameter in total else gradient.float()
    vectors = _Vectors(sums, rewards)
    metrics = {
        name: MetricScores(norms[name][pool.index], *vectors.summed(None if name == PLAIN else squares))
        for name in METRICS
    }
    return PromptScores(metrics, log_probs[pool.index])


def _scores(
    model: nn.Module, pool: CompletionPool, rows: Sequence[int], times: np.ndarray, temperature: float
) -> torch.Tensor:
    """Log-probabilities of some completions, each in a row of its own and as often as it was drawn."""
    chosen = [pool.completions[row] for row in rows]
    found = completion_log_probs(model, pool.prompt, chosen, temperature=temperature, share_prompt=False)[0].sum(1)
    return found * torch.from_numpy(times).to(found)


def _batches(pool: CompletionPool, right: np.ndarray, batch_tokens: int) -> Iterator[list[int]]:
    """Distinct completions that are alike right or wrong."""
    for kind in (True, False):
        part: list[int] = []
        for row in np.flatnonzero(right == kind).tolist():  # shortest first
            if part and (len(part) + 1) * pool.lengths[row] > batch_tokens:
                yield part
                part = []
            part.append(row)
        if part:
            yield part


@dataclass(frozen=True, eq=False)
class _Vectors:
    """Class sums of all parameters."""

    sums: Mapping[bool, Mapping[nn.Parameter, torch.Tensor]]
    rewards: np.ndarray

    def summed(self, squares: Squares | None) -> tuple[np.ndarray, np.ndarray]:
        """Products and the mean's sketch in one metric."""
        n, value = len(self.rewards), float(self.rewards.mean())
        products = np.zeros(3)
        parameters = list(dict.fromkeys([*self.sums[True], *self.sums[False]]))
        sketch = Sketch(sum(parameter.numel() for parameter in parameters))
        for parameter in parameters:
            factors = 1.0 if squares is None else adam_factors(squares[parameter])
            right, wrong = (
                (self.sums[kind][parameter] * factors).flatten()
                if parameter in self.sums[kind]
                else torch.zeros(parameter.numel(), device=parameter.device)
                for kind in (True, False)
            )
            for place, (a, b) in enumerate(((right, right), (right, wrong), (wrong, wrong))):
                products[place] += torch.dot(a, b).item()
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
