"""Dashboards: every figure on them, under the name that the tracker has."""

from __future__ import annotations

import re

import pytest

from kaestat.integrations.dashboards import tensorboard_layout, wandb_workspace, write_tensorboard_layout
from kaestat.integrations.shared.logged import LOGGED

NAMES = {figure.name for figure in LOGGED}


@pytest.mark.parametrize("prefix", ["", "train/"])
def test_integration_dashboard_layout_finds_each_figure_once_and_nothing_else(prefix):
    (charts,) = tensorboard_layout(prefix).values()
    patterns = [pattern for kind, tags in charts.values() for pattern in tags if kind == "Multiline"]
    for name in NAMES:
        assert sum(bool(re.search(pattern, prefix + name)) for pattern in patterns) == 1
    assert not any(re.search(pattern, f"other/{prefix}{name}") for pattern in patterns for name in NAMES)


def test_integration_dashboard_layout_is_read_by_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.custom_scalar import layout_pb2

    write_tensorboard_layout(tmp_path, prefix="train/")
    events = EventAccumulator(str(tmp_path)).Reload()
    (tag,) = events.Tags()["tensors"]
    layout = layout_pb2.Layout.FromString(events.Tensors(tag)[0].tensor_proto.string_val[0])
    assert {chart.title for chart in layout.category[0].chart} == {figure.panel for figure in LOGGED}


def test_integration_dashboard_workspace_has_each_figure():
    pytest.importorskip("wandb_workspaces")
    workspace = wandb_workspace("me", "runs", prefix="train/")
    plotted = [name for section in workspace.sections for panel in section.panels for name in panel.y]
    assert sorted(plotted) == sorted(f"train/{name}" for name in NAMES)
