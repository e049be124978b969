"""The verl command of every run: all settings in it or refused, the paper's sizes."""

import json
import re

import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import parse_method
from kaestat.integrations.verl.options import Options
from llm_experiments.config import checked
from llm_experiments.training.config import RunConfig
from llm_experiments.training.verl.command import Machines, verl_overrides
from llm_experiments.training.verl.data import prepare_data
from llm_experiments.training.verl.launch import verl_run_config
from tests.helpers.verl_runs import PAPER, PLACES, RUNS, SMALL


def changed(where, value, base=SMALL):
    """A configuration with one setting changed, named as ``updates.steps``."""
    content = json.loads(json.dumps(base))
    *sections, key = where.split(".")
    inner = content
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[key] = value
    return checked(RunConfig, "small", content)


def command(config, gpus=2, nodes=1):
    return dict(each.split("=", 1) for each in verl_overrides(config, Machines(gpus, nodes), PLACES))


@pytest.mark.parametrize(("name", "method", "reuse"), RUNS)
def test_every_run_of_the_paper_has_a_command(name, method, reuse):
    config = verl_run_config(name, method=method, seed=3, reuse=reuse)
    found = command(config, gpus=4)
    bare, params = parse_method(method)
    assert found["algorithm.adv_estimator"] == f"kaestat_{bare}"
    assert found["trainer.v1.trainer_mode"] == "kaestat_sync"
    assert {k.rpartition(".")[2]: float(v) for k, v in found.items() if ".kaestat.params." in k} == params
    repeats = reuse or config.updates.reuse
    if repeats == 1:
        assert found["data.shuffle"] == "True" and not any("ReuseSchedule" in value for value in found.values())
    else:
        schedule = [found[f"+data.kaestat.{key}"] for key in ("repeats", "n_steps", "seed")]
        assert schedule == [str(repeats), str(config.updates.steps), "3"]
        assert (found["data.shuffle"], found["data.custom_cls.name"]) == ("False", "ReuseSchedule")
    for switch in ("algorithm.use_kl_in_reward", "actor_rollout_ref.actor.use_kl_loss"):
        assert found[switch] == "False"
    assert found["actor_rollout_ref.actor.entropy_coeff"] == "0"
    assert float(found["actor_rollout_ref.actor.optim.lr"]) == 1e-6
    assert found["actor_rollout_ref.actor.optim.lr_scheduler_type"] == "constant"
    assert found["actor_rollout_ref.model.enable_gradient_checkpointing"] == "True"
    assert found["trainer.logger"] == "[console,tensorboard]"
    # Attention needs no package that must be built.
    assert found["+actor_rollout_ref.model.override_config.attn_implementation"] == "sdpa"
    assert found["actor_rollout_ref.model.use_remove_padding"] == "False"
    mode = "seq-mean-token-sum-norm" if bare == "dr_grpo" else "token-mean"
    assert found["actor_rollout_ref.actor.loss_agg_mode"] == mode
    assert ("actor_rollout_ref.actor.loss_scale_factor" in found) == (bare == "dr_grpo")


