"""The paper's runs in verl's hands: its schema and checks, our trainer, its loader, its rewards, its start on Ray."""

import copy
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.dataset.rl_dataset import collate_fn

from kaestat.integrations.verl.prompts import read_prompt
from kaestat.sampling.schedules import reuse
from llm_experiments.config import checked
from llm_experiments.training.config import RunConfig
from llm_experiments.training.snapshots import snapshots
from llm_experiments.training.verl import launch as verl_launch
from llm_experiments.training.verl.command import ID_FIELD, Machines, verl_overrides
from llm_experiments.training.verl.data import prepare_data
from llm_experiments.training.verl.launch import ROOT, check_with_verl, places_in, verl_run_config
from llm_experiments.training.verl.snapshots import KeepsSnapshots
from tests.helpers.tiny_verl import compose_config
from tests.helpers.verl_runs import PLACES, ROWS, RUNS, SMALL, write_rows


@pytest.mark.parametrize(("name", "method", "given_reuse"), RUNS)
def test_verl_accepts_every_run_and_makes_our_trainer_of_it(name, method, given_reuse, monkeypatch):
    run = verl_run_config(name, method=method, seed=2, reuse=given_reuse)
    overrides = verl_overrides(run, Machines(4), PLACES)
    config = compose_config(*overrides)
    monkeypatch.setattr(verl_launch, "composed", lambda given: copy.deepcopy(config))  # which takes a second
    assert check_with_verl(overrides) == "Checked by verl 0.9.1."
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    expected, found = run.estimator(), trainer.session.estimator
    assert (found.baseline, found.scale, found.method) == (expected.baseline, expected.scale, expected.method)
    assert trainer.options.prompt_id == f"extra_info.{ID_FIELD}"
    assert not trainer.use_critic and not trainer.use_reference_policy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["data.train_batch_sise=8"], "train_batch_sise"),
        (["actor_rollout_ref.actor.ppo_mini_batch_size=4096"], "ppo_mini_batch_size"),
        (["+algorithm.kaestat.params.bandwith=10"], "bandwith"),
        (["+algorithm.kaestat.scale=sideways"], "sideways"),
        (["trainer.nnodes=7"], "must be divisible"),
    ],
)
def test_what_verl_or_the_estimator_refuses_is_refused_before_the_start(changes, message):
    overrides = verl_overrides(verl_run_config("gsm8k_qwen2.5_1.5b_g1"), Machines(4), PLACES)
    with pytest.raises(ValueError, match=f"verl 0.9.1 refuses these options: .*{message}"):
        check_with_verl([*overrides, *changes])


