"""The user's settings under ``algorithm.kaestat``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kaestat import AdvantageEstimator
from kaestat.asynchronous.estimator import AsynchronousEstimator
from kaestat.baselines.registry import METHODS, parse_method
from kaestat.history.prior import BEFORE_THE_RUN
from kaestat.integrations.shared.method_checks import check_weights, looks_back
from kaestat.integrations.shared.tracked_sampler import check_sampler_params
from kaestat.integrations.verl.prompts import prior_of_data_file
from kaestat.sampling.policies import make_policy

OF_PARAMETERS = ("exact", "adam")
WEIGHTS = ("none", "length", "score_norm", *OF_PARAMETERS)
WEIGHTS_OPTION = "algorithm.kaestat.weights"
GROUP_SIZE = "actor_rollout_ref.rollout.n"


@dataclass(frozen=True)
class Options:
    """The settings for a method in verl's configuration; verl's page has a table of them.

    Text in ``params`` of the baseline is read as on the command line, so ``bandwidth: rate(c=2)`` works.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    scale: str | None = None
    objective: str = "mean"
    weights: str = "none"
    prompt_id: str = "auto"
    prior: str | None = None
    prior_step: int = BEFORE_THE_RUN
    start_anew: bool = False
    prompt_sampler: str | None = None
    sampler_params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, method: str, algorithm: Any) -> Options:
        """The options of a method from the entry ``kaestat`` of verl's ``algorithm`` configuration, checked."""
        given = _given(algorithm)
        known = [part.name for part in fields(cls) if part.name != "method"]
        for name in given:
            if name not in known:
                raise ValueError(f"algorithm.kaestat.{name}: unknown option; choose from {', '.join(known)}.")
        params, given["sampler_params"] = given.pop("params", None) or {}, given.get("sampler_params", None) or {}
        options = cls(method, {key: _value(method, key, params[key]) for key in params}, **given)
        if options.prompt_id not in ("auto", "prompt") and not options.prompt_id.startswith("extra_info."):
            raise ValueError(
                f"algorithm.kaestat.prompt_id: unknown {options.prompt_id!r}; write auto, prompt, or extra_info.KEY."
            )
        if options.prompt_sampler is not None:
            make_policy(options.prompt_sampler)
        check_sampler_params(options.sampler_params, options.prompt_sampler, option="algorithm.kaestat.sampler_params")
        return options

    def refuse_sampler(self, trainer: str) -> None:
        """Raise an error if prompts should be drawn and the trainer cannot draw them."""
        if self.prompt_sampler is not None:
            raise ValueError(
                f"algorithm.kaestat.prompt_sampler={self.prompt_sampler}: {trainer} takes prompts in the order "
                "of verl's data loader. Set trainer.v1.trainer_mode=kaestat_sync, or leave the option out."
            )

    def estimator(self, *, any_order: bool = False) -> AdvantageEstimator:
        """A new `AdvantageEstimator`; with ``any_order`` completions may come late and in parts, if the method can."""
        given = {"scale": self.scale, "objective": self.objective, **self.params}
        estimator = AdvantageEstimator(self.method, **given)
        check_weights(estimator, self.weights, WEIGHTS, option=WEIGHTS_OPTION)
        if any_order and not estimator.baseline.in_order_only:
            estimator = AsynchronousEstimator(self.method, **given)
        if self.prior is not None:
            estimator.add_prior(prior_of_data_file(self.prior, self.prompt_id, self.prior_step))
        return estimator


def refuse_sampler_beside(algorithm: Any) -> None:
    """Raise an error if prompts should be drawn but the advantages' estimator gets no corrections."""
    policy = _given(algorithm).get("prompt_sampler")
    if policy is not None:
        raise ValueError(
            f"algorithm.kaestat.prompt_sampler={policy}: advantages of adv_estimator={algorithm.adv_estimator} are not "
            "corrected for what is drawn. Take one of kaestat's estimators of a reward per completion (kae_eb, "
            "kaestat_rloo, kaestat_grpo, ...), or leave the option out."
        )


def filters_groups(config: Any) -> bool:
    """Whether verl drops groups, according to its whole configuration."""
    return bool((config.algorithm.get("filter_groups", None) or {}).get("enable", False))


def keeps_history(method: str) -> bool:
    """Whether a method uses past steps, so it needs stable prompt ids and the step's number."""
    try:
        return looks_back(AdvantageEstimator(method).baseline)
    except ValueError:  # it needs further input (features, true values), and says so when used
        return METHODS[method].baseline.stepwise


def _given(algorithm: Any) -> dict[str, Any]:
    given = algorithm.get("kaestat", None) if algorithm is not None else None
    return {} if given is None else {key: given[key] for key in given}


def _value(method: str, key: str, value: Any) -> Any:
    """A parameter: text is parsed, everything else is taken as it is."""
    if not isinstance(value, str):
        return value
    return parse_method(f"{method}:{key}={value}")[1][key]
