"""The script of the documentation runs as it stands, and goes on from its own checkpoint."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.trl import STATE_FILE
from llm_experiments.policies.tiny import tiny_model, tiny_tokenizer
from tests.helpers.tiny_trl import SIZE

PAGES = Path(__file__).parents[3] / "docs" / "frameworks"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tiny_model(tokenizer, seed=0, size=SIZE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_script_trains_and_resumes(model, tmp_path, monkeypatch, capsys):
    (script,) = re.findall(r'```python\n("""train_kae.py.*?)```', (PAGES / "trl.md").read_text(), re.DOTALL)
    path = tmp_path / "train_kae.py"
    path.write_text(script)
    options = ["--model", str(model), "--output", str(tmp_path / "out"), "--prompts", "16"]

    monkeypatch.setattr(sys, "argv", [str(path), *options, "--steps", "10"])
    runpy.run_path(str(path), run_name="__main__")
    checkpoint = tmp_path / "out" / "checkpoint-10"
    assert AdvantageEstimator.load(checkpoint / STATE_FILE).history.last_step == 9

    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [str(path), *options, "--steps", "11", "--resume"])
    runpy.run_path(str(path), run_name="__main__")
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if re.match(r"\d+ ", line)]
    assert [line[0] for line in lines] == [str(step) for step in range(1, 12)]
    # 8 prompts a generation, 4 generations in a row: the 11th is its minibatch's third in a row.
    assert float(lines[-1][3]) > float(lines[0][3]) == 0.0


def test_the_readmes_lines_train(model, tmp_path, monkeypatch):
    readme = (PAGES.parents[1] / "README.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*BaselineGRPOTrainer[^`]*)```", readme)
    here = "use_cpu=True, bf16=False, report_to='none', max_steps=4"  # a small machine, few steps
    code = code.replace("Qwen/Qwen2.5-0.5B-Instruct", str(model)).replace("max_steps=200", here)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["trainer"].session.estimator.last_step == 3
