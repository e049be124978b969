"""Snapshots of a run: model folders of its policy along the way, which stay where checkpoints to go on from do not."""

import re
from pathlib import Path

SNAPSHOTS = "snapshots"
_NAME = re.compile(r"step-([0-9]+)")


def snapshot(folder: Path, step: int | str) -> Path:
    """The model folder of a run's policy after ``step`` training steps; ``{step}`` gives a pattern of them."""
    return Path(folder) / SNAPSHOTS / f"step-{step}"


def snapshots(folder: Path) -> dict[int, Path]:
    """Those that a run's folder holds, by step."""
    places = (path for path in (Path(folder) / SNAPSHOTS).glob("step-*") if path.is_dir())
    found = {int(name[1]): path for path in places if (name := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))
