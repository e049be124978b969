"""Each design's best rate on each base: a grid that grows until the best lies inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

FACTOR = 2.0
MOST_RATES = 14

Areas = Callable[[Sequence[tuple[str, float]]], np.ndarray]


class RateAtEdge(ValueError):
    """A design's best rate lies at an edge of its grid, so a better one may lie beyond."""


def best_rate(areas: Mapping[float, float], *, design: str, cell: str) -> float:
    """The rate of the largest area, which must not be the grid's least or largest.

    Parameters
    ----------
    areas : mapping
        Mean accuracy at each rate.
    design, cell : str
        For the message.

    Raises
    ------
    RateAtEdge
        If it is.
    """
    grid = sorted(areas)
    best = max(grid, key=lambda rate: areas[rate])
    if best in (grid[0], grid[-1]):
        where = "least" if best == grid[0] else "largest"
        raise RateAtEdge(
            f"design {design!r} in cell {cell!r}: the best rate {best:g} is the {where} of the grid "
            f"{grid[0]:g} to {grid[-1]:g}; extend the grid beyond it before anything is compared."
        )
    return best


def search(
    designs: Sequence[str], first: Sequence[float], areas: Areas, *, cell: str
) -> dict[str, dict[float, np.ndarray]]:
    """Mean accuracy on each base at every rate that was tried, until each base's best lies inside.

    Parameters
    ----------
    designs : sequence of str
    first : sequence of float
        Rates a factor of `FACTOR` apart.
    areas : callable
        Of (design, rate) pairs: mean accuracy, shape (pairs, bases).
    cell : str
        For messages.

    Returns
    -------
    dict
        Design to rate to areas, shape (bases,).

    Raises
    ------
    RateAtEdge
        If the best is still at an edge after `MOST_RATES` rates.
    """
    found: dict[str, dict[float, np.ndarray]] = {name: {} for name in designs}
    wanted = [(name, rate) for name in designs for rate in first]
    while wanted:
        for (name, rate), area in zip(wanted, areas(wanted), strict=True):
            found[name][rate] = area
        wanted = [(name, rate) for name in designs for rate in _beyond(found[name])]
        if any(len(found[name]) >= MOST_RATES for name, _ in wanted):
            break
    for name in designs:
        rates_of_bases(found[name], design=name, cell=cell)
    return found


def rates_of_bases(areas: Mapping[float, np.ndarray], *, design: str, cell: str) -> np.ndarray:
    """`best_rate` on each base, shape (bases,)."""
    bases = range(len(next(iter(areas.values()))))
    return np.array(
        [
            best_rate({r: a[base] for r, a in areas.items()}, design=design, cell=f"{cell}, base {base}")
            for base in bases
        ]
    )


def _beyond(areas: Mapping[float, np.ndarray]) -> list[float]:
    """The next rates on the sides at which some base has its best."""
    grid = sorted(areas)
    best = np.argmax([areas[rate] for rate in grid], axis=0)
    ends = ((0, grid[0] / FACTOR), (len(grid) - 1, grid[-1] * FACTOR))
    return [rate for place, rate in ends if (best == place).any()]
