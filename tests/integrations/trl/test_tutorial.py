"""The tutorial is run from its page, with a tiny model in the first block's place."""

import re
from pathlib import Path

import pytest

from kaestat.integrations.trl import BaselineGRPOTrainer
from llm_experiments.policies.tiny import tiny_model, tiny_tokenizer
from tests.helpers.logged import LOGGED
from tests.helpers.tiny_trl import SIZE

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "guide" / "half_the_completions.md").read_text()
SMALL = {"GENERATIONS": 16, "COMPLETIONS": 16, "LARGEST": 14}  # 16 prompts, two of them in a generation of groups


@pytest.mark.slow
def test_blocks_of_the_page_run_in_order_and_only_the_second_run_knows_the_past(tmp_path, monkeypatch, capsys):
    model = tmp_path / "model"
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, seed=0, size=SIZE).save_pretrained(model)
    tokenizer.save_pretrained(model)
    settings, *blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    asked = set(re.findall(r"[A-Z]{3,}", settings.split("=")[0] + settings.splitlines()[1].split("=")[0]))
    assert asked == {"MODEL", *SMALL}
    monkeypatch.chdir(tmp_path)
    names = {"MODEL": str(model)} | SMALL
    trainers = []
    for block in blocks:
        exec(compile(block, "half_the_completions.md", "exec"), names)
        if "trainer.train()" in block:
            trainers.append(names["trainer"])
    groups, single, weighed, last = trainers
    assert (last.weights, last.advantage_estimator.scale) == ("adam", "none")
    assert type(groups).__name__ == "GRPOTrainer" and groups.num_generations == 8
    assert isinstance(single, BaselineGRPOTrainer) and single.num_generations == 1
    assert (single.weights, weighed.weights) == ("none", "adam")
    assert single.advantage_estimator.last_step == weighed.advantage_estimator.last_step == SMALL["GENERATIONS"] - 1
    assert list(names["table"]["method"]) == ["rloo", "kae_eb"]
    lines = re.findall(r"^ +(\d+) reward \S+ known (\S+) past (\S+)$", capsys.readouterr().out, re.MULTILINE)
    assert [int(step) for step, *_ in lines] == list(range(1, SMALL["GENERATIONS"] + 1))
    assert float(lines[0][1]) == 0.0 and float(lines[-1][1]) == 1.0 and float(lines[-1][2]) > 0


def test_metrics_of_the_page_are_those_that_trl_gets():
    named = set(re.findall(r"baseline/\w+", PAGE))
    assert len(named) == 4 and named <= LOGGED
