"""An interactive figure of KAE's value MSE against its bandwidth; `kaestat.report.plots` draws the static one."""

from typing import Any

import numpy as np

from kaestat.core.bootstrap import NORMAL_975
from kaestat.report.analysis import Analysis
from kaestat.report.charts import Chart, Line
from kaestat.report.plots import LEVEL_STYLES
from kaestat.report.tables import unit_of


def bandwidth_chart(analysis: Analysis, kernel: str) -> Chart:
    """The risk path of one kernel with its 95 % band, and GRPO and REINFORCE++ as levels with theirs."""
    path, unit = analysis.paths[kernel].path, unit_of(analysis)
    scale = 10.0**unit.power
    bandwidth = path["bandwidth"].to_numpy()
    risk, spread = path["risk"].to_numpy() / scale, NORMAL_975 * path["se"].to_numpy() / scale
    lines = [Line("KAE", risk, risk - spread, risk + spread)]
    assert analysis.levels is not None  # levels exist if paths do
    row: Any
    for row in analysis.levels.itertuples():
        level, low, high = (np.full(len(bandwidth), x / scale) for x in (row.mse, row.ci_low, row.ci_high))
        lines.append(Line(LEVEL_STYLES[row.method][0], level, low, high, dash=(6, 4)))
    values = np.concatenate([line.y for line in lines])
    logarithmic = bool(values.min() > 0)
    if logarithmic:  # a band that reaches 0 has no place on the axis: it ends far below
        floor = values.min() / 4
        lines = [Line(a.label, a.y, np.maximum(np.asarray(a.low), floor), a.high, a.dash) for a in lines]
    return Chart(
        f"{kernel.capitalize()} kernel",
        f"bandwidth ({analysis.facts.time_axis}s)",
        f"value MSE{unit.times}",
        bandwidth,
        lines,
        x_log=True,
        y_log=logarithmic,
    )
