"""Baselines and drawn prompts inside slime: functions for its ``--...-path`` arguments.

slime calls ``fn(args, samples) -> (raw_rewards, rewards)`` once per rollout, in the one process that also holds the
data source, and with ``--advantage-estimator grpo`` (gspo, cispo) copies each of these rewards to the completion's
tokens as its advantage. So the hook sees every completion of the step, and nothing has to be gathered. The rest is a
`TrainerSession`. These things are particular to slime:

=========  =============================================================================================================
ids        hash of ``sample.prompt``, or a key of ``sample.metadata``; ``group_index`` and ``index`` are counters
step       the rollout's number, which the hook does not get: `with_step` writes it on the samples
versions   not read: completions count at the rollout that they are trained in
weights    tokens in the loss; the hook runs before the trainer sees the completions, so there are no logits
filter     ``--rollout-all-samples-process-path`` passes on what ``--dynamic-sampling-filter-path`` drops
draw       in the data source; a correction travels with its sample, since groups may be finished later
state      beside slime's data source; ``train_async.py`` saves a rollout after it has scored the next one
=========  =============================================================================================================

docs/frameworks/slime.md says what was run and what was read, and at which commit.
"""

import functools
import pkgutil
import warnings
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

from kaestat.baselines.registry import parse_method
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompts
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import check_sampler_params
from kaestat.integrations.shared.upstream import Upstream
from kaestat.integrations.slime_samples import (
    PROMPT_KEY,
    STEP_KEY,
    DrawnGroups,
    completions_of,
    corrections,
    flat,
    group_of,
    prompt_of,
    step_of,
    tokens_in_loss,
    with_metrics,
)
from kaestat.sampling import Policy, PromptSampler

SLIME = Upstream("slime", "slime", "its main branch at commit 624b824")
DEFAULT_ROLLOUT = "slime.rollout.sglang_rollout.generate_rollout"
# Beside slime's global_dataset_state_dict_{rollout_id}.pt.
FILES = "rollout/kaestat_state_{}", "rollout/kaestat_sampler_{}"
STATES_KEPT = 3  # under train_async.py one more rollout is scored before the last one is saved
FRESH = "set kaestat_fresh_history: true in the --custom-config-path file to begin with an empty history"


