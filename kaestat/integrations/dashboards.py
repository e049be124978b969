"""Ready dashboards of what the adapters log (`kaestat.integrations.shared.logged`), for TensorBoard and for wandb."""

from __future__ import annotations

import os
import re
from typing import Any

from kaestat.integrations.shared.logged import panels

TITLE = "kaestat"


def tensorboard_layout(prefix: str = "") -> dict[str, dict[str, list[Any]]]:
    """The layout of TensorBoard's tab "Custom scalars": one chart for each group of figures.

    Parameters
    ----------
    prefix : str
        What the trainer puts before the names: ``"train/"`` for TRL, nothing for verl.

    Returns
    -------
    dict
        As ``torch.utils.tensorboard.SummaryWriter.add_custom_scalars`` takes it.

    Examples
    --------
    >>> tensorboard_layout()["kaestat"]["Gradient noise"]
    ['Multiline', ['^baseline/gradient_noise$']]
    """
    charts = {
        title: ["Multiline", [f"^{re.escape(prefix + name)}$" for name in names]] for title, names in panels().items()
    }
    return {TITLE: charts}


def write_tensorboard_layout(folder: str | os.PathLike[str], prefix: str = "") -> None:
    """Put the layout beside a run's event files, for the tab "Custom scalars".

    Parameters
    ----------
    folder : path
        Of the run's event files, or any folder within TensorBoard's ``--logdir``.
    prefix : str
        As in `tensorboard_layout`.

    Raises
    ------
    ImportError
        If torch or tensorboard is missing.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(os.fspath(folder)) as writer:
        writer.add_custom_scalars(tensorboard_layout(prefix))


def wandb_workspace(entity: str, project: str, prefix: str = "") -> Any:
    """A workspace with a section of line plots for each group of figures; ``.save()`` puts it into the project.

    Parameters
    ----------
    entity, project : str
    prefix : str
        ``"train/"`` for TRL, nothing for verl.

    Returns
    -------
    wandb_workspaces.workspaces.Workspace

    Raises
    ------
    ImportError
        If wandb-workspaces is missing.
    """
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    sections = [
        ws.Section(
            name=title,
            panels=[wr.LinePlot(title=name, x="Step", y=[prefix + name]) for name in names],
            is_open=True,
        )
        for title, names in panels().items()
    ]
    return ws.Workspace(entity=entity, project=project, name=TITLE, sections=sections)
