"""Operations on a history whose visits come in any order: late, in parts, and from other histories."""

import math

import numpy as np

from kaestat.core.arrays import Visits
from kaestat.history.columns import Columns, HistoryWrite
from kaestat.history.delta import HistoryDelta
from kaestat.history.fields import NARROW_FIELDS
from kaestat.history.late_visits import add_to_columns, hidden, in_rounds, named, newest_of


def added(columns: Columns, delta: HistoryDelta) -> HistoryWrite:
    """The write for `kaestat.RewardHistory.add`, with the same errors; the columns are unchanged."""
    if "divergence" in columns.fields or columns.state.shape[1]:
        raise ValueError(
            "a history with policy divergences, or with a state of each prompt, takes visits in order only."
        )
    if set(delta.sums) != set(columns.fields) - {"step"}:
        raise ValueError(
            f"this history keeps {', '.join(sorted(set(columns.fields) - {'step'}))}; the delta has "
            f"{', '.join(sorted(delta.sums))}."
        )
    rows = columns.rows(delta.keys)
    part = columns.part(rows)
    part.last_step = max(columns.last_step, delta.last_step, int(delta.step.max(initial=-1)))
    kept = delta.step >= part.first_kept
    row, step = delta.row[kept], delta.step[kept]
    sums = {name: column[kept] for name, column in delta.sums.items()}
    for name in NARROW_FIELDS:
        part.fields[name] = part.fields[name].astype(np.float64)  # until the sums are known
    for turn in in_rounds(row, step):
        _add_turn(part, row[turn], step[turn], {name: column[turn] for name, column in sums.items()})
    summed, part.fields = part.fields, part.fields | {name: columns.fields[name][:0] for name in NARROW_FIELDS}
    part.retype(summed)
    part.fields = {name: column.astype(part.fields[name].dtype, copy=False) for name, column in summed.items()}
    return columns.write(part, delta.keys, rows, None)


def as_delta(columns: Columns) -> HistoryDelta:
    """All kept visits as a delta: added to an empty history it gives this one."""
    size = len(columns.row) + 1
    stored = columns.fields["step"][:size]
    kept = (columns.fields["count"][:size] > 0) & (stored >= columns.first_kept)
    if columns.late is not None and columns.max_visits < math.inf:
        for_all = kept & (stored < columns.last_step - columns.late)  # whatever may come is after these
        kept &= newest_of(for_all, int(columns.max_visits)) | ~for_all
    row, column = np.nonzero(kept)
    fields = {name: field[row, column] for name, field in columns.fields.items()}
    step = fields.pop("step").astype(np.int64)
    sums = {name: field.astype(np.float64) for name, field in fields.items()}
    return HistoryDelta(list(columns.row), row - 1, step, sums, columns.last_step)


def visits_known(
    columns: Columns,
    rows: np.ndarray,
    steps: np.ndarray,
    without: tuple[np.ndarray, np.ndarray] | None = None,
    most: float = math.inf,
) -> Visits:
    """Visits at or before a step for each row, in whatever order they were recorded: the newest within the horizon.

    Visits at the step itself have lag 0. ``without`` are positions in ``rows`` and steps of visits to leave out.
    A prompt has at most ``most`` visits before its step, or as many as the history keeps.
    """
    stored, count = (np.take(columns.fields[name], rows, axis=0) for name in ("step", "count"))
    lag = np.subtract(steps[:, None], stored, dtype=np.float64)
    kept = (count > 0) & (lag >= 0) & (lag <= columns.horizon) & (stored >= columns.first_kept)
    if without is not None:
        kept &= ~named(lag, *without)
    if (most := min(most, columns.max_visits)) < math.inf:
        kept &= newest_of(kept & (lag > 0), int(most)) | (lag == 0)
    before = columns.width - columns.shown
    first = 0 if kept[:, :before].any() else before
    return hidden(columns.visits(rows, steps[:, None], first), kept[:, first:])


def _add_turn(columns: Columns, row: np.ndarray, step: np.ndarray, sums: dict[str, np.ndarray]) -> None:
    """`add` for one visit of each row."""
    stored, here = columns.fields["step"][row], columns.fields["count"][row] > 0
    newer = np.sum(here & (stored > step[:, None]), axis=1)
    new = ~np.any(here & (stored == step[:, None]), axis=1)
    columns.make_room(row[new], step[new], columns.last_step)
    place = columns.width - 1 - newer
    fits = place >= 0
    add_to_columns(columns.fields, row[fits], place[fits], new[fits], step[fits], {n: c[fits] for n, c in sums.items()})
