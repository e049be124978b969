"""Configuration of an evaluation."""

from typing import Any

from pydantic import Field, PositiveInt

from llm_experiments.config import NAME, ModelConfig, SamplingConfig, Section


class EvaluationConfig(Section):
    """An evaluation of one model.

    name: Names the folders of completions and results.
    model, sampling: As in `llm_experiments.diagnose.config.Config`. The paper evaluates at temperature 0.6.
    suite: See `llm_experiments.evaluation.suites.parse_suite`.
    limit: Problems of each set, its first; None takes all.
    options: Further arguments of the sets' tasks, such as ``workers`` of the verifier or another ``template``.
    """

    name: str = Field(pattern=NAME)
    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    sampling: SamplingConfig = SamplingConfig(temperature=0.6, max_new_tokens=2048)
    suite: str = "paper"
    limit: PositiveInt | None = None
    options: dict[str, Any] = Field(default_factory=dict)