class RewardPostProcess:
    """For ``--custom-reward-post-process-path``: raw rewards, and advantages that replace rewards.

    Parameters
    ----------
    estimator : AdvantageEstimator, optional
        None builds it at the first call from ``args.kaestat_method``, a text such as ``"kae:bandwidth=10"`` in
        slime's ``--custom-config-path`` file. ``args.kaestat_id_key`` is the key of ``sample.metadata`` (slime's
        ``--metadata-key`` column) with the prompt's id; without it the id is a hash of ``sample.prompt``.
        ``args.kaestat_weights`` is the weight of each completion in averaging baselines: ``"none"``, or ``"length"``,
        its number of tokens in slime's loss.
    prompt_sampler : str, Policy or PromptSampler, optional
        Draws the prompts of each rollout by their predicted values instead of the data set's order, and corrects the
        advantages for this: the name of a policy such as ``"neyman"`` (`kaestat.sampling.POLICIES`), or a sampler of
        your own for the data set's prompt ids, ``rollout_batch_size * n_samples_per_prompt`` completions and groups of
        ``n_samples_per_prompt``. None means ``args.kaestat_prompt_sampler``, or without it slime's order. Floor,
        correction and most of a policy's sampler come from the mapping ``args.kaestat_sampler_params``.
    """

    def __init__(
        self, estimator: AdvantageEstimator | None = None, *, prompt_sampler: str | Policy | PromptSampler | None = None
    ):
        self._estimator, self.prompt_sampler = estimator, prompt_sampler
        self._session: TrainerSession | None = None
        self._rollout_id: int | None = None
        self._all_samples: list[Any] = []  # of this rollout, including those dropped by a filter

    def session(self, args: Any) -> TrainerSession:
        """The run's session, created at the first call from slime's arguments.

        A ValueError if there is no estimator, or it cannot use the weights asked for, or needs weights.
        """
        if self._session is None:
            weights = getattr(args, "kaestat_weights", None) or "none"
            estimator = self._estimator or _estimator(getattr(args, "kaestat_method", None))
            self._session = TrainerSession(
                estimator, weights=weights, option="kaestat_weights", states_kept=STATES_KEPT
            )
        return self._session

    def __call__(self, args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
        """Raw rewards, and advantages, of the N completions of a rollout; slime's call, once per rollout.

        Samples of one ``rollout_id`` (or one ``index``) are segments of one completion: they count once and share its
        advantage. Each needs the outcome's reward, and the data set's prompt, or metadata in which `data_source` wrote
        it. Samples with ``remove_sample`` are not in slime's loss and therefore not in the values: the baseline is for
        the completions trained on.

        A ValueError if there is no step for a method with a history, prompts have no stable id, a reward is missing,
        segments disagree, slime's estimator is ``ppo``, which would treat advantages as rewards, or prompts were not
        drawn by the requested sampler.
        """
        if getattr(args, "advantage_estimator", None) == "ppo":
            raise ValueError(
                "--advantage-estimator ppo subtracts its critic's values; with kaestat's advantages use grpo (which "
                "copies them to the tokens) and --normalize-advantages off."
            )
        session, raw = self.session(args), [sample.get_reward_value(args) for sample in samples]
        if any(reward is None and not sample.remove_sample for reward, sample in zip(raw, samples, strict=True)):
            raise ValueError("a sample has no reward: give it one, or set its remove_sample.")
        step = step_of(samples)
        columns, of_rows, completion = self._columns(args, samples, raw)
        correction = None if self._sampler_given(args) is None else corrections(of_rows)
        found = session.advantages(step=step, correction=correction, **columns)
        self._observe(args, session, {group_of(sample) for sample in samples}, step)
        return raw, found[completion].tolist()

    def with_step(self, generate_rollout: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """For ``--rollout-function-path``: slime's rollout function, or yours, which marks samples with the step.

        None means ``args.kaestat_rollout_function_path``, or without it slime's default. The metrics of the last step
        are added to the rollout's. They appear one rollout later, since slime logs a rollout before its rewards are
        processed.
        """

        def stamped(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
            inner = generate_rollout
            if not evaluation:
                self._rollout_id, self._all_samples = rollout_id, []
            if inner is None:
                inner = pkgutil.resolve_name(getattr(args, "kaestat_rollout_function_path", None) or DEFAULT_ROLLOUT)
            output = inner(args, rollout_id, data_source, evaluation=evaluation)
            if evaluation:
                return output
            for sample in flat(getattr(output, "samples", output)):
                sample.metadata = {**(sample.metadata or {}), STEP_KEY: rollout_id}
            metrics = {} if self._session is None else self._session.metrics
            return with_metrics(output, metrics) if metrics else output

        return stamped if generate_rollout is None else functools.wraps(generate_rollout)(stamped)

    def observe_all(self, args: Any, all_samples: list[Any], data_source: Any) -> None:
        """For ``--rollout-all-samples-process-path``: record groups that the dynamic filter drops too."""
        self._all_samples = list(flat(all_samples))

    def save(self, args: Any, rollout_id: int) -> None:
        """Write the states after ``rollout_id`` under ``args.save``."""
        self.session(args).save(*_files(args.save, rollout_id), rollout_id)

    def load(self, args: Any, rollout_id: int | None) -> None:
        """Continue after ``rollout_id`` with the states under ``args.load``; does nothing in a new run.

        A `LostState` if the run resumes, but there is no state for a method with a history, or for the sampler.
        """
        if rollout_id is not None and rollout_id >= 0 and args.load is not None:
            anew = getattr(args, "kaestat_fresh_history", False)
            self.session(args).load(*_files(args.load, rollout_id), remedy=FRESH, anew=anew)

    def data_source(self, base: type) -> type:
        """For ``--data-source-path``: a data source that saves our states, and draws prompts if asked to.

        ``base`` is ``slime.rollout.data_source.RolloutDataSourceWithBuffer``, or your own.
        """
        hook = self

        class BaselineDataSource(base):
            def __init__(self, args: Any):
                super().__init__(args)
                given, params = hook._sampler_given(args), getattr(args, "kaestat_sampler_params", None) or {}
                check_sampler_params(params, given, option="kaestat_sampler_params")
                if given is not None:
                    hook._draw_from(args, given, getattr(self, "dataset", None), params)

            def get_samples(self, num_samples: int) -> list[list[Any]]:
                groups = super().get_samples(num_samples)
                drawn = None if hook._session is None else hook._session.drawn
                if isinstance(drawn, DrawnGroups):
                    groups = drawn.redrawn(groups, hook._rollout_id)
                for sample in flat(groups):
                    sample.metadata = {PROMPT_KEY: sample.prompt} | (sample.metadata or {})
                return groups

            def save(self, rollout_id: int) -> None:
                super().save(rollout_id)
                hook.save(self.args, rollout_id)

            def load(self, rollout_id: int | None = None) -> None:
                super().load(rollout_id)
                hook.load(self.args, rollout_id)

        return BaselineDataSource

    def _draw_from(self, args: Any, given: str | Policy | PromptSampler, dataset: Any, params: Any) -> None:
        if dataset is None:
            raise ValueError("kaestat_prompt_sampler: there are no prompts to draw without slime's global data set.")
        session, size, rows = self.session(args), args.n_samples_per_prompt, list(dataset.samples)
        filters = getattr(args, "dynamic_sampling_filter_path", None) is not None
        ids = self._ids(args, rows) or hash_prompts([prompt_of(sample) for sample in rows])
        sampler = session.sampler(
            given,
            ids,
            budget=args.rollout_batch_size * size,
            group_size=size,
            seed=args.rollout_seed,
            params=params,
            filtered="--dynamic-sampling-filter-path" if filters else "",
        )
        session.drawn = DrawnGroups(sampler, ids, rows)

    def _sampler_given(self, args: Any) -> str | Policy | PromptSampler | None:
        own = self.prompt_sampler
        return getattr(args, "kaestat_prompt_sampler", None) if own is None else own

    def _columns(
        self, args: Any, samples: list[Any], raw: list[float | None]
    ) -> tuple[dict[str, Any], list[Any], np.ndarray]:
        """The rows for a session, the first sample of each completion, and the completion of each sample."""
        session = self.session(args)
        first, completion = completions_of(samples, raw)
        of_rows = [samples[row] for row in first]
        mask = np.zeros(len(first), dtype=bool)
        np.logical_or.at(mask, completion, [not sample.remove_sample for sample in samples])
        weights = None
        if session.weighs:
            weights = np.bincount(completion, [tokens_in_loss(sample) for sample in samples])
        groups = [sample.group_index for sample in of_rows]  # None where the rollout function omitted it
        columns = {
            "rewards": np.array([0.0 if raw[row] is None else float(raw[row]) for row in first]),  # type: ignore[arg-type]  # not None
            "prompts": [prompt_of(sample) for sample in of_rows],
            "ids": self._ids(args, of_rows),
            "groups": None if None in groups else groups,
            "mask": mask,
            "weights": weights,
        }
        return columns, of_rows, completion

    def _observe(self, args: Any, session: TrainerSession, trained: set[Hashable], step: int | None) -> None:
        """Record the completions that a filter dropped."""
        filters = getattr(args, "dynamic_sampling_filter_path", None) is not None
        if filters and session.stateful and not self._all_samples:
            warnings.warn(
                "--dynamic-sampling-filter-path drops groups that the history then does not see, which pulls its "
                "values towards 1/2. Pass --rollout-all-samples-process-path kaestat.integrations.slime.observe_all.",
                stacklevel=3,
            )
        dropped = [
            sample for sample in self._all_samples if group_of(sample) not in trained and sample.reward is not None
        ]
        self._all_samples = []
        if dropped and (session.drawn is not None or (filters and session.stateful)):
            columns, *_ = self._columns(args, dropped, [sample.get_reward_value(args) for sample in dropped])
            session.observe(step=step, **columns)

    def _ids(self, args: Any, samples: list[Any]) -> list[Hashable] | None:
        key = getattr(args, "kaestat_id_key", None)
        if key is None:
            if self.session(args).stateful and any(getattr(sample, "multimodal_inputs", None) for sample in samples):
                raise UnstablePromptIds(
                    "prompts with images or other media have no id: texts alone do not tell them apart. Put an id of "
                    "each row into its metadata and name it with kaestat_id_key."
                )
            return None
        missing = [sample for sample in samples if key not in (sample.metadata or {})]
        if missing:
            raise UnstablePromptIds(
                f"the prompt id is missing: metadata of {len(missing)} samples has no {key!r}. Add it to the "
                "--metadata-key column, or leave kaestat_id_key out to know prompts by their text."
            )
        return [sample.metadata[key] for sample in samples]


def _estimator(text: str | None) -> AdvantageEstimator:
    if text is None:
        raise ValueError(
            'kaestat_method is not set: put a line such as kaestat_method: "kae:bandwidth=10" into the '
            "--custom-config-path file, or make a RewardPostProcess with an estimator of your own."
        )
    method, params = parse_method(text)
    return AdvantageEstimator(method, **params)


def _files(folder: str, rollout_id: int) -> tuple[Path, Path]:
    history, sampler = (Path(folder, name.format(rollout_id)) for name in FILES)
    return history, sampler


advantages = RewardPostProcess()
generate_rollout = advantages.with_step()
observe_all = advantages.observe_all


def __getattr__(name: str) -> Any:
    """``DataSource``, made at first use, since its base class is slime's."""
    if name == "DataSource":
        with SLIME.imports():
            from slime.rollout.data_source import RolloutDataSourceWithBuffer

        return advantages.data_source(RolloutDataSourceWithBuffer)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