# Appendix, policy-optimization configurations: B, PPO minibatch, G, steps, J, prompt and response tokens, model. The
# one-shot run is that of Wang et al. (2025), whose minibatch of 128 copies is one update.
SIZES = {
    "math_qwen2.5_math_7b_g8": (256, 128, 8, 200, 10, 1024, 2048, "Qwen/Qwen2.5-Math-7B"),
    "dapo_qwen2.5_math_7b_g4": (256, 128, 4, 500, 8, 1024, 2048, "Qwen/Qwen2.5-Math-7B"),
    "gsm8k_qwen2.5_1.5b_g1": (1024, 512, 1, 400, 10, 512, 512, "Qwen/Qwen2.5-1.5B-Instruct"),
    "math_qwen2.5_math_1.5b_g1": (1024, 512, 1, 400, 10, 1024, 2048, "Qwen/Qwen2.5-Math-1.5B"),
    "one_shot_qwen2.5_math_1.5b": (128, 128, 8, 500, 1, 1024, 3072, "Qwen/Qwen2.5-Math-1.5B"),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_sizes_are_the_papers(name):
    config = verl_run_config(name)
    found = command(config, gpus=4)
    assert (
        int(found["data.train_batch_size"]),
        int(found["actor_rollout_ref.actor.ppo_mini_batch_size"]),
        int(found["actor_rollout_ref.rollout.n"]),
        int(found["trainer.total_training_steps"]),
        int(found.get("+data.kaestat.repeats", 1)),
        int(found["data.max_prompt_length"]),
        int(found["data.max_response_length"]),
        found["actor_rollout_ref.model.path"],
    ) == SIZES[name]
    assert int(found["trainer.save_freq"]) == config.updates.save_every
    kept = config.updates.keep_checkpoints
    assert found["trainer.max_actor_ckpt_to_keep"] == ("null" if config.snapshot_steps else str(kept))
    if config.snapshot_steps:
        assert found["+trainer.snapshots.steps"] == f"[{','.join(map(str, config.snapshot_steps))}]"
        assert found["+trainer.snapshots.keep_checkpoints"] == str(kept) == "2"


# A different value for every setting of a run.
OTHER = {
    "name": "other",
    "seed": 7,
    "model.name": "qwen2.5-math-7b",
    "model.chat": False,
    "model.system": "Be short.",
    "model.dtype": "float32",
    "model.device": "cpu",
    "model.pretraining": {"steps": 5},
    "task.name": "file",
    "task.n_prompts": 9,
    "task.path": "other.jsonl",
    "task.split": "some",
    "task.options": {"template": "Well: {problem}"},
    "sampling.engine": "transformers",
    "sampling.temperature": 0.7,
    "sampling.max_new_tokens": 65,
    "sampling.batch_size": 32,
    "method": "kae:bandwidth=11",
    "weights": "length",
    "scale": "batch_std",
    "objective": "pass@8",
    "prior": {"path": "prior.jsonl"},
    "prior.path": "other_prior.jsonl",
    "prior.step": -7,
    "updates.steps": 21,
    "updates.prompts": 12,
    "updates.group_size": 4,
    "updates.ppo_prompts": 8,
    "updates.reuse": 6,
    "updates.copies": 2,
    "updates.learning_rate": 2e-6,
    "updates.micro_batch": 1,
    "updates.gradient_checkpointing": True,
    "updates.save_every": 10,
    "updates.keep_checkpoints": None,
    "updates.snapshot_every": 4,
    "diagnose": {"diagnostic": {"steps": [10]}},
    "test": None,
    "test.task": {"name": "gsm8k", "path": "other.jsonl"},
    "test.every": 6,
    "test.samples": 3,
    "test.temperature": 0.5,
    "vllm_gpu_share": 0.4,
    "report_to": ["wandb"],
}


def settings(section=RunConfig, prefix=""):
    """Names of all settings, those of sections with their section's."""
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        inner = [kind for kind in kinds if hasattr(kind, "model_fields")]
        if not inner or name == "diagnose" or (name in ("pretraining", "task") and prefix):
            yield prefix + name
        else:
            if type(None) in kinds:
                yield prefix + name
            yield from settings(inner[0], f"{prefix}{name}.")


def outcome(config, data, folder):
    """The command and the content of the data files, or the refusal."""
    files = prepare_data(config, folder, data=data)
    return command(config), files.train.read_bytes(), files.test.read_bytes()


def test_a_value_is_tried_for_every_setting():
    assert set(OTHER) == set(settings())


BASES = {  # what another value of a setting needs, to make a difference
    "prior.path": {"prior": {"path": "prior.jsonl"}},
    "prior.step": {"prior": {"path": "prior.jsonl"}},
}


@pytest.mark.parametrize("where", OTHER)
def test_no_setting_is_passed_over(where, data, tmp_path):
    base = SMALL | BASES.get(where, {})
    before = outcome(checked(RunConfig, "small", base), data, tmp_path / "before")
    try:
        after = outcome(changed(where, OTHER[where], base), data, tmp_path / "after")
    except ValueError as error:
        assert re.search(rf"\b{re.escape(where)}\b|pretraining", str(error))
    else:
        assert after != before


def test_score_norms_are_asked_of_the_actor_and_of_the_estimator():
    asked = "actor_rollout_ref.actor.calculate_sum_pi_squared"
    found = command(changed("weights", "score_norm"))
    assert (found["+algorithm.kaestat.weights"], found[asked]) == ("score_norm", "True")
    assert asked not in command(changed("weights", "length")) and asked not in command(changed("weights", "none"))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("sampling.engine", "transformers", "set sampling.engine: vllm"),
        ("model.chat", False, "Set model.chat to true"),
        ("model.name", "smollm2", "a model folder or a hub id"),
        ("model.device", "cpu", "set auto or cuda"),
        ("weights", "exact", "verl spreads parameters"),
        ("weights", "adam", "verl spreads parameters"),
        ("report_to", ["tensorboard", "neptune"], "does not log to neptune"),
        ("vllm_gpu_share", 0, "leaves vLLM no memory"),
        ("updates.micro_batch", 8, "8 completions .* micro_batch = 8 times 2 processes"),
    ],
)
def test_what_verl_cannot_do_is_refused_with_the_remedy(where, value, message):
    with pytest.raises(ValueError, match=message):
        command(changed(where, value))


@pytest.mark.parametrize(
    "method",
    [
        "kae:bandwidth=12.5,kernel=exponential",
        "kae:bandwidth=rate(c=2)",
        "kae:bandwidth=inf",
        "kae:bandwidth=3,kernel=exponential(rho=0.9)",
        "spo:rho=0.9",
    ],
)
def test_parameters_arrive_at_the_estimator_as_they_were_written(method):
    name, params = parse_method(method)
    given = {key: value for key, value in command(changed("method", method)).items() if ".params." in key}
    plain = {
        key.rpartition(".")[2]: value[1:-1] if value.startswith("'") else _read(value) for key, value in given.items()
    }
    options = Options.read(name, {"kaestat": {"params": plain}})
    assert options.estimator().baseline == AdvantageEstimator(name, **params).baseline


def _read(text):
    try:
        return json.loads(text)
    except ValueError:
        return text
