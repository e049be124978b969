"""The cells: world x optimiser x completions of a step, fixed before any comparison was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulations.baseline_law.designs import DESIGNS, GROUP_DESIGNS
from simulations.baseline_law.training import Budget
from simulations.baseline_law.world import WorldSpec

COMPLETIONS = 8_192  # of a run
BASES, TUNING_SEEDS, SEEDS = 6, 4, 4

WORLDS = {
    # Many answers are right, each of them rare, and one wrong habit is the mode.
    "habit": WorldSpec(answers=12, right=7, habit=2.5, centre=0.5, spread=0.8),
    "many": WorldSpec(answers=24, right=15, habit=4.0, centre=0.2, spread=0.5),
    # One answer is right and often the mode; wrong answers are many, rare and heavy.
    "heavy": WorldSpec(answers=8, right=1, habit=0.0, centre=0.0, spread=1.0, rule=0.2),
    # First visits as in the real log: 37 % of prompts none right of eight, 8 % all right, a tenth hopeless.
    "real": WorldSpec(answers=24, right=6, habit=3.0, centre=-1.12, spread=2.45, hopeless=0.1, rule=0.25),
    # Wrong answers are loud in half of the directions: plain and adaptive units say different things.
    "loud": WorldSpec(answers=12, right=4, habit=2.0, centre=0.3, spread=0.8, rule=0.2, loud=3.0),
}
# One rule helps all prompts, so the signal is strong beside the noise: how the batch counts near the noise scale. Added
# after three other cells had been judged (habit and loud under AdamW, heavy under SGD, at 64).
ADDED_WORLDS = {"easy": WorldSpec(answers=12, right=7, habit=2.5, centre=0.5, spread=0.8, rule=0.6)}
# For a correction of the law that the cells above suggest: other worlds of the same kinds, not looked at before.
HELD_OUT_WORLDS = {
    "habit_rule": WorldSpec(answers=16, right=10, habit=3.0, centre=0.3, spread=0.6, rule=0.3),
    "heavy_two": WorldSpec(answers=10, right=2, habit=0.5, centre=-0.3, spread=1.2, rule=0.3),
    "real_plain": WorldSpec(answers=16, right=5, habit=2.5, centre=-1.12, spread=2.45, hopeless=0.1),
    "loud_many": WorldSpec(answers=16, right=8, habit=3.0, centre=0.2, spread=0.6, loud=2.5),
}


@dataclass(frozen=True)
class Cell:
    """A cell.

    Attributes
    ----------
    world, optimiser : str
    batch : int
        Completions of a step.
    first_rates : tuple of float
        The grid before it grows, a factor of two apart.
    path_rate : float
        Of the true value's path on which the law's inputs are measured.
    held_out : bool
    """

    world: str
    optimiser: str
    batch: int
    first_rates: tuple[float, ...]
    path_rate: float
    held_out: bool = False

    @property
    def name(self) -> str:
        """As in the results."""
        return f"{self.world}_{self.optimiser}_{self.batch}"

    @property
    def spec(self) -> WorldSpec:
        """Of the world."""
        return (WORLDS | ADDED_WORLDS | HELD_OUT_WORLDS)[self.world]

    @property
    def budget(self) -> Budget:
        """The same completions in every cell."""
        return Budget(self.batch, COMPLETIONS // self.batch)

    @property
    def designs(self) -> tuple[str, ...]:
        """All whose groups leave at least two prompts to a step."""
        return tuple(name for name, design in DESIGNS.items() if 2 * design.group_size <= self.batch)

    @property
    def group_designs(self) -> tuple[str, ...]:
        """Those with groups of several completions."""
        return tuple(name for name in self.designs if name in GROUP_DESIGNS)


# Middle of the first grid, also the path's rate; SGD's step goes with the batch, Adam's and Muon's with its root.
MIDDLE = {
    "sgd": {8: 4.0, 64: 16.0, 256: 32.0},
    "adamw": {8: 0.05, 64: 0.2, 256: 0.4},
    "muon": {8: 0.05, 64: 0.1, 256: 0.2},
}
SMALL_BATCH, BATCH, LARGE_BATCH = 8, 64, 256


def cell(world: str, optimiser: str, batch: int = BATCH, *, held_out: bool = False) -> Cell:
    """A cell with its grid."""
    middle = MIDDLE[optimiser][batch]
    return Cell(world, optimiser, batch, tuple(middle * 2.0**k for k in (-1, 0, 1)), middle / 2, held_out)


CELLS: tuple[Cell, ...] = (
    *(cell(world, optimiser) for world in WORLDS for optimiser in MIDDLE),
    *(cell("habit", optimiser, SMALL_BATCH) for optimiser in ("adamw", "sgd")),
    cell("real", "adamw", SMALL_BATCH),
    *(cell(world, "adamw", LARGE_BATCH) for world in ("habit", "real")),
    *(cell("easy", "sgd", batch) for batch in (SMALL_BATCH, BATCH, LARGE_BATCH)),
    *(cell(world, optimiser, held_out=True) for world in HELD_OUT_WORLDS for optimiser in ("adamw", "muon")),
)


def named(name: str, cells: Sequence[Cell] = CELLS) -> Cell:
    """The cell of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    known = {one.name: one for one in cells}
    if name not in known:
        raise ValueError(f"cell: unknown {name!r}; choose one of {', '.join(known)}.")
    return known[name]
