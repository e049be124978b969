"""The studies, one per file; each file defines ``STUDY``."""

import importlib
import pkgutil

from simulations.harness.study import Study


def names() -> list[str]:
    """Names of all studies."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def get(name: str) -> Study:
    """The study of that name.

    Raises ValueError if there is none.
    """
    known = names()
    if name not in known:
        raise ValueError(f"unknown study {name!r}; choose one of {', '.join(known)}.")
    return importlib.import_module(f"{__name__}.{name}").STUDY
