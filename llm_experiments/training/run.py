"""One training run: the model, TRL's trainer with our baseline, tests along the way, and the tables at the end."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

from kaestat import AdvantageEstimator
from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from kaestat.integrations.trl import BaselineGRPOConfig
from kaestat.integrations.trl.checkpoints import last_whole_checkpoint
from llm_experiments.config import ModelConfig
from llm_experiments.policies.loading import resolve_device
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.provenance import provenance
from llm_experiments.starting import ProgressBar
from llm_experiments.training.config import MAX_GRAD_NORM, RunConfig, run_label
from llm_experiments.training.disk import check_disk, disk_use
from llm_experiments.training.identity import IDENTITY, identity, refuse_others
from llm_experiments.training.memory import check_memory
from llm_experiments.training.shapes import GIB, shape_of
from llm_experiments.training.start import Start
from llm_experiments.training.tables import LOG, MODEL, PROVENANCE, run_tables
from llm_experiments.training.trl.data import ID_COLUMN, reward_function, training_set
from llm_experiments.training.trl.snapshots import SavesSnapshots
from llm_experiments.training.trl.testing import HeldOutTest
from llm_experiments.training.trl.trainer import RecordingTrainer

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState

logger = logging.getLogger(__name__)
Say = Callable[[str], None]
DAY = 24 * 3600  # seconds


class TrainingRun:
    """A configuration's run, resumable at any moment.

    runs: Checkpoints, records and tables lie in ``runs/training/NAME/LABEL``, models made here in ``runs/models``.
    progress: ``progress(part, total)`` is a context whose value is called after each unit of the part.
    say: Takes a line for the user, such as what the run takes of the disk.
    data: Folder of local files of the tasks; those that it lacks are read from their public source.
    folder: Of this run.
    """

    def __init__(
        self, config: RunConfig, *, runs: Path, progress: ProgressBar, say: Say = logger.info, data: Path | None = None
    ):
        self.config = config
        self.folder = Path(runs) / "training" / config.name / run_label(config)
        self._start, self._progress, self._say = Start(config, Path(runs), data, progress), progress, say

    def run(self) -> None:
        """Train to the end, or from the last checkpoint on, and write the tables.

        Raises ValueError if the folder holds a run of another configuration, the training set is too small, or the
            prior cannot be read.
        Raises FileNotFoundError if there is no such prior.
        """
        self._check_identity()
        estimator = self.config.opening_estimator()  # before a model is loaded
        sizes = self.config.updates
        self._start.check_sizes()
        if not (self.folder / LOG).exists():
            if is_main_process():
                self._check_machine()
            self._train(estimator)
        if is_main_process():
            for name, frame in run_tables(self.folder, sizes.updates_per_step).items():
                write_table(self.folder / f"{name}.csv", frame, 6)

    def _train(self, estimator: AdvantageEstimator) -> None:
        """From the last whole checkpoint to the end; the log, which is written last, says that the run is done."""
        args = trl_config(self.config, self.folder / "checkpoints")
        device = "cpu" if sharded() else str(args.device)  # asking for it starts the group of processes
        with args.main_process_first(desc="model"):  # it may have to be made, or fetched
            policy = self._start.policy(_to_train(self.config, device), weights=not receives_weights())
        label, steps = run_label(self.config), self.config.updates.steps
        with self._progress(f"{label} (steps)", steps) as done, _without_renaming_warnings():
            trainer = self._trainer(policy, estimator, args)
            trainer.remove_callback(PrinterCallback)  # the records hold what it prints
            if self.config.test is not None and sharded() and is_main_process():
                warnings.warn(
                    "test: weights are spread over processes, none of which can sample alone, so nothing is tested "
                    "along the run; set updates.snapshot_every, and evaluate the snapshots.",
                    stacklevel=2,
                )
            trainer.add_callback(_EachStep(self, policy, done))
            trainer.add_callback(SavesSnapshots(trainer, self.config, self.folder))
            trainer.train(resume_from_checkpoint=last_whole_checkpoint(self.folder / "checkpoints"))
        trainer.save_model(str(self.folder / MODEL))  # by all processes: it gathers sharded weights
        if is_main_process():
            write_atomically(self.folder / PROVENANCE, json.dumps(provenance(self.config), indent=1))
            write_atomically(self.folder / LOG, json.dumps(trainer.state.log_history))

    def look(self, policy: TransformersPolicy, step: int) -> None:
        """Test the policy after ``step`` training steps, where a test is due and was not made."""
        test, path = self.config.test, self.folder / "tests" / f"{step:06d}.json"
        due = test is not None and (step % test.every == 0 or step == self.config.updates.steps)
        if due and not sharded() and is_main_process() and not path.exists():
            write_atomically(path, json.dumps({"step": step} | self._test.run(policy, step)))

    def _check_machine(self) -> None:
        """Warn of a model that the devices may not hold, and refuse a run that the disk has no room for.

        Only where the model's shape is known without fetching it.
        """
        shape = shape_of(self.config.model)
        if shape is None:
            return
        if torch.cuda.is_available():
            memory = torch.cuda.get_device_properties(0).total_memory
        else:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        gpus = int(os.environ.get("WORLD_SIZE", "1"))
        check_memory(self.config, shape, gpus=gpus, sharded=sharded(), memory_gib=memory / GIB)
        self._say(check_disk(disk_use(self.config, shape, backend="trl"), self.folder))

    def _check_identity(self) -> None:
        """Refuse to go on with another configuration's run, before a model is loaded."""
        path, mine = self.folder / IDENTITY, identity(self.config)
        if not path.exists():
            if is_main_process():
                write_atomically(path, json.dumps(mine, indent=1))
            return
        refuse_others(self.folder, mine, "Give this one another name, or remove the folder.")

    @cached_property
    def _test(self) -> HeldOutTest | None:
        settings, task = self.config.test, self._start.test
        if settings is None or task is None:
            return None
        return HeldOutTest(task, self._start.tested, settings.samples, self.config.seed, settings.temperature)

    def _trainer(self, policy: TransformersPolicy, estimator: AdvantageEstimator, args: GRPOConfig) -> RecordingTrainer:
        config = self.config
        if args.use_vllm:  # it reads the model's folder, which may name fewer tokens than the policy stops at
            args.generation_kwargs = {"stop_token_ids": list(policy.eos_ids)}
        tokenizer = policy.tokenizer
        tokenizer.padding_side = "left"
        dataset = training_set(
            self._start.task.problems, chat=policy.chat, system=policy.system, copies=config.updates.copies
        )
        return RecordingTrainer(
            model=policy.model,
            reward_funcs=reward_function(self._start.task),
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            advantage_estimator=estimator,
            prompt_id=ID_COLUMN,
            weights=config.weights,
            reuse=config.updates.reuse,
            records=self.folder / "records",
        )


