"""Baselines in verl: every method as an advantage estimator, and trainers that keep the history.

Installing kaestat is all that is needed: verl loads this module by the entry point ``verl.plugins``. It does not touch
verl; estimators and trainers are registered once verl's own have been, in the one process that uses them.

Tested with verl 0.9.1, TransferQueue 0.1.11, ray 2.60.0, tensordict 0.10.0, transformers 5.10.4 and torch 2.13.0.
"""

import importlib
import warnings

from kaestat.integrations.shared.upstream import misfit
from kaestat.integrations.verl.after_import import after_import

TESTED = "verl 0.9.1"


def _load(*modules: str) -> None:
    """Import our modules, which register their parts; if one does not fit the installed verl, verl works without it."""
    for module in modules:
        try:
            importlib.import_module(f"{__name__}.{module}")
        except (ImportError, AttributeError) as error:
            reason = f"kaestat could not register {module} with verl: {error}"
            warnings.warn(misfit(reason, "verl", TESTED), stacklevel=2)


after_import("verl.trainer.ppo.core_algos", lambda: _load("estimators"))
after_import("verl.trainer.ppo.v1", lambda: _load("trainer"))
