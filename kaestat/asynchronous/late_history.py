"""A history whose visits come in any order: late, in parts, and from other workers."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np

from kaestat.asynchronous.delta import RecordedVisits
from kaestat.core.arrays import Visits
from kaestat.core.checks import check_whole
from kaestat.history.fields import about
from kaestat.history.history import HistoryWrite, RewardHistory, wider


class LateHistory(RewardHistory):
    """A `RewardHistory` to which completions of any step can be added, late or not.

    The result does not depend on the order of calls, or on how the completions of a visit are spread over them, up to
    the rounding of sums.

    Parameters
    ----------
    horizon : float
        As of `RewardHistory`.
    late : int
        The history also keeps the visits that a step this many steps before the last can reach.
    **options
        Further ones of `RewardHistory`.
    """

    def __init__(self, horizon: float = math.inf, *, late: int, **options: Any):
        super().__init__(horizon, **options)
        self.late = check_whole("late", late, least=0)

    def added(self, recorded: RecordedVisits, last_step: int) -> HistoryWrite:
        """The write that adds completions, each to the visit of its step; the history is unchanged.

        Visits are left out if neither the next step nor the latest completion that ``late`` allows can reach them.

        Parameters
        ----------
        recorded : RecordedVisits
            Sums over the completions, with the columns of this history.
        last_step : int
            The newest step known where they were recorded.

        Raises
        ------
        ValueError
            If the sums are others than those of this history.
        """
        if (names := set(self.fields) - {"step"}) != set(recorded.sums):
            raise ValueError(f"this history keeps {', '.join(sorted(names))}; got {', '.join(sorted(recorded.sums))}.")
        rows = self.rows(recorded.keys)
        last_step = max(self.last_step, last_step, int(recorded.step.max(initial=-1)))
        row, column = np.nonzero(self.fields["count"][rows] > 0)
        added = about(recorded.sums, self.center - recorded.center) | {"step": recorded.step}
        merged = {name: np.concatenate([field[rows[row], column], added[name]]) for name, field in self.fields.items()}
        row, step = np.concatenate([row, recorded.row]), merged.pop("step")
        order = np.lexsort([step, row])
        row, step = row[order], step[order]
        first = np.flatnonzero(np.append(True, (np.diff(row) != 0) | (np.diff(step) != 0))[: len(row)])
        sums = {name: np.add.reduceat(column[order], first) for name, column in merged.items()}
        row, step = row[first], step[first]
        place = _place_from_newest(row)
        # Whatever may come is after these, and looks back at max_visits of them at most.
        settled = step < last_step - self.late
        before = _place_from_newest(np.where(settled, row, -1 - np.arange(len(row))))
        kept = (step >= last_step - self.late - self.horizon) & (~settled | (before < self.max_visits))
        width = self.width
        if (needed := int(place[kept].max(initial=0)) + 1) > width:
            width = max(needed, wider(width, self.horizon + self.late + 1))
        at = row[kept], width - 1 - place[kept]
        blocks = {name: np.zeros((len(rows), width), dtype=field.dtype) for name, field in self.fields.items()}
        for name, block in blocks.items():
            block[at] = step[kept] if name == "step" else sums[name][kept]
        return self.write(blocks, recorded.keys, rows, last_step)

    def visits_known(
        self, rows: np.ndarray, steps: np.ndarray, without: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Visits:
        """Visits at or before a step for each row, in whatever order they were recorded: the newest within the horizon.

        Visits at the step itself have lag 0. ``without`` are positions in ``rows`` and lags of visits to leave out. A
        prompt has at most `max_visits` visits before its step.
        """
        visits = self.visits_of(rows, steps[:, None])
        kept = (visits.count > 0) & (visits.lag >= 0) & (visits.lag <= self.horizon)
        if without is not None:
            position, lag = without
            which, column = np.nonzero(visits.lag[position] == lag[:, None])
            kept[position[which], column] = False
        earlier = kept & (visits.lag > 0)
        newer = np.cumsum(earlier[:, ::-1], axis=1)[:, ::-1]
        return hidden(visits, kept & (~earlier | (newer <= self.max_visits)))

    def snapshot(self) -> Any:
        """As of `RewardHistory`, with ``late``."""
        plain, late = super().snapshot(), self.late
        return lambda: plain() | {"late": late}


def hidden(visits: Visits, kept: np.ndarray) -> Visits:
    """The visits, (P, V), with all but those ``kept`` turned into padding."""
    columns = {field.name: getattr(visits, field.name) for field in fields(visits)}
    sums = {n: a * kept for n, a in columns.items() if isinstance(a, np.ndarray) and n not in ("lag", "state")}
    return replace(visits, lag=np.where(kept, visits.lag, 0.0), **sums)


def _place_from_newest(row: np.ndarray) -> np.ndarray:
    """For visits sorted by row and step, how many newer ones of the same row there are."""
    last = np.flatnonzero(np.diff(row, append=row[-1:] - 1)) if len(row) else np.zeros(0, dtype=np.intp)
    return np.repeat(last, np.diff(last, prepend=-1)) - np.arange(len(row))
