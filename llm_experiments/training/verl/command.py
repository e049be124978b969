"""A run's configuration as options of verl (tested with verl 0.9.1), for several GPUs or machines.

Every setting of `RunConfig` either becomes an option of verl, or a column of its data (`data`), or is refused with
what to do instead; nothing is ignored. ``model.dtype`` is the type of the computation: weights are kept in float32,
as in the runs on TRL. What verl does otherwise, at equal settings: ratios are also clipped from above at 3 where the
advantage is negative (dual clip); vLLM's probabilities are not corrected against the trainer's; prompts over the limit
lose their beginning.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kaestat.baselines.registry import parse_method
from llm_experiments.policies.presets import PRESETS, Preset, prompt_style
from llm_experiments.training.config import MAX_GRAD_NORM, RunConfig, run_label

ID_FIELD = "problem_id"  # of a row's extra_info: what the history is kept by
REWARD = "pkg://llm_experiments.training.verl.reward"
ADAPTER = "kaestat.integrations.verl"
SCHEDULE = f"pkg://{ADAPTER}.dataset"
ROLLOUTS, VALIDATION = "rollouts", "validation"  # folders of completions in a run's
LOGGERS = ("tensorboard", "wandb", "mlflow", "swanlab", "clearml", "trackio")

# Loss of TRL -> verl's aggregation over the tokens of an update.
AGGREGATION = {"dapo": "token-mean", "dr_grpo": "seq-mean-token-sum-norm"}

Options = dict[str, object]


@dataclass(frozen=True)
class Machines:
    """What a run is trained on.

    gpus: Of each machine.
    nodes: Machines of the Ray cluster.
    """

    gpus: int = 4
    nodes: int = 1

    def __post_init__(self):
        if self.gpus < 1 or self.nodes < 1:
            raise ValueError(f"gpus and nodes must be at least 1, got {self.gpus} and {self.nodes}.")

    @property
    def processes(self) -> int:
        """GPUs in all."""
        return self.gpus * self.nodes


@dataclass(frozen=True)
class Places:
    """Where a run reads and writes; the same on every machine.

    train, test: Parquet files of `data.prepare_data`.
    checkpoints, tensorboard: Folders.
    rollouts, validation: Folders of completions, those of training and of tests.
    generation: Folder of the ``generation_config.json`` that says where vLLM's completions end; see `end_tokens`.
    hydra: Folder of the configuration and log that Hydra writes, else in the folder where the run is started.
    python_path: Where the workers find this package.
    modules: What verl imports at its start (``VERL_USE_EXTERNAL_MODULES``).
    """

    train: Path
    test: Path
    checkpoints: Path
    tensorboard: Path
    rollouts: Path
    validation: Path
    generation: Path
    hydra: Path
    python_path: tuple[str, ...]
    modules: tuple[str, ...] = (ADAPTER,)


def verl_overrides(config: RunConfig, machines: Machines, places: Places) -> list[str]:
    """Arguments of ``python -m verl.trainer.main_ppo`` for a run.

    Returns: Hydra overrides, ``key=value``.
    Raises ValueError if verl can not do what a setting asks for.
    """
    options = {
        **_algorithm(config, places),
        **_data(config, places),
        **_model(config),
        **_actor(config, machines),
        **_rollout(config, places),
        **_trainer(config, machines, places),
    }
    return [f"{key}={_text(value)}" for key, value in options.items()]


def _algorithm(config: RunConfig, places: Places) -> Options:
    name, _ = parse_method(config.method)
    options: Options = {
        # Our own by its full name: verl's grpo and gpg differ. Our trainer also where a method has no history, so that
        # all log the same metrics.
        "algorithm.adv_estimator": f"kaestat_{name}",
        "trainer.v1.trainer_mode": "kaestat_sync",
        "+algorithm.kaestat.prompt_id": f"extra_info.{ID_FIELD}",
    }
    for key, value in _parameters(config.method):
        options[f"+algorithm.kaestat.params.{key}"] = value
    if config.weights in ("exact", "adam"):
        raise ValueError(
            f"weights = {config.weights!r}: verl spreads parameters over its workers, so that norms in all of them "
            "cannot be taken; set score_norm or length, or train by TRL."
        )
    if config.weights != "none":
        options["+algorithm.kaestat.weights"] = config.weights
    if config.weights == "score_norm":
        options["actor_rollout_ref.actor.calculate_sum_pi_squared"] = True
    if config.scale is not None:
        options["+algorithm.kaestat.scale"] = config.scale
    if config.objective != "mean":
        options["+algorithm.kaestat.objective"] = config.objective
    if config.warm is not None:
        options["+algorithm.kaestat.prior"] = str(places.train)
        options["+algorithm.kaestat.prior_step"] = config.warm.step
    return options | {"algorithm.use_kl_in_reward": False}


def _data(config: RunConfig, places: Places) -> Options:
    updates = config.updates
    options: Options = {
        "data.train_files": str(places.train),
        "data.val_files": str(places.test),
        "data.train_batch_size": updates.prompts,
        # Tokens with the template, as in the paper (appendix, policy-optimization configurations).
        "data.max_prompt_length": 512 if config.task.name == "gsm8k" else 1024,
        "data.max_response_length": config.sampling.max_new_tokens,
        "data.filter_overlong_prompts": False,
        "data.seed": config.seed,
        "data.shuffle": updates.reuse == 1,
        "reward.custom_reward_function.path": REWARD,
        "reward.custom_reward_function.name": "compute_score",
    }
    if updates.reuse == 1:
        return options
    return options | {
        "data.custom_cls.path": SCHEDULE,
        "data.custom_cls.name": "ReuseSchedule",
        "+data.kaestat.repeats": updates.reuse,
        "+data.kaestat.n_steps": updates.steps,
        "+data.kaestat.seed": config.seed,
    }


def _model(config: RunConfig) -> Options:
    model = config.model
    preset = PRESETS.get(model.name.lower(), Preset("hub"))
    if preset.source != "hub":
        raise ValueError(
            f"model.name = {model.name!r} is made in the run, and verl starts from a model folder or a hub id. Give "
            "the folder of one, such as the `model` folder that python -m llm_experiments train leaves."
        )
    if model.device not in ("auto", "cuda"):
        raise ValueError(f"model.device = {model.device!r}: verl trains on GPUs here; set auto or cuda.")
    if not prompt_style(model)[0]:
        raise ValueError(
            "model.chat = false: verl puts every prompt through the chat template. Set model.chat to true; a tokenizer "
            "whose template gives back the messages' text alone does the same as false."
        )
    return {
        "actor_rollout_ref.model.path": preset.hub_id or model.name,
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.updates.gradient_checkpointing,
        # verl's default is flash_attention_2, a package that has to be built for each torch.
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.model.use_remove_padding": False,  # verl packs completions for flash-attention's kernels
    }


def _actor(config: RunConfig, machines: Machines) -> Options:
    updates, actor = config.updates, "actor_rollout_ref.actor"
    updates.check_processes(machines.processes)
    options: Options = {
        f"{actor}.ppo_mini_batch_size": updates.update_prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": updates.micro_batch,
        f"{actor}.use_dynamic_bsz": False,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.shuffle": False,
        f"{actor}.data_loader_seed": config.seed,
        f"{actor}.fsdp_config.seed": config.seed,
        f"{actor}.fsdp_config.dtype": config.model.dtype,
        f"{actor}.loss_agg_mode": AGGREGATION[config.loss_type],
        f"{actor}.clip_ratio": 0.2,
        f"{actor}.use_kl_loss": False,
        f"{actor}.entropy_coeff": 0,
        f"{actor}.optim.lr": updates.learning_rate,
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.optim.lr_warmup_steps": 0,
        f"{actor}.optim.weight_decay": 0.0,
        f"{actor}.optim.clip_grad": MAX_GRAD_NORM,
        f"{actor}.grad_clip": MAX_GRAD_NORM,
    }
    if config.loss_type == "dr_grpo":
        options[f"{actor}.loss_scale_factor"] = config.sampling.max_new_tokens
    return options


def _rollout(config: RunConfig, places: Places) -> Options:
    sampling, test, rollout = config.sampling, config.test, "actor_rollout_ref.rollout"
    if sampling.engine != "vllm":
        raise ValueError(
            f"sampling.engine = {sampling.engine!r}: verl samples with vLLM here; set sampling.engine: vllm."
        )
    if config.vllm_gpu_share == 0:
        raise ValueError("vllm_gpu_share = 0 leaves vLLM no memory; the paper's models want 0.3 or more.")
    options: Options = {
        f"{rollout}.name": "vllm",
        f"{rollout}.n": config.updates.group_size,
        f"{rollout}.temperature": sampling.temperature,
        f"{rollout}.top_p": 1,
        f"{rollout}.top_k": -1,
        f"{rollout}.seed": config.seed,
        f"{rollout}.dtype": config.model.dtype,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.gpu_memory_utilization": config.vllm_gpu_share,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": config.updates.micro_batch,
        f"+{rollout}.engine_kwargs.vllm.generation_config": str(places.generation),
    }
    if "batch_size" in sampling.model_fields_set:
        options[f"{rollout}.max_num_seqs"] = sampling.batch_size
    if test is not None:
        options |= {
            f"{rollout}.val_kwargs.n": test.samples,
            f"{rollout}.val_kwargs.do_sample": True,
            f"{rollout}.val_kwargs.temperature": test.temperature or sampling.temperature,
        }
    return options


def _trainer(config: RunConfig, machines: Machines, places: Places) -> Options:
    unknown = [name for name in config.report_to if name not in LOGGERS]
    if unknown:
        raise ValueError(f"report_to: verl does not log to {', '.join(unknown)}; choose from {', '.join(LOGGERS)}.")
    steps, environment = config.updates.steps, "+ray_kwargs.ray_init.runtime_env.env_vars"
    return {
        "hydra.run.dir": str(places.hydra),
        "trainer.use_v1": True,
        "trainer.device": "cuda",
        "trainer.n_gpus_per_node": machines.gpus,
        "trainer.nnodes": machines.nodes,
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": steps,  # as many as it takes: each has a step at least
        "trainer.save_freq": config.updates.save_every,
        **_kept(config),
        "trainer.default_local_dir": str(places.checkpoints),
        "trainer.rollout_data_dir": str(places.rollouts),
        "trainer.validation_data_dir": None if config.test is None else str(places.validation),
        "trainer.resume_mode": "auto",
        "trainer.val_before_train": config.test is not None,
        "trainer.test_freq": -1 if config.test is None else config.test.every,
        "trainer.logger": ["console", *config.report_to],
        "trainer.project_name": config.name,
        "trainer.experiment_name": run_label(config),
        f"{environment}.PYTHONPATH": ":".join(places.python_path),
        f"{environment}.TENSORBOARD_DIR": str(places.tensorboard),
        # Also from a checkout that is not installed, and where entry points are off.
        f"{environment}.VERL_USE_EXTERNAL_MODULES": ",".join(places.modules),
    }


def _kept(config: RunConfig) -> Options:
    """Which checkpoints stay. With snapshots, our callback of verl's trainer sees to it, and says when to save."""
    if not config.snapshot_steps:
        return {"trainer.max_actor_ckpt_to_keep": config.updates.keep_checkpoints}
    return {
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.checkpoint_callback_class": "llm_experiments.training.verl.snapshots.KeepsSnapshots",
        "+trainer.snapshots.steps": list(config.snapshot_steps),
        "+trainer.snapshots.save_every": config.updates.save_every,
        "+trainer.snapshots.keep_checkpoints": config.updates.keep_checkpoints,
        "+trainer.snapshots.dtype": config.model.dtype,
        "actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
    }


def _parameters(method: str) -> list[tuple[str, object]]:
    """A method's parameters as they were written: numbers as such, all else as text, which kaestat reads itself."""
    parts, depth = [""], 0
    for character in method.strip().partition(":")[2]:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    pairs = [part.partition("=")[::2] for part in parts if part.strip()]
    return [(key.strip(), _number(value.strip())) for key, value in pairs]


def _number(text: str) -> object:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if number == number and abs(number) != float("inf"):
            return number
    return text


def _text(value: object) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    if not isinstance(value, str):
        return "null" if value is None else repr(value)
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.+/:-]*|/[A-Za-z0-9_.+/:-]+", value) and value.lower() not in _RESERVED:
        return value
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return "'" + escaped.replace("${", "\\${") + "'"


_RESERVED = ("null", "true", "false", "nan", "inf")
