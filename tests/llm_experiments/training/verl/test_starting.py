"""The launcher: its script and its data, what it refuses before anything is written, and where it goes on."""

import json
import re
import shlex
import sys
from importlib.util import find_spec

import pytest
from transformers import GenerationConfig

from llm_experiments.training.verl import launch
from llm_experiments.training.verl.command import Machines, verl_overrides
from llm_experiments.training.verl.end_tokens import FILE
from llm_experiments.training.verl.launch import launch_verl, verl_run_config
from tests.helpers.small_policies import chat_tokenizer
from tests.helpers.verl_runs import PAPER, PLACES, SMALL

PAGE = launch.ROOT / "docs" / "experiments" / "verl.md"


def small_file(tmp_path, **changes):
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL | changes))  # JSON is YAML
    return str(path)


def test_a_dry_run_writes_a_script_of_the_same_command_and_its_data(tmp_path, data, capfd):
    out = tmp_path / "out"
    given = ["trainer.nnodes=3", "a='b c'", "d=$HOME", "e=[1,2]"]  # the script is one command whatever they hold
    assert launch_verl(small_file(tmp_path), gpus=2, out=out, data=data, option=given, dry_run=True) == 0
    words = shlex.split((out / "launch.sh").read_text().partition("exec ")[2].replace("\\\n", " "))
    config = verl_run_config(small_file(tmp_path))
    expected = verl_overrides(config, Machines(2), launch.places_in(out))
    assert words == ["python", "-m", "verl.trainer.main_ppo", *expected, *given]
    assert (out / "data" / "train.parquet").is_file() and (out / "data" / "test.parquet").is_file()
    said = capfd.readouterr().out
    assert "12 problems to train on, 12 to test on" in said
    assert ("Checked by verl" if find_spec("verl") else "Not checked against verl") in said
    assert f"{out / 'generation' / FILE} is written at launch" in said


def test_rollouts_end_where_evaluations_do(tmp_path, data, capfd, monkeypatch):
    model, out = tmp_path / "model", tmp_path / "out"
    tokenizer = chat_tokenizer()
    tokenizer.save_pretrained(model)
    (model / "config.json").write_text('{"model_type": "qwen2"}')
    (model / FILE).write_text('{"eos_token_id": 7}')
    monkeypatch.setattr(launch, "shape_of", lambda model: None)
    style = {"name": str(model), "chat": True}
    assert launch_verl(small_file(tmp_path, model=style), gpus=2, out=out, data=data, dry_run=True) == 0
    (place,) = re.findall(r"engine_kwargs\.vllm\.generation_config=(\S+)", (out / "launch.sh").read_text())
    ends = GenerationConfig.from_pretrained(place).eos_token_id  # as vLLM reads it
    assert ends == [tokenizer.eos_token_id, 7, tokenizer.convert_tokens_to_ids("<|im_end|>")]
    assert ", ".join(map(str, ends)) in capfd.readouterr().out


def test_without_verl_a_run_is_refused_before_anything_is_written(tmp_path, data, monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="--dry-run"):
        launch_verl(small_file(tmp_path), gpus=2, out=tmp_path / "out", data=data)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_the_training_is_passed_on(tmp_path, data, monkeypatch, code):
    (tmp_path / "stand_in.py").write_text(
        "import json, pathlib, sys\n"
        "folder = pathlib.Path(next(a for a in sys.argv if 'rollout_data_dir' in a).partition('=')[2])\n"
        "folder.mkdir()\n"
        "rows = [{'input': str(k), 'score': 1.0} for k in range(8) for _ in range(2)]\n"
        "(folder / '1.jsonl').write_text('\\n'.join(map(json.dumps, rows)))\n"
        f"print(len(sys.argv))\nsys.exit({code} if 'trainer.nnodes=1' in sys.argv else 9)\n"
    )
    monkeypatch.setattr(launch, "MAIN", "stand_in")
    monkeypatch.setattr(launch, "find_spec", lambda name: object())
    monkeypatch.setattr(launch, "check_with_verl", lambda overrides: "")
    monkeypatch.setattr(launch, "write_generation_config", lambda model, folder, fetch: (1,))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert launch_verl(small_file(tmp_path), gpus=2, out=tmp_path / "out", data=data) == code
    assert (tmp_path / "out" / "curve.csv").exists() == (code == 0)


def test_a_training_that_is_killed_gives_the_code_that_shells_give():
    assert launch.run_command([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]) == 137


def test_checkpoints_of_other_settings_are_not_gone_on_with(tmp_path, data):
    arguments = {"gpus": 2, "out": tmp_path / "out", "data": data, "dry_run": True}
    launch_verl(small_file(tmp_path), **arguments)
    launch_verl(small_file(tmp_path), seed=1, **arguments)  # nothing was trained yet
    (tmp_path / "out" / "checkpoints").mkdir()
    (tmp_path / "out" / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("5")
    launch_verl(small_file(tmp_path), seed=1, **arguments)
    with pytest.raises(ValueError, match=r"other settings \(seed\)"):
        launch_verl(small_file(tmp_path), seed=2, **arguments)
    with pytest.raises(ValueError, match=r"other settings \(processes\)"):
        launch_verl(small_file(tmp_path), seed=1, **(arguments | {"gpus": 1}))


def test_the_commands_of_the_documentation_are_runs(monkeypatch):
    page = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^python -m llm_experiments launch-verl (.*)$", page, flags=re.MULTILINE)
    named = set()
    for line in lines:
        name, *options = shlex.split(line, comments=True)
        given = dict(zip(options[::2], options[1::2], strict=False))
        seed, reuse = (int(given[key]) if key in given else None for key in ("--seed", "--reuse"))
        config = verl_run_config(name, method=given.get("--method"), seed=seed, reuse=reuse)
        machines = Machines(int(given.get("--gpus", 4)), int(given.get("--nodes", 1)))
        assert verl_overrides(config, machines, PLACES)
        named.add(name)
    assert named == set(PAPER)
