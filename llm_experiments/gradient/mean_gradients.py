"""How the prompts' gradients lie to each other: the inner product of each with the sum of all.

Within a prompt the Gram matrix of its scores says everything; between prompts that would take a matrix of the
completions of all prompts. Less will do: with one vector for each prompt, ``u_x = sum_h c_xh s_xh``, and their sum u,
the products ``<u_x, u>`` and ``||u_x||^2`` give ``||u||^2`` with and without the prompts' own squares, and both again
with any one prompt left out. A first round of one backward pass per prompt sums up u, a second one multiplies with it;
so two vectors are held at a time, whatever the number of prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from llm_experiments.gradient.architecture import Decoder, chosen_parameters
from llm_experiments.gradient.pool import CompletionPool
from llm_experiments.gradient.products import working_dtype
from llm_experiments.gradient.reverse_pass import requiring, undisturbed
from llm_experiments.gradient.store import MeanProducts
from llm_experiments.policies.token_scores import completion_log_probs

LOGITS_AT_ONCE = 2**26  # numbers: 256 MiB
TOLERANCE = 0.02  # relative, of squared norms; gradients of half-precision models are rounded to eight bits


@dataclass(frozen=True, eq=False)
class WeightedScores:
    """A sum of scores of one prompt's completions.

    Attributes
    ----------
    prompt_ids : sequence of int
    completions : sequence of N sequences of int
    coefficients : ndarray, shape (N,)
        c; a completion with 0 costs nothing.
    """

    prompt_ids: Sequence[int]
    completions: Sequence[Sequence[int]]
    coefficients: np.ndarray


def mean_products(
    model: torch.nn.Module,
    terms: Sequence[WeightedScores],
    *,
    temperature: float,
    parameters: str = "final_block",
    batch_tokens: int = 4096,
    done: Callable[[], None] = lambda: None,
) -> MeanProducts:
    """Inner products of the prompts' weighted sums of scores.

    Parameters
    ----------
    model : PreTrainedModel
        As in `llm_experiments.gradient.gram.gram_matrix`.
    terms : sequence of P WeightedScores
    temperature, parameters, batch_tokens
        As there.
    done : callable
        Called after each of 2 P passes.

    Raises
    ------
    ValueError
        If an argument is out of range, or the model's structure is not understood.
    """
    own, with_total = np.zeros(len(terms)), np.zeros(len(terms))
    total: list[torch.Tensor] | None = None
    settings = {"temperature": temperature, "parameters": parameters, "batch_tokens": batch_tokens}
    for each in terms:
        vector = weighted_sum(model, each, **settings)
        total = vector if total is None else [a.add_(b) for a, b in zip(total, vector, strict=True)]
        done()
    for position, each in enumerate(terms):
        vector = weighted_sum(model, each, **settings)
        own[position] = _product(vector, vector)
        with_total[position] = _product(vector, total or [])
        done()
    return MeanProducts(own, with_total)


def check_products(products: MeanProducts, gram: np.ndarray, coefficients: np.ndarray) -> None:
    """Refuse products of other scores than those of the prompts' Gram matrices.

    Parameters
    ----------
    products : MeanProducts
    gram : ndarray, shape (P, N, N)
    coefficients : ndarray, shape (P, N)

    Raises
    ------
    ValueError
        If a vector's square is not ``c' K c`` to rounding.
    """
    expected = np.einsum("ph,phk,pk->p", coefficients, gram, coefficients)
    size = np.einsum("ph,phh->p", coefficients**2, gram)  # what rounding is relative to
    off = np.abs(products.own - expected) > TOLERANCE * np.maximum(size, expected)
    if off.any():
        worst = int(np.flatnonzero(off)[0])
        raise ValueError(
            f"prompt {worst}: the squared norm of its mean gradient is {products.own[worst]:.6g}, and "
            f"{expected[worst]:.6g} by its Gram matrix. The scores on disk are of other weights or parameters than "
            "these; remove them and compute them again."
        )


def weighted_sum(
    model: torch.nn.Module, term: WeightedScores, *, temperature: float, parameters: str, batch_tokens: int
) -> list[torch.Tensor]:
    """``sum_h c_h grad log pi(y_h | x)`` in the chosen parameters, one tensor for each, at least float32."""
    decoder = Decoder.of(model)
    vocabulary = decoder.embedding.num_embeddings
    chosen = [parameter for _, parameter in chosen_parameters(decoder, parameters).values()]
    sums = [torch.zeros_like(parameter, dtype=working_dtype(parameter.dtype)) for parameter in chosen]
    pool = CompletionPool.of(term.prompt_ids, term.completions, vocabulary=vocabulary)
    weight = np.bincount(pool.index, weights=term.coefficients, minlength=len(pool))
    kept = np.flatnonzero(weight)
    if not len(kept):
        return sums
    part = CompletionPool(pool.prompt, tuple(pool.completions[row] for row in kept), np.arange(len(kept)))
    with undisturbed(model), requiring(chosen):
        for first, last in part.cuts(min(batch_tokens, max(1, LOGITS_AT_ONCE // vocabulary))):
            log_probs, _ = completion_log_probs(
                model, part.prompt, part.completions[first:last], temperature=temperature
            )
            factor = torch.as_tensor(weight[kept[first:last]], dtype=log_probs.dtype, device=log_probs.device)
            loss = factor @ log_probs.sum(dim=1)
            gradients = torch.autograd.grad(loss, chosen, allow_unused=True, materialize_grads=True)
            for total, gradient in zip(sums, gradients, strict=True):
                total += gradient
    return sums


def _product(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    return sum(torch.dot(a.flatten(), b.flatten()).item() for a, b in zip(first, second, strict=True))
