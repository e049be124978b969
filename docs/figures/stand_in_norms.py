"""Norms of completions' scores by other means than ``llm_experiments law``, for completions that it keeps.

``PYTHONPATH=. python docs/figures/stand_in_norms.py TABLE CONFIG CELL STEP RUNS MOST`` adds rows to ``TABLE.csv``
beside this file, for the first MOST completions of each prompt of a cell whose completions and mean squares are in
RUNS. (The task of the cell ``taught`` is in commit 783cb47 alone; its rows were measured with that commit's code.)

``output_layer_norms`` needs the output layer alone. With p_t the token's probability, d_t the gradient of its
log-probability at the logits and h_t the layer's input:

- ``surprise``, ``miss``: sums of ``-log p_t`` and of ``(1 - p_t)^2``, which need the tokens' log-probabilities alone;
- ``miss_hidden``, ``fused``: sums of ``(1 - p_t)^2 |h_t|^2`` and of ``|d_t|^2 |h_t|^2``;
- ``head``, ``head_adam``: squared norm of the output layer's gradient, plain and in Adam's units.

``floor_norms`` forms each completion's gradient g, with the mean squares v of single coordinates in place of a matrix's
row and column means: ``true_F`` is the sum of ``g^2 / (v + F mean v)``, ``true_eps`` that of ``(g / (v^.5 + 1e-8))^2``,
and ``block`` the part of the last block and the last norm in Adam's units as the package takes them.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from kaestat.integrations.adam_units import Squares, Units, adam_factors
from llm_experiments.law.cell import Cell
from llm_experiments.law.config import load_law
from llm_experiments.policies.token_scores import completion_log_probs

FLOORS = ("1e-2", "1e-3", "1e-4", "1e-6")


class OutputLayer:
    """What the output layer's last call says of a completion's norm."""

    def __init__(self, model: Any, squares: Squares, temperature: float):
        self._head, self._temperature = model.get_output_embeddings(), temperature
        self._rows, self._columns = Units(squares).matrix(self._head.weight, "lm_head")
        self._head.register_forward_hook(self._keep)

    def _keep(self, module: Any, given: Any, logits: torch.Tensor) -> None:
        self._hidden, self._logits = given[0][0].detach().float(), logits[0].detach().float() / self._temperature

    def norms(self, score: torch.Tensor, tokens: torch.Tensor) -> dict[str, float]:
        hidden, log_p = self._hidden[-len(tokens) :], self._logits[-len(tokens) :].log_softmax(-1)
        own = log_p.gather(-1, tokens[:, None])[:, 0]
        back = -log_p.exp()
        back[torch.arange(len(tokens)), tokens] += 1
        miss, size = (1 - own.exp()).square(), hidden.square().sum(1)
        scaled, units = hidden * self._columns, back * self._rows
        return {
            "surprise": -own.sum().item(),
            "miss": miss.sum().item(),
            "miss_hidden": (miss * size).sum().item(),
            "fused": (back.square().sum(1) * size).sum().item(),
            "head": ((hidden @ hidden.T) * (back @ back.T)).sum().item(),
            "head_adam": ((scaled @ scaled.T) * (units @ units.T)).sum().item(),
        }


class Floors:
    """Norms of a completion's whole gradient by what divides its coordinates."""

    def __init__(self, model: Any, squares: Squares, temperature: float):
        self._model, self._squares = model, {p: each.float() for p, each in squares.items()}
        last = f"model.layers.{len(model.model.layers) - 1}."
        self._last = {p for name, p in model.named_parameters() if name.startswith((last, "model.norm."))}

    def norms(self, score: torch.Tensor, tokens: torch.Tensor) -> dict[str, float]:
        found = dict.fromkeys([*(f"true_{floor}" for floor in FLOORS), "true_eps", "block"], 0.0)
        for parameter, g in zip(self._squares, torch.autograd.grad(score, list(self._squares)), strict=True):
            square, v = g.float().square(), self._squares[parameter]
            for floor in FLOORS:
                found[f"true_{floor}"] += (square / (v + float(floor) * v.mean())).sum().item()
            found["true_eps"] += (square / (v.sqrt() + 1e-8).square()).sum().item()
            if parameter in self._last:
                found["block"] += (square * adam_factors(v).square()).sum().item()
        return found


KINDS = {"output_layer_norms": OutputLayer, "floor_norms": Floors}


def measured(kind: str, config: Path, name: str, step: int, runs: Path, most: int) -> pd.DataFrame:
    """One row for each completion."""
    law, silent = load_law(config), lambda *_: nullcontext(lambda: None)
    asked, folder = law.cells[name], runs / "law" / law.name / name
    cell = Cell(name, asked, runs=runs, folder=folder, data=None, progress=silent)
    cell._load(step)
    model, temperature, rows = cell._policy.model, asked.sampling.temperature, []
    measure = KINDS[kind](model, cell._scores.read_squares(step, cell._digest(step), model), temperature)
    for problem in cell._ids:
        prompt = cell._policy.encode(cell._prompts[problem])
        for number, completion in enumerate(cell._pools.read(step, problem).completions[asked.history :][:most]):
            with torch.set_grad_enabled(kind == "floor_norms"):
                log_probs, _ = completion_log_probs(
                    model, prompt, [completion], temperature=temperature, share_prompt=False
                )
                found = measure.norms(log_probs.sum(), torch.tensor(completion.token_ids))
            rows.append({"cell": name, "step": step, "prompt": problem, "completion": number} | found)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    file = Path(__file__).parent / f"{sys.argv[1]}.csv"
    new = measured(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]), int(sys.argv[6]))
    before = pd.read_csv(file) if file.exists() else new.iloc[:0]
    pd.concat([before, new]).to_csv(file, index=False, float_format="%.4g", lineterminator="\n")
