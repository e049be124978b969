"""The script of the documentation runs as it stands, and goes on from its own checkpoint."""

import re
import runpy
import sys
from functools import partial
from pathlib import Path

import pytest
from datasets import Dataset

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.integrations.trl import STATE_FILE
from llm_experiments.policies.tiny import tiny_model, tiny_tokenizer
from tests.helpers.tiny_tools import CALLS, RecordingTurns, tool_trainer
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


def test_the_environment_with_a_value_for_every_turn_trains(tmp_path, monkeypatch):
    """The page's own lines; the tiny model looks the first number up whenever it writes a capital letter."""
    blocks = re.findall(r"```python\n(.*?)```", (PAGES.parent / "guide" / "turns.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "TurnGRPOTrainer" in block]
    names: dict = {"TurnEstimator": TurnEstimator}
    exec(compile(code, "turns.md", "exec"), names)
    looks_up = {"type": "function", "function": {"name": "look_up", "arguments": {"place": 0}}}
    calls = CALLS | {
        "fields": CALLS["fields"] | {"tool_calls": CALLS["fields"]["tool_calls"] | {"transform": looks_up}}
    }

    def from_the_page(model, reward_funcs, args, train_dataset, processing_class, **options):
        with monkeypatch.context() as patched:
            patched.setattr(
                "kaestat.integrations.trl.TurnGRPOTrainer", partial(RecordingTurns, processing_class=processing_class)
            )
            return names["make_trainer"](model, args, train_dataset)

    prompts = [[{"role": "user", "content": f"{k}+2="}] for k in range(4)]
    columns = {"first": [*range(4)], "second": [2] * 4, "task": [*"tuvw"], "question_id": [*"tuvw"]}
    trainer = tool_trainer(
        tmp_path,
        TurnEstimator("kae"),
        trainer_class=from_the_page,
        response_template=calls,
        dataset=Dataset.from_dict({"prompt": prompts} | columns),
        max_steps=2,
    )
    trainer.train()
    seen = [message for batch in trainer.batches for messages in batch["completions"] for message in messages]
    answers = [message["content"] for message in seen if message["role"] == "tool"]
    assert answers and set(answers) <= {"0", "1", "2", "3"}, "the model looked nothing up: the test shows nothing"
    logged = [entry for entry in trainer.state.log_history if "turns/reward" in entry]
    assert sum(entry["turns/reward"] for entry in logged) * 8 == pytest.approx(0.1 * len(answers))
    assert trainer.turn_estimator.last_step == 1
