"""Replicates of a value-MSE study per second, against the rate at which their random numbers can be drawn.

Timed on our side: one shard as a worker computes it: seeding, drawing, rewards, estimators, squared errors, checks, and
the shard's file with its checksum, synced to disk. The comparison draws the same numbers (the same calls, on the same
bit generators, seeded beforehand) and nothing else. One process and one thread each. The cells: groups of Bernoulli
rewards from uniform numbers for KAE and GRPO; and the first cell of the study behind Table 1, which follows the paper's
diagnostic with binomial and hypergeometric counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import Groups, Visits, make_baseline
from simulations import studies
from simulations.harness import Cell, Samples, Shard, Store, Streams
from simulations.harness.execution import Computation

CODE = ("simulations",)
CLAIM = "Replicates are computed at 30 % or more of the rate at which their random numbers can be drawn"
SIZES = {"full": (250, 40), "tiny": (3, 2)}  # replicates of a shard, and repetitions
VALUE_MSE = Cell({"prompts": 256, "group_size": 8, "past_steps": 4, "bandwidth": 10.0})

Draw = Callable[[np.random.Generator], Any]


class RecordingGenerator:
    """Passes every draw on to a generator, and notes it as a function of a generator."""

    def __init__(self, generator: np.random.Generator, draws: list[Draw]):
        self._generator, self._draws = generator, draws

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def draw(*arguments: Any, **keywords: Any) -> Any:
            self._draws.append(lambda generator: getattr(generator, method)(*arguments, **keywords))
            return self._draws[-1](self._generator)

        return draw


class RecordingStreams(Streams):
    """Streams that note every draw, with a second generator of the same kind for each."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.draws: list[tuple[np.random.Generator, list[Draw]]] = []

    def generators(self, name: str) -> list[RecordingGenerator]:
        self.draws += [(generator, []) for generator in super().generators(name)]
        recorded = [draws for _, draws in self.draws[-len(self) :]]
        return [RecordingGenerator(*pair) for pair in zip(super().generators(name), recorded, strict=True)]

    def draw_again(self) -> None:
        """All that was drawn, and nothing else."""
        for generator, draws in self.draws:
            for draw in draws:
                draw(generator)


def simulate(cell: Cell, streams: Streams) -> Samples:
    """Value MSE of KAE and GRPO on prompts that stand still, from the rewards of a current group and past ones."""
    prompts, group_size, past = cell["prompts"], cell["group_size"], cell["past_steps"]
    rate = np.linspace(0.05, 0.95, prompts, dtype=np.float32)
    reward = streams.uniform("rewards", past + 1, group_size, prompts) < rate
    total = np.moveaxis(reward[:, :-1].sum(axis=-2, dtype=np.uint8).astype(float), 1, -1)
    visits = Visits.of_successes(np.arange(past, 0, -1), total, group_size)
    groups = Groups(np.moveaxis(reward[:, -1], 1, -1).astype(float))
    columns = {}
    for name in ("kae", "rloo"):
        parameters = {"bandwidth": cell["bandwidth"]} if name == "kae" else {}
        error = make_baseline(name, **parameters).values(groups, visits, step=past) - rate[:, None]
        columns[f"{name}|mse"] = np.einsum("rpg,rpg->r", error, error) / (prompts * group_size)
    return columns


def run(size: str = "full") -> list[Row]:
    """Seconds of a shard and of its random numbers, and the ratio of the rates."""
    replicates, repetitions = SIZES[size]
    table1 = studies.get("table1")
    rows = _case("256 prompts × 8, 4 past steps", VALUE_MSE, simulate, replicates, repetitions)
    return rows + _case("study table1, first cell", table1.cells[0], table1.simulate, replicates, repetitions)


def _case(
    name: str, cell: Cell, simulate: Callable[[Cell, Streams], Samples], replicates: int, repetitions: int
) -> list[Row]:
    case, shard = f"{name}, {replicates} replicates", Shard(cell, 0, replicates)
    recorded = RecordingStreams(0, cell.key, range(replicates))
    simulate(cell, recorded)
    with tempfile.TemporaryDirectory() as folder:
        compute = partial(Computation("benchmark", simulate, 0, Store(folder)), shard, cell.key)
        failure = compute().failure
        if failure is not None:  # a shard that fails is quick, and no measurement
            raise RuntimeError(f"{name}: {failure['error']}")
        seconds = interleaved(
            {"shard": compute, "its random numbers alone": recorded.draw_again}, repetitions=repetitions
        )
    return [
        *(
            Row(case, f"{piece}, per replicate", "ms", estimate(1e3 * sample / replicates))
            for piece, sample in seconds.items()
        ),
        Row(case, "rate of replicates / rate of drawing", "ratio", ratio(*reversed(seconds.values())), at_least=0.3),
    ]


if __name__ == "__main__":
    show(CLAIM, run())