def test_verl_makes_our_callback_which_says_when_to_save_next(tmp_path):
    run = verl_run_config("math_qwen2.5_math_7b_g8")
    config = compose_config(*verl_overrides(run, Machines(4), places_in(tmp_path)))
    callback = build_checkpoint_callback(config)
    assert isinstance(callback, KeepsSnapshots)
    saved = []
    for step in range(1, 21):
        if step % config.trainer.save_freq == 0:
            saved.append(step)
            model = tmp_path / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
            model.mkdir(parents=True)
            (model / "config.json").write_text("{}")
            callback.on_save(trainer=None, global_step=step, checkpoint_dir="", async_save=False)
            (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
    assert saved == [6, 7, 8, 9, 10, 20]
    assert list(snapshots(tmp_path)) == [6, 7, 8, 9, 10]
    assert len(list((tmp_path / "checkpoints").glob("global_step_*"))) == 2
    resumed = compose_config(*verl_overrides(run, Machines(4), places_in(tmp_path)))
    build_checkpoint_callback(resumed)
    assert resumed.trainer.save_freq == 30


def test_the_further_options_of_the_page_are_verls():
    page = (ROOT / "docs" / "experiments" / "verl.md").read_text(encoding="utf-8")
    given = [each.replace("=N", "=4") for each in re.findall(r"--option ([a-z][\w.]+=\w+)", page)]
    overrides = verl_overrides(verl_run_config("math_qwen2.5_math_7b_g8"), Machines(1), PLACES)
    assert len(given) == 5
    assert check_with_verl([*overrides, *given]) == "Checked by verl 0.9.1."


def test_odd_names_survive_hydras_grammar():
    odd = ("/a b/it's,1.parquet", "/back\\", "/q\\'", "/c=1", "/${x}", "/[l]{m}", "/~t", "true", "/é")
    for text in odd:
        places = replace(PLACES, train=Path(text), python_path=("/p", text))
        config = compose_config(*verl_overrides(small(), Machines(2), places))
        assert config.data.train_files == text
        assert config.ray_kwargs.ray_init.runtime_env.env_vars.PYTHONPATH == f"/p:{text}"


class Tokenizer:
    """One token a character."""

    def apply_chat_template(self, messages, **kwargs):
        return [ord(letter) for message in messages for letter in message["content"]]

    def decode(self, ids, **kwargs):
        return "".join(map(chr, ids.tolist()))


def small(**changes):
    return checked(RunConfig, "small", SMALL | changes)


@pytest.fixture
def prepared(tmp_path):
    """Prepares a run's data, and composes its configuration."""
    source = tmp_path / "source"
    source.mkdir()
    write_rows(source / "rows.jsonl", ROWS)
    write_rows(source / "test.jsonl", [row | {"question": "Now: " + row["question"]} for row in ROWS[:5]])
    write_rows(source / "halves.jsonl", [{"problem": f"Halve {k}.", "answer": rf"\frac{{{k}}}{{2}}"} for k in (1, 3)])

    def prepare(run):
        places = places_in(tmp_path / "out")
        prepare_data(run, places.train.parent, data=source)
        return compose_config(*verl_overrides(run, Machines(1), places))

    return prepare


def batches(config):
    """Every step's rows, as verl loads them."""
    dataset = create_rl_dataset(config.data.train_files, config.data, Tokenizer(), None, is_train=True)
    sampler = create_rl_sampler(config.data, dataset)
    size = config.data.train_batch_size
    return list(
        StatefulDataLoader(dataset, size, num_workers=0, drop_last=True, collate_fn=collate_fn, sampler=sampler)
    )


def ids(batch):
    columns = zip(batch["data_source"], batch["extra_info"], batch["raw_prompt"], strict=True)
    return [read_prompt(f"extra_info.{ID_FIELD}", *each).id for each in columns]


def test_verl_loads_the_schedule_and_the_ids_of_the_problems(prepared):
    found = [ids(batch) for batch in batches(prepared(small(seed=4)))]
    expected = reuse(len(ROWS), 8, 20, repeats=5, seed=4)
    assert found == [[f"gsm8k/train/{k}" for k in step] for step in expected]


LOSSES = {  # TRL's, for the sum over an update's tokens: of losses (n, t), with their mask, and the longest completion
    "dapo": lambda loss, mask, longest: (loss * mask).sum() / mask.sum(),
    "dr_grpo": lambda loss, mask, longest: (loss * mask).sum() / (len(mask) * longest),
}


@pytest.mark.parametrize("loss_type", LOSSES)
def test_an_updates_loss_is_normalised_as_on_trl(loss_type):
    actor = compose_config(
        *verl_overrides(small(method={"dapo": "kae"}.get(loss_type, loss_type)), Machines(2), PLACES)
    ).actor_rollout_ref.actor
    torch.manual_seed(0)
    loss = torch.randn(8, 6)
    mask = (torch.arange(6) < torch.tensor([[1], [6], [3], [2], [6], [4], [5], [1]])).float()
    parts = [  # two GPUs, micro-batches of two
        agg_loss(
            loss[rows],
            mask[rows],
            actor.loss_agg_mode,
            dp_size=2,
            batch_num_tokens=mask.sum(),
            global_batch_size=8,
            loss_scale_factor=actor.loss_scale_factor,
        )
        for rows in torch.arange(8).split(2)
    ]
    expected = LOSSES[loss_type](loss, mask, SMALL["sampling"]["max_new_tokens"])
    torch.testing.assert_close(sum(parts) / 2, expected)  # gradients are averaged over GPUs


PROBE = """
import json, os, ray, sys
sys.path[:0] = [sys.argv[1], os.path.join(sys.argv[1], "tests", "helpers")]
from tiny_verl import compose_config  # verl's wheel has a package "tests" of its own
from verl.trainer.main_ppo import run_ppo
sys.path = [each for each in sys.path if each not in json.loads(sys.argv[2])]  # Ray hands the driver's on

@ray.remote
class Probe:
    def run(self, config):
        from verl.trainer.ppo.reward import get_custom_reward_fn
        from verl.trainer.ppo.v1 import get_trainer_cls
        trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
        reward = get_custom_reward_fn(config)
        info = {"grader": json.dumps({"verifier": "numbers"})}
        found = {
            "method": trainer.session.estimator.method,
            "reward": reward(data_source="gsm8k", solution_str="It is 4.", ground_truth="4", extra_info=info),
            "tensorboard": os.environ["TENSORBOARD_DIR"],
        }
        with open(config.trainer.default_local_dir, "w") as file:
            json.dump(found, file)

run_ppo(compose_config(*sys.argv[3:], "ray_kwargs.ray_init.num_cpus=2"), Probe)
"""


def test_verls_workers_on_ray_find_trainer_and_rewards_from_any_folder(tmp_path):
    places = SimpleNamespace(**vars(places_in(tmp_path)) | {"checkpoints": tmp_path / "found.json"})
    overrides = verl_overrides(small(), Machines(1), places)
    environment = {key: os.environ[key] for key in os.environ if not key.startswith(("PYTHONPATH", "RAY_", "VERL_"))}
    subprocess.run(
        [sys.executable, "-c", PROBE, str(ROOT), json.dumps([str(ROOT), "", str(tmp_path)]), *overrides],
        cwd=tmp_path,
        env=environment | {"VERL_USE_EXTERNAL_PLUGINS": "none"},  # as where kaestat is not installed
        check=True,
        timeout=300,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert found == {"method": "kae", "reward": 1.0, "tensorboard": str(tmp_path / "tensorboard")}
