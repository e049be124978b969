"""Notes that a reader needs to interpret the tables of an analysis."""

from collections.abc import Iterator, Sequence

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.core.spelling import counted
from kaestat.estimator.reach import OUT_OF_REACH_SHARE, reached, wide_enough
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import LEAVE_ONE_OUT_METHODS, risk_baseline
from kaestat.logs.tuning import MARK, Tuned, return_gaps
from kaestat.report.gradient import GradientAnalysis

LATEST_FIRST_STEP = 100_000  # a run whose first step is later than this does not count from its start
JUMP = 20  # times the usual distance between steps
HOW_TO_LOG = (
    "The log has no weights, so the noise that each baseline leaves in the gradient is unknown. To see it, log the "
    "squared norm of each completion's score as score_norm, or its number of tokens as length."
)
ON_NOISE = (
    "The noise of the gradient is the mean of W (R - b)^2 over completions. The estimate is unbiased, since no value "
    "here uses the completion's own reward. Methods whose values use it are left out. The column weights says by what "
    "the values weight the rewards. The noise contains the squared norm of the mean gradient, which is the same for "
    "all baselines.",
    "Weights of good and bad completions are compared within groups (the ratio of Mantel and Haenszel), so "
    "differences between prompts, such as longer answers to hard prompts, do not matter.",
)


def notes(
    log: RewardLog,
    scored: PromptRisks,
    gradient: GradientAnalysis | None,
    given: Sequence[str | Baseline],
    tuned: Sequence[Tuned],
    min_visits: int,
) -> Iterator[str]:
    """The notes of an analysis of the ``given`` methods, those about this log first."""
    if renamed := {part: name for part, name in log.columns.items() if name.casefold() != part}:
        yield f"Columns: {', '.join(f'{part} is {name}' for part, name in renamed.items())}."
    yield from _on_time(log, given)
    if log.group_size_inferred:
        size = int(log.group_sizes.max())
        yield (
            f"The log does not say how many completions a visit has. {size} is the smallest number that makes all "
            f"accuracies whole numbers of successes. If the true number was a multiple of {size}, errors are "
            "overstated: set it (group_size=..., on the command line --hint group_size=...)."
        )
    which = f", those with at least {counted(min_visits, 'earlier visit')}" if min_visits else ""
    yield (
        f"Scored at {counted(scored.n_visits, 'visit')} of {counted(len(scored.per_prompt), 'prompt')}{which}. Errors "
        "are averaged within prompts, then over prompts. The 95 % intervals are by bootstrap over prompts."
    )
    if len(scored.per_prompt) == 1:
        yield "With one prompt there are no intervals."
    if tuned:
        some = tuned[0].n_prompts
        sampled = f" A random sample of {some:,} prompts chose." if some < len(scored.per_prompt) else ""
        yield (
            f"Rows marked{MARK} have the bandwidth and kernel with the lowest MSE on this log. A choice looks too good "
            "on the data it was made on, so each half of the prompts is scored with the choice of the other half."
            f"{sampled}"
        )
    yield from _on_rewards(log, scored, given)
    yield from (HOW_TO_LOG,) if gradient is None else ON_NOISE


def _on_time(log: RewardLog, given: Sequence[str | Baseline]) -> Iterator[str]:
    units = log.prompt_units
    if not (units.earlier > 0).any():
        yield (
            "Every prompt occurs once: a history cannot help on this log, and no bandwidth matters. Borrowing from the "
            "other prompts of the step can help. All visits are scored, without a history."
        )
        return
    gaps = return_gaps(log)
    baselines = {str(method): risk_baseline(method) for method in given}
    reach = {name: reached(each, gaps).mean() for name, each in baselines.items() if each.horizon > 0}
    if blind := [name for name, share in reach.items() if share <= 1 - OUT_OF_REACH_SHARE]:
        gap = float(np.median(gaps))
        yield (
            f"The history of {', '.join(blind)} reaches hardly any earlier visit here, since prompts return "
            f"about every {gap:.0f} {log.time_axis}s. A bandwidth of about {wide_enough(gap):g} would reach some."
        )
    if log.time_axis == "visit":
        yield (
            "The log has no training steps, so time is each prompt's visit index: bandwidths and lags count visits. In "
            "training they count steps: multiply by the steps from one visit of a prompt to the next (steps per epoch)."
        )
        return
    steps = np.unique(units.visit_step)
    between = np.diff(steps)
    odd = []
    if steps[0] > LATEST_FIRST_STEP:
        odd.append(f"begin at {steps[0]:,}, as timestamps or token counts do")
    if len(between) > 1 and between.min() > 1:
        odd.append(f"are {between.min()} or more apart, as if only some were logged")
    if len(between) > 1 and between.max() > JUMP * np.median(between):
        at = int(np.argmax(between))
        odd.append(f"jump from {steps[at]:,} to {steps[at + 1]:,}")
    if odd:
        yield (
            f"Steps {' and '.join(odd)}. Bandwidths are in the log's own steps. If training counts otherwise, number "
            'the steps 0, 1, 2, ... first (in pandas: frame["step"].rank(method="dense") - 1).'
        )


def _on_rewards(log: RewardLog, scored: PromptRisks, given: Sequence[str | Baseline]) -> Iterator[str]:
    low, high = reward_range(log)
    baselines = [risk_baseline(method) for method in given]
    if (low, high) != (0.0, 1.0) and any(isinstance(baseline, RangedBaseline) for baseline in baselines):
        yield (
            f"Rewards lie between {low:g} and {high:g}. For methods that expect rewards in [0, 1], as kalman and spo, "
            "they are mapped from that range. In training, give the range that rewards can have, at least "
            f"low={low:g}, high={high:g}."
        )
    if scored.absolute:
        yield (
            f"{' and '.join(LEAVE_ONE_OUT_METHODS)} are scored in leave-one-out form, as in the paper, and so are "
            "methods that use one reward of the group in place of its mean. Where a value contains its completion's "
            "own reward with weight w, 2 w Var(Z) is added back, so every row is the MSE of the value; such methods "
            "are not recommended. Methods that differ only in the scale of advantages have equal rows."
        )
        return
    yield (
        "One completion per visit (G = 1): the reward variance and the MSE are not identified, but differences of "
        "MSE are. Without other completions the values of grpo and rloo are 0, like those of none."
    )
    unknown = np.isnan(scored.per_prompt).any(axis=0)
    if left_out := [str(method) for k, method in enumerate(given) if unknown[k]]:
        yield (
            f"Left out, since their values contain the completion's own reward: {', '.join(left_out)}. At G = 1 even "
            "their differences are not identified."
        )
