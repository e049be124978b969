"""Configurations of diagnostics: YAML files, checked before anything is loaded."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from llm_experiments.config import NAME, ModelConfig, SamplingConfig, Section, StepFolders, TaskConfig


class CheckpointUpdatesConfig(Section):
    """Policy-gradient updates on the fixed minibatch, whose checkpoints are diagnosed.

    method: A method of `kaestat`, such as ``kae:bandwidth=10``.
    group_size: Completions per prompt and step, G.
    """

    method: str = "kae:bandwidth=10"
    group_size: PositiveInt = 8
    learning_rate: PositiveFloat = 1e-6


class DiagnosticConfig(Section):
    """Sizes of the pools and of the value diagnostic.

    steps: Target steps i; checkpoint i is the policy before update i, so 0 is the initial model.
    history: Past steps i-1, ..., i-history whose policies give KAE its past.
    group_size: Completions per prompt in each repeat, G.
    n_oracle: Target-step completions per prompt that make the oracle value.
    n_estimation: Target-step completions per prompt, disjoint from these, that current groups are drawn from.
    n_history: Completions per prompt at each past step.
    repeats: R.
    bandwidths: Of the sensitivity analysis, in steps.
    kernels: Likewise.
    n_boot: Bootstrap draws of prompts.
    """

    steps: tuple[int, ...]
    history: PositiveInt = 4
    group_size: PositiveInt = 8
    n_oracle: PositiveInt = 48
    n_estimation: PositiveInt = 16
    n_history: PositiveInt = 16
    repeats: PositiveInt = 200
    bandwidths: tuple[PositiveFloat, ...] = (2, 3, 5, 7, 10, 15, 20, 40)
    kernels: tuple[str, ...] = ("triangular", "exponential")
    n_boot: PositiveInt = 2000

    @model_validator(mode="after")
    def _sizes_fit(self) -> DiagnosticConfig:
        if not self.steps or min(self.steps) < self.history:
            raise ValueError(f"steps {self.steps} must not be empty, nor begin before history = {self.history}.")
        if len(set(self.steps)) != len(self.steps):
            raise ValueError(f"steps {self.steps} must differ.")
        if self.group_size < 2 or self.n_oracle < 2:
            raise ValueError("group_size and n_oracle must be at least 2, for leave-one-out values and for debiasing.")
        for name in ("n_estimation", "n_history"):
            if getattr(self, name) < self.group_size:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least group_size = {self.group_size}.")
        return self

    @property
    def n_target(self) -> int:
        """Target-step completions per prompt: oracle and estimation pools; the reference pool of the gradients."""
        return self.n_oracle + self.n_estimation

    def pool_sizes(self) -> dict[int, int]:
        """Completions per prompt at each checkpoint that needs any, in the order of the steps."""
        sizes: dict[int, int] = {}
        for target in self.steps:
            wanted = {target: self.n_target} | dict.fromkeys(range(target - self.history, target), self.n_history)
            for step, size in wanted.items():
                sizes[step] = max(size, sizes.get(step, 0))
        return dict(sorted(sizes.items()))


class GradientDiagnosticConfig(Section):
    """The gradient diagnostic.

    parameters: ``all``, ``final_block`` (final decoder block and output layer, as the paper for 7B), or a regular
        expression that parameter names must match.
    repeats: M.
    n_prompts: Prompts whose Gram matrices are computed; None takes all.
    memory_gib: Memory of the scores behind a Gram matrix; see `llm_experiments.gradient.scores.gram_matrix`.
    """

    parameters: str = "final_block"
    repeats: PositiveInt = 1000
    n_prompts: PositiveInt | None = None
    memory_gib: PositiveFloat = 4.0


class Config(Section):
    """A whole diagnostic run.

    name: Names the folders of the run and of its results.
    model, task, sampling, training, diagnostic, gradient: The sections. Without ``training``, ``checkpoints`` names
        existing ones.
    checkpoints: Model folders by step, such as ``runs/math7b/checkpoint-{step}``.
    problem_ids: Ids of the task's problems to diagnose; None takes all that ``task`` gives.
    """

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    task: TaskConfig
    sampling: SamplingConfig = SamplingConfig()
    training: CheckpointUpdatesConfig | None = None
    checkpoints: StepFolders | None = None
    problem_ids: tuple[str, ...] | None = None
    diagnostic: DiagnosticConfig
    gradient: GradientDiagnosticConfig = GradientDiagnosticConfig()

    @model_validator(mode="after")
    def _one_source_of_checkpoints(self) -> Config:
        if (self.training is None) == (self.checkpoints is None):
            raise ValueError("give either training (updates made here) or checkpoints (a path with {step}).")
        return self
