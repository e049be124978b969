"""Baselines and drawn prompts inside slime: functions for its ``--...-path`` arguments.

Read, not run: slime has no package that installs without its GPU engines. Read were, on the main branch of THUDM/slime
at commit 624b824 (21 August 2026), slime/ray/rollout.py, slime/utils/types.py, slime/rollout/data_source.py,
slime/rollout/base_types.py, slime/rollout/sglang_rollout.py, slime/rollout/fully_async_rollout.py, train_async.py,
slime/backends/megatron_utils/loss.py, slime/backends/megatron_utils/update_weight, slime/agent/trajectory.py,
examples/multi_agent and the customization guide. The tests build its `Sample`, its rollout manager's calls and its data
source as they stand there, or take the real ones from a folder of slime's source (`make test-upstream`).

slime calls ``fn(args, samples) -> (raw_rewards, rewards)`` once per rollout, in the one process that also holds the
data source, and with ``--advantage-estimator grpo`` (gspo, cispo) copies each of these rewards to the completion's
tokens as its advantage. So the hook sees every completion of the step: no ranks to gather from.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.baselines.registry import parse_method
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.shared.tracked_estimator import TrackedEstimator
from kaestat.integrations.shared.tracked_sampler import check_sampler_params
from kaestat.integrations.shared.weights import check_weights
from kaestat.integrations.slime_prompts import STATES_KEPT, DrawnGroups, corrections, drawn_groups, rows_of
from kaestat.integrations.slime_samples import (
    STEP_KEY,
    completions_of,
    flat,
    group_of,
    groups_of,
    prompt_of,
    step_of,
    with_metrics,
    with_prompts,
)
from kaestat.integrations.slime_versions import SLIME, policy_steps
from kaestat.sampling import Policy, PromptSampler

DEFAULT_ROLLOUT = "slime.rollout.sglang_rollout.generate_rollout"
SAMPLER_FILE = "rollout/kaestat_sampler_{rollout_id}"
STATE_FILE = "rollout/kaestat_state_{rollout_id}"  # beside slime's global_dataset_state_dict_{rollout_id}.pt


class RewardPostProcess:
    """For ``--custom-reward-post-process-path``: raw rewards, and advantages in the place of rewards.

    Parameters
    ----------
    estimator : AdvantageEstimator, optional
        None builds it at the first call from ``args.kaestat_method``, a text such as ``"kae:bandwidth=10"`` that
        slime's ``--custom-config-path`` file can hold.
    id_key : str, optional
        Key of ``sample.metadata`` (slime's ``--metadata-key`` column) with the prompt's id. None takes
        ``args.kaestat_id_key``, and without it a hash of ``sample.prompt``. slime's own ``group_index`` and ``index``
        are running counters: they name groups and completions, no prompts.
    prompt_sampler : str, Policy or PromptSampler, optional
        Draws the prompts of each rollout by their predicted values in place of the data set's order, and corrects the
        advantages for it: the name of a policy such as ``"neyman"`` (`kaestat.sampling.POLICIES`), or a sampler of your
        own for the data set's prompt ids, ``rollout_batch_size * n_samples_per_prompt`` completions and groups of
        ``n_samples_per_prompt``. None takes ``args.kaestat_prompt_sampler``, and without it slime's order. Floor,
        correction and most of a policy's sampler come from the mapping ``args.kaestat_sampler_params``.
    weights : {"none", "length"}, optional
        Weight of each completion in averaging baselines; ``"length"``: its number of tokens in slime's loss. None takes
        ``args.kaestat_weights``, and without it ``"none"``. slime's reward hook runs before the trainer sees the
        completions, so that logits are out of reach.

    Raises
    ------
    ValueError
        If the estimator cannot use these weights, or does not do without.

    Examples
    --------
    A module ``my_baseline.py`` on slime's Python path::

        advantages = RewardPostProcess(AdvantageEstimator("kae", bandwidth=10))
        generate_rollout = advantages.with_step()

    and ``--custom-reward-post-process-path my_baseline.advantages``,
    ``--rollout-function-path my_baseline.generate_rollout``.
    """

    def __init__(
        self,
        estimator: AdvantageEstimator | None = None,
        *,
        id_key: str | None = None,
        prompt_sampler: str | Policy | PromptSampler | None = None,
        weights: str | None = None,
    ):
        if estimator is not None and weights is not None:
            check_weights(estimator, weights)
        self.watched = None if estimator is None else TrackedEstimator(estimator, states_kept=STATES_KEPT)
        self.id_key = id_key
        self.prompt_sampler = prompt_sampler
        self.weights = weights
        self.drawn: DrawnGroups | None = None  # made by the data source, which knows the prompts
        self._rollout_id: int | None = None
        self._first_rollout: int | None = None  # of this process: slime counts its policies from it
        self._all_samples: list[Any] = []  # of this rollout, with those that a filter has dropped

    def __call__(self, args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
        """slime's call, once per rollout.

        Parameters
        ----------
        args : namespace
            slime's arguments.
        samples : list of slime.utils.types.Sample, length N
            All completions of the rollout. Samples of one ``rollout_id`` (or one ``index``) are segments of one
            completion: they count once and share its advantage. They have the outcome's reward, each of them, and the
            data set's prompt, or metadata in which `data_source` wrote it. Samples with ``remove_sample`` are out of
            slime's loss and therefore out of the values: the baseline is that of the completions trained on.

        Returns
        -------
        raw_rewards, advantages : list of float, length N

        Raises
        ------
        ValueError
            If there is no step for a method with a history, prompts have no stable id, a reward is missing, segments
            disagree, slime's estimator is ``ppo``, which would take advantages for rewards, or prompts were not drawn
            by the sampler that was asked for.
        """
        if getattr(args, "advantage_estimator", None) == "ppo":
            raise ValueError(
                "--advantage-estimator ppo subtracts its critic's values; with kaestat's advantages use grpo (which "
                "copies them to the tokens) and --normalize-advantages off."
            )
        watched = self._ready(args)
        raw = [sample.get_reward_value(args) for sample in samples]
        kept = [not sample.remove_sample for sample in samples]
        if any(reward is None and keep for reward, keep in zip(raw, kept, strict=True)):
            raise ValueError("a sample has no reward: give it one, or set its remove_sample.")
        first, completion = completions_of(samples, raw)
        mask = np.zeros(len(first), dtype=bool)
        np.logical_or.at(mask, completion, kept)
        chosen = [samples[row] for row in first]
        correction = None if self._sampler_given(args) is None else corrections(chosen)
        step, ids = step_of(chosen), self._ids(args, chosen)
        version = self._versions(args, samples, completion, mask, step)
        rewards = np.array([0.0 if raw[row] is None else float(raw[row]) for row in first])
        advantages = watched.advantages(
            rewards,
            step,
            prompts=[prompt_of(sample) for sample in chosen],
            ids=ids,
            groups=groups_of(chosen),
            mask=mask,
            weights=self._lengths(args, samples, completion),
            version=version,
        )
        if self.drawn is not None or (self._filters(args) and watched.stateful):
            self._observe(args, samples, [row for row, keep in zip(chosen, mask, strict=True) if keep], step)
        if correction is not None:
            advantages = advantages * correction
        return raw, advantages[completion].tolist()

    def with_step(self, generate_rollout: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """For ``--rollout-function-path``: slime's rollout function, or yours, with the step written on each sample.

        The metrics of the last step (see `TrackedEstimator`) are added to the rollout's; they appear with the rollout
        after the one that they are about, since slime logs a rollout before its rewards are processed.

        Parameters
        ----------
        generate_rollout : callable, optional
            None takes ``args.kaestat_rollout_function_path``, and without it slime's default.
        """

        def stamped(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
            inner = generate_rollout
            if not evaluation:
                self._rollout_id, self._all_samples = rollout_id, []
                self._first_rollout = rollout_id if self._first_rollout is None else self._first_rollout
            if inner is None:
                inner = _load(getattr(args, "kaestat_rollout_function_path", None) or DEFAULT_ROLLOUT)
            output = inner(args, rollout_id, data_source, evaluation=evaluation)
            if evaluation:
                return output
            for sample in flat(getattr(output, "samples", output)):
                sample.metadata = {**(sample.metadata or {}), STEP_KEY: rollout_id}
            if self.watched is None or not self.watched.metrics:
                return output
            return with_metrics(output, self.watched.metrics | ({} if self.drawn is None else self.drawn.metrics))

        return stamped if generate_rollout is None else functools.wraps(generate_rollout)(stamped)

    def observe_all(self, args: Any, all_samples: list[Any], data_source: Any) -> None:
        """For ``--rollout-all-samples-process-path``: groups that the dynamic filter drops enter the history too.

        A prompt that another group of the same rollout was kept of is left to that group, unless the order is any.
        """
        self._all_samples = list(flat(all_samples))

    def save(self, args: Any, rollout_id: int) -> None:
        """Write the states as of after ``rollout_id`` under ``args.save``."""
        self._ready(args).save(Path(args.save, STATE_FILE.format(rollout_id=rollout_id)), rollout_id)
        if self.drawn is not None:
            self.drawn.save(Path(args.save, SAMPLER_FILE.format(rollout_id=rollout_id)), rollout_id)

    def load(self, args: Any, rollout_id: int | None) -> None:
        """Go on after ``rollout_id`` with the states under ``args.load``; nothing to do for a run that starts.

        Raises
        ------
        ValueError
            If the run goes on, but there is no state for a method with a history, or for the sampler.
        """
        if rollout_id is None or rollout_id < 0 or args.load is None:
            return
        watched = self._ready(args)
        for file, owner, needed in (
            (STATE_FILE, watched, watched.stateful),
            (SAMPLER_FILE, self.drawn, self.drawn is not None),
        ):
            path = Path(args.load, file.format(rollout_id=rollout_id))
            if owner is not None and path.exists():
                owner.load(path)
            elif needed and not getattr(args, "kaestat_fresh_history", False):
                raise ValueError(
                    f"{path}: the run goes on after rollout {rollout_id}, but its checkpoint has no such state. Resume "
                    "from a checkpoint that has one, or set kaestat_fresh_history: true in the --custom-config-path "
                    "file to begin with an empty history."
                )

    def data_source(self, base: type) -> type:
        """For ``--data-source-path``: a data source that draws the prompts, if that is asked for, and keeps our states.

        Parameters
        ----------
        base : type
            ``slime.rollout.data_source.RolloutDataSourceWithBuffer``, or your own.
        """
        hook = self

        class BaselineDataSource(base):
            def __init__(self, args: Any):
                super().__init__(args)
                given, params = hook._sampler_given(args), getattr(args, "kaestat_sampler_params", None) or {}
                check_sampler_params(params, given, option="kaestat_sampler_params")
                if given is not None:
                    rows = rows_of(self)
                    estimator = hook._ready(args).estimator
                    hook.drawn = drawn_groups(given, args, hook._names(args, rows), rows, estimator, params)

            def get_samples(self, num_samples: int) -> list[list[Any]]:
                groups = super().get_samples(num_samples)
                return with_prompts(
                    groups if hook.drawn is None else hook.drawn.redrawn(groups, _known(hook._rollout_id))
                )

            def save(self, rollout_id: int) -> None:
                super().save(rollout_id)
                hook.save(self.args, rollout_id)

            def load(self, rollout_id: int | None = None) -> None:
                super().load(rollout_id)
                hook.load(self.args, rollout_id)

        return BaselineDataSource

    def _sampler_given(self, args: Any) -> str | Policy | PromptSampler | None:
        own = self.prompt_sampler
        return getattr(args, "kaestat_prompt_sampler", None) if own is None else own

    @staticmethod
    def _filters(args: Any) -> bool:
        return getattr(args, "dynamic_sampling_filter_path", None) is not None

    def _observe(self, args: Any, samples: list[Any], kept: list[Any], step: int | None) -> None:
        """Tell the history of the completions that a filter dropped, and the sampler of all."""
        if self._filters(args) and not self._all_samples:
            warnings.warn(
                "--dynamic-sampling-filter-path drops groups that the history then does not see, which pulls its "
                "values towards 1/2. Pass --rollout-all-samples-process-path kaestat.integrations.slime.observe_all.",
                stacklevel=3,
            )
        groups = {group_of(sample) for sample in samples}
        names = self._names(args, kept)
        scored = [
            sample for sample in self._all_samples if group_of(sample) not in groups and sample.reward is not None
        ]
        self._all_samples = []
        first, completion = completions_of(scored, [sample.get_reward_value(args) for sample in scored])
        lengths, recorded = self._lengths(args, scored, completion), set(names)
        rows = [k for k, row in enumerate(first) if not scored[row].remove_sample]
        theirs, watched = self._names(args, [scored[first[k]] for k in rows]), self._ready(args)
        rows = [k for k, name in zip(rows, theirs, strict=True) if watched.any_order or name not in recorded]
        dropped = [scored[first[k]] for k in rows]
        rewards = [float(sample.get_reward_value(args)) for sample in [*kept, *dropped]]
        if dropped:
            version = self._versions(args, scored, completion, np.isin(np.arange(len(first)), rows), step)
            watched.observe(
                rewards[len(kept) :],
                step,
                prompts=[prompt_of(sample) for sample in dropped],
                ids=self._ids(args, dropped),
                groups=groups_of(dropped),
                weights=None if lengths is None else lengths[rows],
                version=None if version is None else version[rows],
            )
        if self.drawn is not None:
            self.drawn.observe(names + self._names(args, dropped), rewards, _known(step))

    def _ready(self, args: Any) -> TrackedEstimator:
        if self.watched is None:
            text = getattr(args, "kaestat_method", None)
            if text is None:
                raise ValueError(
                    'kaestat_method is not set: put a line such as kaestat_method: "kae:bandwidth=10" into the '
                    "--custom-config-path file, or make a RewardPostProcess with an estimator of your own."
                )
            method, params = parse_method(text)
            self.watched = TrackedEstimator(AdvantageEstimator(method, **params), states_kept=STATES_KEPT)
        return self.watched

    def _lengths(self, args: Any, samples: list[Any], completion: np.ndarray) -> np.ndarray | None:
        """Tokens of each completion in slime's loss, all its segments together; None without weights."""
        weights = self.weights or getattr(args, "kaestat_weights", None) or "none"
        check_weights(self._ready(args).estimator, weights, option="kaestat_weights")
        if weights == "none":
            return None
        return np.bincount(completion, [_tokens_in_loss(sample) for sample in samples])

    def _versions(
        self, args: Any, samples: list[Any], completion: np.ndarray, mask: np.ndarray, step: int | None
    ) -> np.ndarray | None:
        """Step of the policy that sampled each completion; None in strict order, where it is not asked for."""
        if not self._ready(args).any_order:
            return None
        return policy_steps(args, samples, completion, mask, step, self._first_rollout)

    def _ids(self, args: Any, samples: list[Any]) -> list[Hashable] | None:
        key = self.id_key or getattr(args, "kaestat_id_key", None)
        if key is None:
            pictures = [sample for sample in samples if getattr(sample, "multimodal_inputs", None)]
            if pictures and self._ready(args).stateful:
                raise UnstablePromptIds(
                    "prompts with images or other media have no id: texts alone do not tell them apart. Put an id of "
                    "each row into its metadata and name it with id_key= (kaestat_id_key)."
                )
            return None
        missing = [sample for sample in samples if key not in (sample.metadata or {})]
        if missing:
            raise UnstablePromptIds(
                f"the prompt id is missing: metadata of {len(missing)} samples has no {key!r}. Add it to the "
                "--metadata-key column, or leave id_key out to know prompts by their text."
            )
        return [sample.metadata[key] for sample in samples]

    def _names(self, args: Any, samples: list[Any]) -> list[Hashable]:
        """What the history knows the samples' prompts by."""
        return self._ids(args, samples) or [hash_prompt(prompt_of(sample)) for sample in samples]


def _tokens_in_loss(sample: Any) -> int:
    if sample.remove_sample:
        return 0
    return sample.response_length if sample.loss_mask is None else sum(sample.loss_mask)


def _known(step: int | None) -> int:
    if step is None:
        raise ValueError(
            "kaestat_prompt_sampler: a draw needs the rollout's number; pass --rollout-function-path "
            "kaestat.integrations.slime.generate_rollout, or wrap yours with_step."
        )
    return step


def _load(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


advantages = RewardPostProcess()
generate_rollout = advantages.with_step()
observe_all = advantages.observe_all


def __getattr__(name: str) -> Any:
    """``DataSource`` is made when slime asks for it, since its base class is slime's."""
    if name == "DataSource":
        with SLIME.imports():
            from slime.rollout.data_source import RolloutDataSourceWithBuffer

        return advantages.data_source(RolloutDataSourceWithBuffer)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
