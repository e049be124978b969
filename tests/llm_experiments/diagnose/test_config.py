"""Configurations: those that are shipped are valid, and faults are told before anything is loaded."""

from pathlib import Path

import pytest
import yaml

from llm_experiments.config import load
from llm_experiments.diagnose.config import Config
from llm_experiments.tasks import TASKS
from llm_experiments.training.verl.launch import verl_run_config

SHIPPED = sorted((Path(__file__).parents[3] / "llm_experiments" / "configs").glob("*.yaml"))
VALID = {
    "name": "x",
    "model": {"name": "some/model"},
    "task": {"name": "arithmetic", "n_prompts": 4},
    "training": {},
    "diagnostic": {"steps": [4, 6], "n_oracle": 10, "n_estimation": 8, "n_history": 9},
}


def _written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_configuration_is_valid_and_named_as_its_file(path):
    config = load(Config, path)
    assert config.name == path.stem
    assert config.task.name in TASKS


def test_the_paper_s_two_diagnostics_are_shipped():
    training = SHIPPED[0].parent / "training"
    runs = [verl_run_config(training / f"{name}.yaml") for name in ("gsm8k_qwen2.5_1.5b_g1", "math_qwen2.5_math_7b_g8")]
    paper = [run.diagnose for run in runs]
    assert [config.diagnostic.steps for config in paper] == [(10, 90, 170)] * 2
    assert {config.gradient.parameters for config in paper} == {"all", "final_block"}


def test_a_checkpoint_s_pool_is_as_large_as_its_largest_use(tmp_path):
    sizes = load(Config, _written(tmp_path, VALID)).diagnostic.pool_sizes()
    assert sizes == {0: 9, 1: 9, 2: 9, 3: 9, 4: 18, 5: 9, 6: 18}


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        (None, {"colour": 1}, "colour"),
        (None, {"name": "a/b"}, "name"),
        (None, {"training": None}, "either training"),
        (None, {"checkpoints": "a-{step}"}, "either training"),
        (None, {"training": None, "checkpoints": "a"}, "step"),
        ("diagnostic", {"steps": [3]}, "history = 4"),
        ("diagnostic", {"steps": []}, "must not be empty"),
        ("diagnostic", {"steps": [5, 5]}, "must differ"),
        ("diagnostic", {"group_size": 1}, "group_size"),
        ("diagnostic", {"n_history": 7}, "n_history = 7"),
        ("sampling", {"temperature": 0}, "temperature"),
        ("model", {"name": "tiny"}, "pretraining"),
        ("gradient", {"memory_gib": -1}, "memory_gib"),
    ],
)
def test_a_fault_is_refused_by_name(tmp_path, section, change, message):
    content = {**VALID, **change} if section is None else {**VALID, section: {**VALID.get(section, {}), **change}}
    with pytest.raises(ValueError, match=message.replace("{", "\\{")):
        load(Config, _written(tmp_path, {key: value for key, value in content.items() if value is not None}))
