"""A user's own baseline on the command line: ``package.module:Class``, with parameters after a second colon."""

import importlib
import re
import sys
from pathlib import Path

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import METHODS
from kaestat.baselines.specification import parse_specification
from kaestat.core.spelling import nearest
from kaestat.logs.risk import risk_baseline

_PLACE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(?::(.*))?")


def method_or_baseline(text: str) -> str | Baseline:
    """The specification, or the baseline named by ``package.module:Class``, also in the working directory."""
    place = _PLACE.fullmatch(text.strip())
    try:
        if place is not None and place[1] not in METHODS:
            return _made(*place.groups(default=""))
        risk_baseline(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"--method {text}: {error}") from None
    return text


def _made(module: str, name: str, parameters: str) -> Baseline:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        source = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"there is no module {error.name}, here or installed.") from None
    finally:
        sys.path.remove(folder)
    if not hasattr(source, name):
        raise ValueError(f"{source.__file__} has no {name}{nearest(name, vars(source))}.")
    kind = getattr(source, name)
    if not (isinstance(kind, type) and issubclass(kind, Baseline)):
        raise ValueError(f"{name} must be a subclass of kaestat.baselines.base.Baseline.")
    return kind(**parse_specification(f"{name}:{parameters}")[1])
