"""Inner products of the scores of pooled completions: all that gradient diagnostics need of a language model.

With ``s_h = grad_theta log pi(y_h | x)``, every policy gradient estimated from a pool is ``-sum_h c_h s_h``, and
``||ghat - gref||^2 = (c - cref)' S S' (c - cref)``. So the Gram matrix ``S S'`` takes one backward pass per pooled
completion, and any number of methods and repeats after that takes none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from llm_experiments.gradient.architecture import Decoder, Selection, select
from llm_experiments.gradient.memory import MemoryBudgetError, PeakMemory, plan_memory
from llm_experiments.gradient.pool import CompletionPool
from llm_experiments.gradient.reverse_pass import PassResult, ReversePass, undisturbed

BATCH_TOKENS = 4096  # most tokens of a forward or backward pass, padding included


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What is known of the scores of N completions of one prompt beside their products.

    log_probs (float64 ndarray, shape (N,)): ``log pi(y_h | x)`` under the tempered policy, end token included.
    n_parameters: Number of chosen parameters; tied ones count once.
    backward_passes: Completions that were taken through a backward pass: distinct ones, times the turns that the
        modules of a decoder layer took where the memory budget could not hold them all at once.
    peak_bytes: Highest memory during the computation beyond that before it.
    total_bytes: Highest memory during the computation, the model and all else in the process (on a GPU: its allocator)
        included.
    """

    log_probs: np.ndarray
    n_parameters: int
    backward_passes: int
    peak_bytes: int
    total_bytes: int


@dataclass(frozen=True, kw_only=True)
class ScoreGram(Scores):
    """Inner products of the scores; the rest as in `Scores`.

    gram (float64 ndarray, shape (N, N)): ``s_h . s_k`` in the chosen parameters.
    """

    gram: np.ndarray


@dataclass(frozen=True, kw_only=True)
class ScoreNorms(Scores):
    """Squared norms of the scores; the rest as in `Scores`.

    squared_norms (float64 ndarray, shape (N,)): ``||s_h||^2``.
    """

    squared_norms: np.ndarray


def gram_matrix(
    model: torch.nn.Module,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    *,
    temperature: float,
    parameters: str = "final_block",
    memory_gib: float = 4.0,
) -> ScoreGram:
    """Gram matrix of the scores of pooled completions, exact, within a memory budget.

    model: Causal language model built as Llama or Qwen2 is, on one device. Its gradients, modes and flags stay as they
        are. Products are taken in float32 for half-precision models.
    completions: Tokens of each completion, its end token included where it has one. Equal ones are computed once.
    temperature: Of the policy ``softmax(logits / temperature)``.
    parameters: ``"all"``, ``"final_block"`` or a regular expression; see
        `llm_experiments.gradient.architecture.select`.
    memory_gib: Working memory beyond the model itself.
    Raises ValueError if an argument is out of range, the model's structure is not understood, or the budget is too
        small (`MemoryBudgetError`, which tells the memory needed).
    """
    decoder, pool, selection = _prepare(model, prompt_ids, completions, temperature, parameters, memory_gib)
    with PeakMemory(decoder.device) as memory, undisturbed(model):
        plan = plan_memory(decoder, selection, pool, memory_gib=memory_gib, batch_tokens=BATCH_TOKENS, pairs=True)
        result = ReversePass(decoder, selection, pool, plan, temperature=temperature, pairs=True).run()
        gram = result.products.cpu().numpy()
    gram = ((gram + gram.T) / 2)[np.ix_(pool.index, pool.index)]
    return ScoreGram(gram=gram, **_facts([result], selection, pool, memory))


def score_norms(
    model: torch.nn.Module,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    *,
    temperature: float,
    parameters: str = "final_block",
    memory_gib: float = 4.0,
) -> ScoreNorms:
    """Squared score norms of completions: the Gram matrix's diagonal, one micro-batch at a time.

    Needs the memory of a micro-batch only, whatever the number of completions. Parameters and errors are those of
    `gram_matrix`.
    """
    decoder, pool, selection = _prepare(model, prompt_ids, completions, temperature, parameters, memory_gib)
    with PeakMemory(decoder.device) as memory, undisturbed(model):
        budget = {"memory_gib": memory_gib, "batch_tokens": BATCH_TOKENS}
        results = [
            result
            for first, last in pool.cuts(BATCH_TOKENS)
            for result in _norms(decoder, selection, pool.part(first, last), temperature, budget)
        ]
        norms = torch.cat([result.products for result in results]).cpu().numpy()
    return ScoreNorms(squared_norms=norms[pool.index], **_facts(results, selection, pool, memory))


def _prepare(
    model: torch.nn.Module,
    prompt_ids: Sequence[int],
    completions: Sequence[Sequence[int]],
    temperature: float,
    parameters: str,
    memory_gib: float,
) -> tuple[Decoder, CompletionPool, Selection]:
    for name, value in (("temperature", temperature), ("memory_gib", memory_gib)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    decoder = Decoder.of(model)
    pool = CompletionPool.of(prompt_ids, completions, vocabulary=decoder.embedding.num_embeddings)
    return decoder, pool, select(decoder, parameters)


def _norms(
    decoder: Decoder, selection: Selection, pool: CompletionPool, temperature: float, budget: dict
) -> list[PassResult]:
    """Squared norms of a pool's completions, in halves where the budget cannot hold them together."""
    try:
        plan = plan_memory(decoder, selection, pool, pairs=False, **budget)
    except MemoryBudgetError:
        if len(pool) == 1:
            raise
        middle = len(pool) // 2
        halves = pool.part(0, middle), pool.part(middle, len(pool))
        return [result for half in halves for result in _norms(decoder, selection, half, temperature, budget)]
    return [ReversePass(decoder, selection, pool, plan, temperature=temperature, pairs=False).run()]


def _facts(results: list[PassResult], selection: Selection, pool: CompletionPool, memory: PeakMemory) -> dict:
    """The parts of `Scores`."""
    return {
        "log_probs": torch.cat([result.log_probs for result in results]).cpu().numpy()[pool.index],
        "n_parameters": selection.n_parameters,
        "backward_passes": sum(len(result.log_probs) * result.sweeps for result in results),
        "peak_bytes": memory.peak_bytes,
        "total_bytes": memory.total_bytes,
    }
