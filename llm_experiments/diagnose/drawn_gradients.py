"""The noise of designs from gradients drawn outright: a check of `equal_budget` that shares none of its ways.

Completions are sampled afresh from the policy, and each gradient is one backward pass through the model, as in
training: B / G prompts without replacement, G completions each, their advantages by the design's baseline. No Gram
matrix, no formula, no true gradient: the variance of independent gradients is their noise, since a leave-one-out
baseline leaves them unbiased.

The prompts are the diagnosed ones and no others, so the formula is that of `kaestat.theory.gradient_noise` for so many
prompts. Its parts come from disjoint parts of the pools, each of which gives unbiased estimates; how they differ is the
error that the pools' completions leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kaestat.theory import gradient_noise
from llm_experiments.diagnose.draws import DrawnGroups
from llm_experiments.diagnose.equal_budget import Design, DesignNoise
from llm_experiments.diagnose.estimators import make_estimator
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.gradient.architecture import Decoder, chosen_parameters
from llm_experiments.gradient.reverse_pass import requiring, undisturbed

BLOCK = 10  # gradients that are held at a time
PURPOSE = 5  # of the random numbers


@dataclass(frozen=True, eq=False)
class StepDraws:
    """Which prompts the steps of each group size have, and which fresh completions; no completion is used twice.

    Attributes
    ----------
    prompts : dict of int to integer ndarray, shape (R, B // G)
    indices : dict of int to integer ndarray, shape (R, B // G, G)
        Position in the prompt's fresh completions.
    size : int
        Fresh completions that each prompt needs.
    """

    prompts: dict[int, np.ndarray]
    indices: dict[int, np.ndarray]
    size: int

    @classmethod
    def of(cls, group_sizes: Sequence[int], *, n_prompts: int, budget: int, draws: int, seed: int) -> StepDraws:
        """Draw the prompts of R steps for each group size.

        Raises
        ------
        ValueError
            If a step would need more prompts than there are, or none.
        """
        rng = np.random.default_rng([seed, PURPOSE])
        used = np.zeros(n_prompts, dtype=int)
        prompts, indices = {}, {}
        for size in dict.fromkeys(group_sizes):
            if not 1 <= budget // size <= n_prompts:
                raise ValueError(f"budget = {budget} makes {budget / size:g} groups of {size}, of {n_prompts} prompts.")
            order = np.argsort(rng.random((draws, n_prompts)), axis=1)[:, : budget // size]
            first = np.empty(order.size, dtype=int)
            for prompt in range(n_prompts):
                places = np.flatnonzero(order.ravel() == prompt)
                first[places] = used[prompt] + size * np.arange(len(places))
                used[prompt] += size * len(places)
            prompts[size], indices[size] = order, first.reshape(*order.shape, 1) + np.arange(size)
        return cls(prompts, indices, int(used.max()))

    def groups(self, pool: PoolRewards, size: int, past: int, *, seed: int) -> DrawnGroups:
        """The steps' groups, with so many completions of each past step, drawn without replacement."""
        order = self.prompts[size]
        rng = np.random.default_rng([seed, PURPOSE, size, past])
        keys = rng.random((*order.shape, *pool.history.shape[1:]))
        return DrawnGroups(pool, self.indices[size], np.argsort(keys, axis=-1)[..., : max(past, 1)], order)


def drawn_noise(
    model: torch.nn.Module,
    prompt_ids: Sequence[Sequence[int]],
    completions: Sequence[Sequence[Sequence[int]]],
    pool: PoolRewards,
    steps: StepDraws,
    designs: Sequence[Design],
    *,
    temperature: float,
    parameters: str,
    seed: int,
    done: Callable[[], None] = lambda: None,
) -> tuple[np.ndarray, np.ndarray]:
    """``B E ||ghat - g||^2`` of each design, from R gradients of each.

    Parameters
    ----------
    model : PreTrainedModel
        Small enough for the logits of B completions at once.
    prompt_ids : sequence of P sequences of int
    completions : sequence of P sequences of sequences of int
        Tokens of the fresh completions.
    pool : PoolRewards
        Their rewards and weights as the target, and the history.
    steps : StepDraws
    designs : sequence of K Design
    temperature, parameters
        As in `llm_experiments.gradient.gram.gram_matrix`.
    seed : int
        Of the past completions.
    done : callable
        Called after each gradient.

    Returns
    -------
    mean, se : ndarray, shape (K,)
        The standard error is that of the mean over blocks of gradients, each block with its own variance.
    """
    mean, se = np.zeros(len(designs)), np.zeros(len(designs))
    chosen = [parameter for _, parameter in chosen_parameters(Decoder.of(model), parameters).values()]
    for size, order in steps.prompts.items():
        columns = [k for k, design in enumerate(designs) if design.group_size == size]
        used = order.shape[1] * size
        coefficients = np.stack([_advantages(pool, steps, designs[k], seed) for k in columns], axis=1) / used
        blocks = []
        for start in range(0, len(order) - BLOCK + 1, BLOCK):
            vectors = []
            for draw in range(start, start + BLOCK):
                rows = zip(np.repeat(order[draw], size), steps.indices[size][draw].ravel(), strict=True)
                texts = [(prompt_ids[x], completions[x][h]) for x, h in rows]
                vectors.append(_gradients(model, chosen, texts, coefficients[draw], temperature))
                done()
            blocks.append(torch.stack(vectors).double().var(dim=0).sum(dim=-1).numpy())
        found = used * np.array(blocks)
        mean[columns] = found.mean(axis=0)
        se[columns] = found.std(axis=0, ddof=1) / len(found) ** 0.5
    return mean, se


def formula_noise(parts: Sequence[DesignNoise], *, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """The same by the formula, for these prompts alone, from disjoint parts of their pools.

    Returns
    -------
    mean, se : ndarray, shape (K,)
    """
    found = []
    for part in parts:
        n = len(part.squared_norm)
        size = np.array([design.group_size for design in part.designs])
        used = budget // size * size
        between = part.squared_norm.mean() - (part.across.sum() + part.squared_norm.sum()) / n**2
        noise = [
            gradient_noise(within, between, budget=int(b), group_size=int(g), prompts=n)
            for within, b, g in zip(part.within.mean(axis=0), used, size, strict=True)
        ]
        found.append(used * np.array(noise))
    array = np.array(found)
    return array.mean(axis=0), array.std(axis=0, ddof=1) / len(array) ** 0.5


def _advantages(pool: PoolRewards, steps: StepDraws, design: Design, seed: int) -> np.ndarray:
    """Shape (R, B)."""
    drawn = steps.groups(pool, design.group_size, design.past, seed=seed)
    advantage = drawn.reward - make_estimator(design.method).values(drawn)
    return advantage.reshape(len(advantage), -1)


def _gradients(
    model: torch.nn.Module,
    chosen: Sequence[torch.Tensor],
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    coefficients: np.ndarray,
    temperature: float,
) -> torch.Tensor:
    """``sum_j c_j grad log pi(y_j | x_j)`` for each row of coefficients, shape (rows, parameters).

    Rows are padded on the right, which a causal model does not see.
    """
    width = max(len(prompt) + len(completion) for prompt, completion in texts)
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    chosen_tokens = torch.zeros(len(texts), width - 1)
    for row, (prompt, completion) in enumerate(texts):
        ids[row, : len(prompt) + len(completion)] = torch.tensor([*prompt, *completion])
        chosen_tokens[row, len(prompt) - 1 : len(prompt) + len(completion) - 1] = 1.0
    ids, chosen_tokens = ids.to(chosen[0].device), chosen_tokens.to(chosen[0].device)
    with undisturbed(model), requiring(chosen):
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float() / temperature
        log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
        total = (log_probs * chosen_tokens).sum(dim=1)
        rows = [
            torch.autograd.grad(total, chosen, torch.as_tensor(row, dtype=total.dtype), retain_graph=True)
            for row in coefficients
        ]
    return torch.stack([torch.cat([part.flatten().cpu() for part in row]) for row in rows])
