"""How stand-ins go with the move of Muon's step by each completion, on small models trained with torch's Muon.

``PYTHONPATH=. python docs/figures/muon_norms.py WORLD INDEX EXAMPLES MODELS`` adds rows to ``muon_norms.csv`` beside
this file, after 2 and 16 steps. The base model learns from EXAMPLES examples of the world and is kept in MODELS. Each
step takes four completions of each of 48 prompts, with advantages against the mean of the other three; Muon (learning
rate .01) trains the matrices of the layers, AdamW (4e-4) the rest. Then eight more completions of each prompt are
measured, over Muon's matrices alone:

- ``true``: squared norm of the derivative of Muon's five Newton-Schulz steps, in float32, at its momentum, in the
  direction of the completion's gradient, times the square of Muon's factor for the shape;
- ``muon``: norm in Muon's units, as `kaestat.integrations.muon_units` has it;
- ``whitened``, ``halfway``: ``|L g R|^2`` with powers -1/4 and -1/8 of ``M M' + floor`` and ``M' M + floor``;
- ``means``: each coordinate over the root of an outer product of the row and column means of the momentum's squares;
- ``plain``: squared norm of the gradient.

Columns are those of ``stand_in_numbers.described``, with ``true`` in place of the norm in Adam's units.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from stand_in_numbers import described

from kaestat.integrations.muon_units import FLOOR, Bases
from llm_experiments.config import ModelConfig, PretrainingConfig, SamplingConfig, TaskConfig
from llm_experiments.policies import load_policy
from llm_experiments.policies.tiny import tiny_folder
from llm_experiments.policies.token_scores import completion_log_probs
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import load_task, world_examples

STEPS, GROUP, MEASURED = (2, 16), 4, 8
NAMES = ("true", "muon", "whitened", "halfway", "means", "plain")


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    """torch's, in float32."""
    x = (matrix.T if matrix.shape[0] > matrix.shape[1] else matrix) / matrix.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def norms_in(g: torch.Tensor, momentum: torch.Tensor) -> dict[str, torch.Tensor]:
    """Squared norms of gradients g, shape (N, m, n), in one matrix."""
    size = max(1, momentum.shape[0] / momentum.shape[1])
    moves = [torch.func.jvp(newton_schulz, (momentum,), (each,))[1] for each in g]
    eye = torch.eye(g.shape[2]).expand(len(g), -1, -1)
    square = momentum.square()
    rows, columns = (each + 1e-3 * each.mean() for each in (square.mean(1), square.mean(0)))
    whitened = {}
    for name, power in (("whitened", -0.25), ("halfway", -0.125)):
        left, right = (_power(each, power) for each in (momentum @ momentum.T, momentum.T @ momentum))
        whitened[name] = (left @ g @ right).square().sum((1, 2)) * size
    return whitened | {
        "true": torch.stack(moves).square().sum((1, 2)) * size,
        "muon": Bases.of(momentum, {"adjust_lr_fn": None}).norms(eye, g.transpose(1, 2)),
        "means": (g.square() / (rows[:, None] * columns / rows.mean())).sum((1, 2)) * size,
        "plain": g.square().sum((1, 2)),
    }


def _power(product: torch.Tensor, power: float) -> torch.Tensor:
    """A power of a matrix with the floor, scaled so that the mean square of singular values is 1."""
    values, vectors = torch.linalg.eigh(product.double())
    floor = FLOOR * product.trace() / min(product.shape)
    return ((vectors * (values.clamp(min=0) + floor) ** power) @ vectors.T).float()


def measured(world: str, index: int, n_examples: int, models: Path) -> pd.DataFrame:
    """One row for each completion and step."""
    wanted = TaskConfig(name=world, n_prompts=48, options={"world": index, "split": "train"})
    made = PretrainingConfig(steps=1200, batch_size=128, learning_rate=8e-3, width=48, layers=2)
    examples = world_examples(wanted, n_examples, seed=seed_of(index, "examples") % 2**32)
    folder = tiny_folder(models, examples, made, seed_of(index, "model") % 2**32)
    problems = load_task(wanted, seed=seed_of(0, "task"))
    sampling = SamplingConfig(temperature=1.0, max_new_tokens=25, batch_size=512)
    policy = load_policy(ModelConfig(name=str(folder), chat=False), sampling, cache=models, seed=0)
    model: Any = policy.model
    of_muon = [each for each in model.model.layers.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if all(each is not one for one in of_muon)]
    muon = torch.optim.Muon(of_muon, lr=0.01, weight_decay=0.0)
    adam = torch.optim.AdamW(others, lr=4e-4, weight_decay=0.0, betas=(0.9, 0.99))
    prompts, rows = [each.prompt for each in problems.problems], []

    def scores(prompt: str, completions: list[Any]) -> torch.Tensor:
        ids = policy.encode(prompt)
        return completion_log_probs(model, ids, completions, temperature=1.0, share_prompt=False)[0].sum(1)

    for step in range(max(STEPS) + 1):
        if step in STEPS:
            fresh = policy.sample_groups(prompts, MEASURED, seed=10_000 + step)
            for problem, own in zip(problems.problems, fresh, strict=True):
                rewards = problems.rewards(problem, [each.text for each in own])
                loop = [torch.autograd.grad(scores(problem.prompt, [each])[0], of_muon) for each in own]
                found = dict.fromkeys(NAMES, torch.zeros(len(own), dtype=torch.float64))
                for parameter, gradients in zip(of_muon, zip(*loop, strict=True), strict=True):
                    momentum = muon.state[parameter]["momentum_buffer"]
                    for name, each in norms_in(torch.stack(gradients), momentum).items():
                        found[name] = found[name] + each.double()
                key = {"cell": f"{world}_{index}", "step": step, "prompt": problem.id}
                for at, reward in enumerate(rewards):
                    rows.append(key | {"reward": reward} | {name: float(each[at]) for name, each in found.items()})
        loss = torch.zeros(())
        for problem, own in zip(problems.problems, policy.sample_groups(prompts, GROUP, seed=step), strict=True):
            rewards = torch.tensor(problems.rewards(problem, [each.text for each in own]), dtype=torch.float32)
            advantages = (rewards - rewards.mean()) * GROUP / (GROUP - 1)
            if advantages.any():
                loss = loss - (advantages * scores(problem.prompt, own)).sum() / (len(prompts) * GROUP)
        model.zero_grad()
        loss.backward()
        muon.step()
        adam.step()
    return pd.DataFrame(rows)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each step and stand-in."""
    rows = []
    for (cell, step), own in table.groupby(["cell", "step"], sort=False):
        for name in NAMES[1:]:
            rows.append({"cell": cell, "step": step, "stand_in": name} | described(own.assign(adam=own["true"]), name))
    return pd.DataFrame(rows)


if __name__ == "__main__":
    file = Path(__file__).parent / "muon_norms.csv"
    new = summary(measured(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
    before = pd.read_csv(file) if file.exists() else new.iloc[:0]
    pd.concat([before, new]).to_csv(file, index=False, float_format="%.5g", lineterminator="\n")
