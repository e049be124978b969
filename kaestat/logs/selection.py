"""The selection of a bandwidth for a reward log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kaestat.core.arrays import Array
from kaestat.logs.replay import as_seen
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.smoothing.kernels import Kernel, as_kernel
from kaestat.smoothing.selectors import BandwidthSelection, Selector, as_selector

if TYPE_CHECKING:
    import pandas as pd


def select_bandwidth(
    log: RewardLog | pd.DataFrame,
    selector: str | Selector = "forward_cv",
    kernel: str | Kernel | Callable[[Array], Array] = "triangular",
    grid: Sequence[float] | None = None,
    *,
    seed: int = 0,
    n_boot: int = 200,
) -> BandwidthSelection:
    """The selected bandwidth for a whole log.

    Parameters
    ----------
    log : RewardLog or DataFrame
        A DataFrame has one completion per row and the usual column names (use `RewardLog.from_frame` for others).
    selector : str or Selector
        A name from `kaestat.smoothing.selectors.SELECTORS`, or a selector.
    kernel : str, Kernel or callable
        The kernel that will use the bandwidth; see `kaestat.smoothing.kernels.as_kernel`.
    grid : sequence of float, optional
        Candidates, increasing, in steps (visits if the log has no steps). None for the selector's own grid.
    seed : int
        Seed of the bootstrap over prompts.
    n_boot : int
        Number of bootstrap draws for the standard errors; below 2 these are NaN.

    Returns
    -------
    BandwidthSelection
        ``bandwidth``, its standard error ``se``, and the risk ``path`` over the grid.

    Raises
    ------
    ValueError
        If a name is unknown, the grid is empty, unsorted or not positive, the selector takes no grid, or no
        prompt has two visits.
    TypeError
        If ``log`` has another type.

    Examples
    --------
    >>> log = RewardLog(["a"] * 8, range(8), [0, 0, 0, 0, 1, 1, 1, 1])
    >>> select_bandwidth(log, grid=[1.5, 8.0]).bandwidth
    1.5
    """
    log = as_log(log)
    chooser: Any = as_selector(selector)
    if grid is not None:
        if "grid" not in {field.name for field in dataclasses.fields(chooser)}:
            raise ValueError(f"selector {chooser.name!r} takes no grid: it is a formula; leave grid out.")
        chooser = dataclasses.replace(chooser, grid=grid)
    units, _ = as_seen(log, log.prompt_units, bounded=True, relative=True)
    chosen: BandwidthSelection = chooser.select(units.as_series(), kernel=as_kernel(kernel), seed=seed, n_boot=n_boot)
    return dataclasses.replace(chosen, time_axis=log.time_axis)
