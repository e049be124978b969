"""A user's own baseline on the command line: ``package.module:Class``, with parameters after a second colon."""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import METHODS
from kaestat.baselines.specification import parse_specification
from kaestat.core.spelling import check_parameters, nearest
from kaestat.logs.risk import risk_baseline

_PLACE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(?::(.*))?")


def method_or_baseline(text: str) -> str | Baseline:
    """The specification, or the baseline named by ``package.module:Class`` or ``...:Class:key=value``.

    Modules are looked for in the working directory too. A ValueError that names ``--method`` if the specification is
    wrong, there is no such module or name in it, or it is not a baseline.
    """
    place = _PLACE.fullmatch(text.strip())
    if place is None or place[1] in METHODS:
        try:
            risk_baseline(text)
        except (TypeError, ValueError) as error:
            raise ValueError(f"--method {text}: {error}") from None
        return text
    made = _named(text, place[1], place[2])
    params = parse_specification(f"{place[2]}:{place[3] or ''}")[1]
    if isinstance(made, type) and issubclass(made, Baseline):
        if "__dataclass_params__" in vars(made):
            check_parameters(f"--method {text}", made, params)
        return made(**params)
    if not isinstance(made, Baseline) or params:
        raise ValueError(f"--method {text}: {place[2]} must be a subclass of kaestat.baselines.base.Baseline.")
    return made


def _named(text: str, module: str, name: str) -> Any:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"--method {text}: there is no module {error.name}, here or installed.") from None
    finally:
        sys.path.remove(here)
    if not hasattr(found, name):
        raise ValueError(f"--method {text}: {found.__file__} has no {name}{nearest(name, vars(found))}.")
    return getattr(found, name)