def _to_train(config: RunConfig, device: str) -> ModelConfig:
    """The model with float32 weights: steps of 1e-6 would be lost in bfloat16 ones, which then is for passes alone.

    Sharded weights are loaded on the CPU, by the first process alone where accelerate sends the others their shards.
    """
    return config.model.model_copy(update={"dtype": "float32", "device": device})


def is_main_process() -> bool:
    """Whether this process writes what all share (the first one of accelerate or torchrun)."""
    return os.environ.get("RANK", "0") == "0"


def sharded() -> bool:
    """Whether weights are spread over processes: none of them alone can then sample."""
    return any(os.environ.get(f"ACCELERATE_USE_{kind}") == "true" for kind in ("FSDP", "DEEPSPEED"))


def receives_weights() -> bool:
    """Whether the first process loads the model, and accelerate sends this one its shard."""
    set_ = os.environ.get
    sent = set_("FSDP_VERSION") == "2" and set_("FSDP_CPU_RAM_EFFICIENT_LOADING") == "true"
    return set_("ACCELERATE_USE_FSDP") == "true" and sent and not is_main_process()


def trl_config(config: RunConfig, folder: Path) -> GRPOConfig:
    """TRL's configuration of a run: on-policy sampling of the full distribution, no KL penalty, constant step size."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))  # set by accelerate and torchrun
    config.updates.check_processes(processes)
    sizes, cpu = config.updates, resolve_device(config.model.device) == "cpu"
    per_process = sizes.update_prompts * sizes.group_size // processes
    with _without_renaming_warnings():
        return BaselineGRPOConfig(
            output_dir=str(folder),
            max_steps=sizes.steps * sizes.updates_per_step,
            per_device_train_batch_size=sizes.micro_batch,
            gradient_accumulation_steps=per_process // sizes.micro_batch,
            generation_batch_size=sizes.prompts * sizes.group_size,
            num_generations=sizes.group_size,
            max_completion_length=config.sampling.max_new_tokens,
            temperature=config.sampling.temperature,
            top_k=0,
            learning_rate=sizes.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=MAX_GRAD_NORM,
            beta=0.0,
            loss_type=config.loss_type,
            gradient_checkpointing=sizes.gradient_checkpointing,
            use_vllm=config.sampling.engine == "vllm",
            vllm_mode="colocate",
            vllm_gpu_memory_utilization=config.vllm_gpu_share,
            bf16=config.model.dtype == "bfloat16",
            use_cpu=cpu,
            seed=config.seed,
            ddp_timeout=DAY,  # the first process tests alone, and the others wait for it
            save_strategy="steps",
            save_steps=sizes.save_every * sizes.updates_per_step,
            save_total_limit=sizes.keep_checkpoints,
            logging_steps=1,
            report_to=list(config.report_to) or "none",
            disable_tqdm=True,
            dataloader_pin_memory=not cpu,
        )


@contextmanager
def _without_renaming_warnings() -> Iterator[None]:
    """transformers has renamed what TRL still calls by its old name; its users can do nothing about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated", category=FutureWarning)
        yield


class _EachStep(TrainerCallback):
    """Counts training steps for the progress bar, and has the policy looked at."""

    def __init__(self, run: TrainingRun, policy: TransformersPolicy, done: Callable[[], None]):
        self._run, self._policy, self._done = run, policy, done
        self._per_step = run.config.updates.updates_per_step

    def on_train_begin(self, args: GRPOConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        for _ in range(state.global_step // self._per_step):
            self._done()
        self._run.look(self._policy, state.global_step // self._per_step)

    def on_step_end(self, args: GRPOConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step % self._per_step == 0:
            self._done()
            self._run.look(self._policy, state.global_step // self._per_step)
