"""An adapter that meets a framework other than it was written for says which it found and which it knows."""

import importlib
import re
import sys
from importlib.metadata import version

import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.upstream import Upstream

ADAPTERS = {
    "SkyRL's registry": ("skyrl.backends.skyrl_train.utils.ppo_utils", "skyrl", "register"),
    "SkyRL's trainer": ("skyrl.train.trainer", "skyrl", "BaselineTrainer"),
    "OpenRLHF's trainer": ("openrlhf.trainer.ppo_trainer", "openrlhf", "install"),
    "slime's data source": ("slime.rollout.data_source", "slime", "DataSource"),
    "prime-rl's orchestrator": ("prime_rl.orchestrator.orchestrator", "prime_rl", "install"),
    "rLLM's registry": ("rllm.trainer.algorithms.advantage", "rllm", "register"),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_integration_error_tells_the_version_found_and_those_known(adapter, monkeypatch):
    moved, ours, asked = ADAPTERS[adapter]
    monkeypatch.setitem(sys.modules, moved, None)  # as where it has another name
    known = adapter.partition("'s")[0]
    with pytest.raises(ImportError, match=rf"Of {known} there is .*; kaestat's adapter was run with .*commit"):
        entry = getattr(importlib.import_module(f"kaestat.integrations.{ours}"), asked)
        given = (lambda: None,) if ours == "prime_rl" else (AdvantageEstimator("rloo"),)
        entry(*given, **({"groups_per_step": 1} if ours == "prime_rl" else {}))


def test_integration_message_by_hand():
    there, absent = Upstream("NumPy", "numpy", "NumPy 0.1"), Upstream("Nobody", "no-such-package-here", "Nobody 2")
    said = f"x is gone. Of NumPy there is version {version('numpy')}; kaestat's adapter was run with NumPy 0.1."
    with pytest.raises(ImportError, match=re.escape(said)), there.imports():
        raise AttributeError("x is gone")
    assert "Of Nobody there is no installed version" in absent.misfit("x is gone")
    with pytest.raises(ValueError, match="its own"), there.imports():
        raise ValueError("its own")
