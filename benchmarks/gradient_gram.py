"""Gradient errors of four methods in 1,000 repeats: one Gram matrix, or a loss and a backward pass for each.

One prompt of a character-level model of about a million parameters with random weights, a pool of 64 completions of 4
to 16 tokens, groups of 8, all parameters. Timed on the side of the Gram form: `gram_matrix` (forward and backward
passes of the pool and all inner products) and `gradient_errors`. On the direct side, for every method and repeat: the
loss of the paper's appendix on its eight completions in one padded batch, its gradient, the difference to the
reference gradient, and the squared norm. Rewards, draws, advantages and the reference gradient are made beforehand.

Each repetition runs another tenth of the 4,000 losses, and counts ten times; all of them are run in the ten
repetitions, and their errors compared. Torch has one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import Estimate, estimate, interleaved, ratio

CODE = ("llm_experiments/gradient",)
CLAIM = (
    "Gradient errors of 4 methods × 1,000 repeats from a Gram matrix take at least 100 × less time than 4,000 losses"
)
METHODS = ("none", "reinforce++", "grpo", "kae")
SIZES = {"full": (64, 1000, 10), "tiny": (4, 4, 2)}
GROUP_SIZE, PAST, STEP, PROMPTS, PROMPT_TOKENS = 8, 4, 10, 8, 12
MORE_METHODS, MORE_REPEATS = 4, 10


def run(size: str = "full") -> list[Row]:
    """Seconds of both forms, their ratio and difference, and the Gram form's at 40 times as many losses."""
    n, repeats, parts = SIZES[size]
    case = f"{n} completions, {len(METHODS)} methods × {repeats:,} repeats"
    try:
        import torch

        pool = _Pool(n, repeats)
    except ImportError as error:
        note = f"The gradient errors were not measured: {error}."
        return [Row(case, "losses / Gram form", "ratio", None, at_least=100.0, note=note)]
    torch.set_num_threads(1)
    found: dict[int, np.ndarray] = {}
    seconds = interleaved(
        {
            "gram": pool.gram_form,
            "more": lambda: pool.gram_form(MORE_METHODS, MORE_REPEATS),
            "losses": _part_by_part(pool, parts, found),
        },
        repetitions=parts,
    )
    losses = parts * seconds["losses"]
    direct, ours = np.concatenate([found[part] for part in range(parts)], axis=1), pool.gram_form()
    difference = float(np.abs(ours / direct - 1).max())
    larger = f"Gram form, {MORE_METHODS} × the methods and {MORE_REPEATS} × the repeats"
    return [
        Row(case, "Gram form", "s", estimate(seconds["gram"])),
        Row(case, f"{direct.size:,} losses", "s", estimate(losses)),
        Row(case, "losses / Gram form", "ratio", ratio(losses, seconds["gram"]), at_least=100.0),
        Row(case, larger, "s", estimate(seconds["more"])),
        Row(case, f"{larger} / Gram form", "ratio", ratio(seconds["more"], seconds["gram"]), at_most=1.5),
        Row(case, "largest relative difference of errors", "ratio", Estimate(*[difference] * 3), at_most=1e-5),
    ]


def _part_by_part(pool: _Pool, parts: int, found: dict[int, np.ndarray]) -> Callable[[], None]:
    """Function that runs the next part of the losses at each call; the untimed first call is the last part."""
    number = count(-1)

    def run_next() -> None:
        part = next(number) % parts
        found[part] = pool.losses(np.array_split(np.arange(pool.repeats), parts)[part])

    return run_next


class _Pool:
    """A model, completions of one prompt, and the draws and advantages of all repeats."""

    def __init__(self, n: int, repeats: int):
        import torch

        from llm_experiments.diagnose.draws import Drawing
        from llm_experiments.diagnose.estimators import make_estimator
        from llm_experiments.diagnose.pool_rewards import PoolRewards
        from llm_experiments.policies.tiny import tiny_model, tiny_tokenizer

        rng, tokenizer = np.random.default_rng(0), tiny_tokenizer()
        self.model, self.repeats = tiny_model(tokenizer, seed=0), repeats
        self.prompt = rng.integers(256, size=PROMPT_TOKENS).tolist()
        self.completions = [
            [*rng.integers(256, size=length - 1).tolist(), tokenizer.eos_token_id]
            for length in rng.integers(4, 17, size=n)
        ]
        rates = rng.uniform(0.2, 0.8, size=PROMPTS)
        reward = (rng.random((PROMPTS, n)) < rates[:, None]).astype(float)
        past = (rng.random((PROMPTS, PAST, n)) < rates[:, None, None]).astype(float)
        drawn = Drawing(GROUP_SIZE, replace=True).draw(PoolRewards(STEP, reward, past), range(repeats))
        values = [make_estimator(name).values(drawn) for name in METHODS]
        self.advantages = np.stack([(drawn.reward - value)[:, 0] for value in values])
        self.indices = drawn.indices[:, 0]
        self.reference = (reward[0] - reward[0].mean()) / n
        self.parameters = list(self.model.parameters())
        self.center = self._gradient(torch.tensor(self.reference), np.arange(n))

    def gram_form(self, more_methods: int = 1, more_repeats: int = 1) -> np.ndarray:
        """Errors of every method and repeat, repeats and methods tiled."""
        from llm_experiments.gradient.gram import gram_matrix
        from llm_experiments.gradient.repeats import gradient_errors

        indices = np.tile(self.indices, (more_repeats, 1))
        advantages = np.tile(self.advantages, (more_methods, more_repeats, 1))
        found = gram_matrix(self.model, self.prompt, self.completions, temperature=1.0, parameters="all")
        return gradient_errors(found.gram, self.reference, indices, advantages)

    def losses(self, repeats: np.ndarray) -> np.ndarray:
        """Errors of every method in these repeats, from the gradient of each loss."""
        import torch

        errors = np.empty((len(METHODS), len(repeats)))
        for column, repeat in enumerate(repeats):
            for method, advantages in enumerate(self.advantages[:, repeat]):
                gradient = self._gradient(torch.tensor(advantages) / GROUP_SIZE, self.indices[repeat])
                errors[method, column] = sum(
                    (one - other).double().square().sum().item()
                    for one, other in zip(gradient, self.center, strict=True)
                )
        return errors

    def _gradient(self, coefficients: object, indices: np.ndarray) -> tuple:
        """Gradient of ``-sum_g c_g log pi(y_g)``, the completions padded into one batch."""
        import torch

        drawn = [self.completions[index] for index in indices]
        longest = max(map(len, drawn))
        ids = torch.tensor([self.prompt + completion + [0] * (longest - len(completion)) for completion in drawn])
        present = torch.tensor([[position < len(completion) for position in range(longest)] for completion in drawn])
        logits = self.model(input_ids=ids, use_cache=False).logits[:, PROMPT_TOKENS - 1 : -1]
        chosen = logits.log_softmax(-1).gather(2, ids[:, PROMPT_TOKENS:, None])[..., 0]
        loss = -(coefficients.to(chosen.dtype) * (chosen * present).sum(dim=1)).sum()
        return torch.autograd.grad(loss, self.parameters)


if __name__ == "__main__":
    show(CLAIM, run())
