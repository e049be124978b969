"""Configurations of training runs: YAML files, checked before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import parse_method
from kaestat.history.prior import BEFORE_THE_RUN, Prior
from kaestat.integrations.shared.method_checks import check_group_size, check_weights
from llm_experiments.config import NAME, ModelConfig, SamplingConfig, Section, TaskConfig
from llm_experiments.diagnose.config import DiagnosticConfig, GradientDiagnosticConfig

Weights = Literal["none", "length", "score_norm", "exact", "adam"]
Scale = Literal["none", "group_std", "batch_std"]
MAX_GRAD_NORM = 1.0  # the default of TRL and verl


class OptimizationConfig(Section):
    """Sizes of a run and of its optimizer updates, in the paper's terms.

    steps: Training steps: generations of completions.
    prompts: Prompts of a step's minibatch, B.
    group_size: Completions per prompt and step, G.
    ppo_prompts: Prompts per optimizer update (verl's PPO minibatch); None takes all of the step's at once.
    reuse: J: steps in a row with the same minibatch.
    copies: How often each prompt stands in the training set; one-shot training repeats one prompt.
    learning_rate: Constant, AdamW without weight decay; gradients are clipped to a norm of 1.
    micro_batch: Completions of one forward and backward pass on one device.
    save_every: Steps between checkpoints to go on from: weights, optimizer and history.
    keep_checkpoints: How many of them stay, the last ones; None keeps all.
    snapshot_every: Steps between snapshots, weights alone in ``model.dtype``, which all stay, to evaluate them later.
        None takes none but those that `RunConfig.diagnose` needs.
    """

    steps: PositiveInt
    prompts: PositiveInt
    group_size: PositiveInt
    ppo_prompts: PositiveInt | None = None
    reuse: PositiveInt = 1
    copies: PositiveInt = 1
    learning_rate: PositiveFloat = 1e-6
    micro_batch: PositiveInt = 8
    gradient_checkpointing: bool = False
    save_every: PositiveInt = 50
    keep_checkpoints: PositiveInt | None = 2
    snapshot_every: PositiveInt | None = None

    @model_validator(mode="after")
    def _batches_divide(self) -> OptimizationConfig:
        if self.prompts % self.update_prompts:
            raise ValueError(
                f"prompts = {self.prompts} must be a multiple of ppo_prompts = {self.ppo_prompts}: a step is cut into "
                "whole updates."
            )
        self.check_processes(1)
        return self

    def check_processes(self, processes: int) -> None:
        """Raise a ValueError if an update's completions do not divide among processes."""
        completions = self.update_prompts * self.group_size
        if completions % (self.micro_batch * processes):
            raise ValueError(
                f"an update's {completions} completions (ppo_prompts x group_size) must be a multiple of micro_batch = "
                f"{self.micro_batch} times {processes} processes; lower updates.micro_batch or take fewer GPUs."
            )

    @property
    def update_prompts(self) -> int:
        """Prompts of one optimizer update."""
        return self.ppo_prompts or self.prompts

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates in each training step."""
        return self.prompts // self.update_prompts


class TestConfig(Section):
    """Held-out problems along the run.

    task: Problems that the training set holds too are left out.
    every: Training steps between tests; the first is before training, the last at its end.
    samples: Completions per problem, for accuracy and pass@k, in addition to a greedy answer.
    temperature: Of these completions; None takes the run's.
    """

    __test__ = False  # pytest: no test class

    task: TaskConfig
    every: PositiveInt
    samples: PositiveInt = 1
    temperature: PositiveFloat | None = None


class RunDiagnosticConfig(Section):
    """The diagnostics of a run's own policies (`llm_experiments.diagnose`), for which it keeps snapshots.

    n_prompts: Problems of the run's to diagnose; None takes all.
    diagnostic, gradient: As in the configuration of diagnostics.
    """

    n_prompts: PositiveInt | None = None
    diagnostic: DiagnosticConfig
    gradient: GradientDiagnosticConfig = GradientDiagnosticConfig()


class PriorConfig(Section):
    """What is known of the problems before the run.

    path: File for `kaestat.Prior.read`, ids those of the task's problems.
    step: Date of the policy that sampled them; the default is that of the one which training starts from.
    """

    path: Path
    step: int = BEFORE_THE_RUN


class RunConfig(Section):
    """A training run.

    name: Names the folders of the run and of its results.
    seed: Of the data, the sampling and the order of prompts. A model that is made here is the same for all seeds.
    model, task, sampling: As in the diagnostics. Without ``task.n_prompts`` all of its problems are trained on.
    method: A method of `kaestat` with its parameters, such as ``kae:bandwidth=10``.
    weights ({"none", "length", "score_norm", "exact", "adam"}): Of completions, for the variance-optimal forms.
    scale ({"none", "group_std", "batch_std"} or None): Of advantages, in place of the method's own; None keeps that.
    objective ({"mean", "log", "pass@K", "arcsin", "bnpo"}): What of each prompt's success rate is maximised
        (`kaestat.estimator.objective`).
    prior: A warm start, for the methods of an experiment that keep a history; the others go without.
    test: None tests nothing along the run; evaluate its checkpoints afterwards.
    diagnose: What to diagnose of the run's policies afterwards (`diagnose --run`); None keeps no snapshots for it. In
        an experiment it belongs to the runs with the file's own method, and not to its other variants.
    vllm_gpu_share: Share of each GPU's memory for vLLM, where it samples.
    report_to: Where TRL logs to, such as ``tensorboard``.
    """

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    task: TaskConfig
    sampling: SamplingConfig = SamplingConfig()
    method: str = "kae:bandwidth=10"
    weights: Weights = "none"
    scale: Scale | None = None
    objective: str = "mean"
    prior: PriorConfig | None = None
    updates: OptimizationConfig
    test: TestConfig | None = None
    diagnose: RunDiagnosticConfig | None = None
    vllm_gpu_share: NonNegativeFloat = Field(default=0.3, le=0.9)
    report_to: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _method_fits(self) -> RunConfig:
        estimator = self.estimator()
        check_group_size(estimator, "group_size", self.updates.group_size)
        check_weights(estimator, self.weights, get_args(Weights))
        if self.weights != "none" and self.warm is not None:
            raise ValueError(
                f"weights = {self.weights!r}: the completions of a prior's file have none, and rates alone do not tell "
                "what they weigh; leave prior or weights out."
            )
        if self.task.n_prompts is not None and self.task.n_prompts * self.updates.copies < self.updates.prompts:
            raise ValueError(
                f"updates.prompts = {self.updates.prompts} exceeds the training set of {self.task.n_prompts} x "
                f"{self.updates.copies} copies."
            )
        return self

    @model_validator(mode="after")
    def _snapshots_fit(self) -> RunConfig:
        diagnostic = self.diagnose.diagnostic if self.diagnose else None
        if diagnostic is not None and min(diagnostic.steps) <= diagnostic.history:
            raise ValueError(
                f"diagnose.diagnostic.steps {diagnostic.steps} must lie after step history = {diagnostic.history}: a "
                "run keeps no snapshot of the model that it begins with."
            )
        last = max(self.snapshot_steps, default=0)
        if last > self.updates.steps:
            raise ValueError(f"diagnose.diagnostic wants step {last} of a run of updates.steps = {self.updates.steps}.")
        if self.diagnose is not None and self.task.n_prompts is not None and self.diagnose.n_prompts is not None:
            raise ValueError(
                "diagnose.n_prompts: the run has its own task.n_prompts, and its diagnostics take the same; leave one "
                "out."
            )
        return self

    @property
    def snapshot_steps(self) -> tuple[int, ...]:
        """Training steps made when weights are kept, in order."""
        sizes = self.updates
        every = sizes.snapshot_every or sizes.steps + 1
        needed = () if self.diagnose is None else self.diagnose.diagnostic.pool_sizes()
        return tuple(sorted({*range(every, sizes.steps + 1, every), *needed}))

    def estimator(self) -> AdvantageEstimator:
        """A fresh estimator of the method, without the prior."""
        name, params = parse_method(self.method)
        return AdvantageEstimator(name, scale=self.scale, objective=self.objective, **params)

    @property
    def warm(self) -> PriorConfig | None:
        """The prior, where the method takes one."""
        return self.prior if self.estimator().baseline.horizon > 0 else None

    def read_prior(self) -> Prior | None:
        """What is known before the run, where the method takes it.

        Raises FileNotFoundError, ValueError if the file is not there, or cannot be read.
        """
        warm = self.warm
        if warm is None:
            return None
        if not warm.path.is_file():
            raise FileNotFoundError(f"prior.path {warm.path}: no such file.")
        return Prior.read(warm.path, step=warm.step)

    def opening_estimator(self) -> AdvantageEstimator:
        """A fresh estimator of the method, with the prior.

        Raises FileNotFoundError, ValueError: As `read_prior`, and if the method has no use for it.
        """
        estimator, prior = self.estimator(), self.read_prior()
        if prior is not None:
            estimator.add_prior(prior)
        return estimator

    @property
    def loss_type(self) -> str:
        """TRL's loss for this run: the sum over an update's tokens divided by their number, as verl does by default.

        The method ``dr_grpo`` has its own, divided by a constant length.
        """
        return "dr_grpo" if parse_method(self.method)[0] == "dr_grpo" else "dapo"


def run_label(config: RunConfig) -> str:
    """Name of a run within its experiment.

    Examples
    --------
    ``kae-bandwidth10-J10-seed-0``
    """
    method = re.sub(r"[^\w.+-]+", "-", config.method.replace("=", "")).strip("-")
    weights = "" if config.weights == "none" else f"@{config.weights}"
    scale = "" if config.scale is None else f"-scale-{config.scale}"
    return f"{method}{weights}{scale}-J{config.updates.reuse}-seed-{config.seed}"


def result_name(config: RunConfig) -> str:
    """Name of a run's evaluation and diagnostics among those of all experiments."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{config.name}-{run_label(config)}")
