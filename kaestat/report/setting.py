"""A method as set up in a run: its name, its parameters, and the lines to paste."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kaestat.baselines import Pooled
from kaestat.baselines.base import Baseline
from kaestat.baselines.kernel_mean import KernelBaseline
from kaestat.baselines.registry import get_method, make_baseline, parse_method
from kaestat.baselines.reward_range import RangedBaseline, on_range
from kaestat.estimator.reach import fixed_bandwidth
from kaestat.estimator.scaling import cancels_weights
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import risk_baseline
from kaestat.logs.tuning import MARK
from kaestat.smoothing.kernels import as_kernel

# What stands for a method that the tables have in leave-one-out form.
LEFT_OUT = {"grpo": "rloo"}
IN_STEPS = "BANDWIDTH_IN_STEPS"  # What stands for a bandwidth that the log knows in visits only


@dataclass(frozen=True)
class Setting:
    """A method and its parameters."""

    method: str  # Its name in `kaestat.baselines.registry.METHODS`; empty for a baseline object
    params: dict[str, Any]  # Its parameters; bandwidth and kernel are spelled out where prompts come back

    @classmethod
    def of(cls, row: str | Baseline, log: RewardLog) -> Setting:
        """The setting for the method in a row of the tables."""
        if not isinstance(row, str):
            return Setting("", {})
        specification = row.removesuffix(MARK)
        name, params = parse_method(specification)
        baseline = risk_baseline(specification)
        if isinstance(baseline, KernelBaseline) and fixed_bandwidth(baseline) is not None and returns(log):
            params = {**params, "bandwidth": fixed_bandwidth(baseline), "kernel": as_kernel(baseline.kernel).name}
        ranged = on_range(baseline, *reward_range(log))  # which was scored, also where 0 and 1 were given
        if isinstance(ranged, RangedBaseline) and (ranged.low, ranged.high) != (0.0, 1.0):
            params = {"low": ranged.low, "high": ranged.high} | {**params, "low": ranged.low, "high": ranged.high}
        return Setting(LEFT_OUT.get(name, name), params)

    def python_line(self, time_axis: str, weights: str = "none") -> str:
        """The line of Python for TRL and other loops."""
        given = [f'"{self.method}"']
        for key, value in self._shown(time_axis).items():
            given.append(f'{key}="{value}"' if isinstance(self.params[key], str) else f"{key}={value}")
        if self._is_unscaled(weights):
            given.append('scale="none"')
        return f"AdvantageEstimator({', '.join(given)})"

    def verl_line(self, time_axis: str, weights: str = "none") -> str:
        """The same setting as options of verl's command."""
        words = [f"algorithm.adv_estimator={self.method}"]
        words += [f"+algorithm.kaestat.params.{key}={value}" for key, value in self._shown(time_axis).items()]
        if self._is_unscaled(weights):
            words.append("+algorithm.kaestat.scale=none")
        if weights != "none":
            words.append(f"+algorithm.kaestat.weights={weights}")
        if weights == "score_norm":
            words.append("actor_rollout_ref.actor.calculate_sum_pi_squared=True")
        baseline = risk_baseline(self.method)  # may need more than one step's groups: the past, or all of a prompt
        if weights == "score_norm" or baseline.horizon > 0 or baseline.stepwise or isinstance(baseline, Pooled):
            words.append("trainer.v1.trainer_mode=kaestat_sync")
        return " ".join(words)

    def in_words(self, time_axis: str) -> str:
        """The method with its bandwidth, kernel and other parameters."""
        params = {key: _plain(value) for key, value in self.params.items()}
        bandwidth, kernel = params.pop("bandwidth", None), params.pop("kernel", None)
        words = self.method
        if bandwidth is not None:
            steps = "" if isinstance(self.params["bandwidth"], str) else f" {time_axis}s"
            words += f" with bandwidth {bandwidth}{steps}" + (f" and the {kernel} kernel" if kernel else "")
        return f"{words} ({', '.join(f'{key}={value}' for key, value in params.items())})" if params else words

    def _shown(self, time_axis: str) -> dict[str, str]:
        """The parameters as text."""
        shown = {key: _plain(value) for key, value in self.params.items()}
        if time_axis == "visit" and not isinstance(self.params.get("bandwidth", ""), str):
            shown["bandwidth"] = IN_STEPS
        return shown

    def _is_unscaled(self, weights: str) -> bool:
        """Whether the method's own scaling would cancel the weights."""
        method = get_method(self.method)
        return weights != "none" and cancels_weights(make_baseline(self.method), method.scale)


def returns(log: RewardLog) -> bool:
    """Whether prompts return."""
    return bool((log.prompt_units.earlier > 0).any())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
