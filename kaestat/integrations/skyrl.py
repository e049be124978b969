"""Baselines in SkyRL: an entry in its advantage-estimator registry, and the trainer that gives it step and prompts.

SkyRL's registry function is called with token-level rewards, a response mask and ``index``, the uids of the rows.
`BaselineTrainer` passes on what is missing. The rest is a `TrainerSession`. These things are particular to SkyRL:

=========  =============================================================================================================
ids        uids, which are rows of the data set, checked against the tokens that trajectories begin with
step       ``global_step``, which starts at 1 and comes back on resume, less 1
versions   not passed: completions count at the step that they are trained in
weights    tokens in the loss, all steps of a trajectory; SkyRL passes on log probabilities, not logits
filter     drops groups unseen, and a warning says so
draw       none: SkyRL has no place for a sampler of one's own
state      in SkyRL's checkpoint folder, which may be on a remote disk, by SkyRL's own reader and writer
padding    copies of row 0 at the end, under the uids pad0, pad1, ...
=========  =============================================================================================================

docs/frameworks/skyrl.md says what was run and what was read, and at which commit.
"""

import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.upstream import Upstream

SKYRL = Upstream("SkyRL", "skyrl", "SkyRL 0.3.0, 0.4.0 and its main branch at commit a956457")
STATE_FILE = "kaestat_state.pt"  # in SkyRL's global_step_N folder


class RegisteredBaseline:
    """The entry in SkyRL's registry, with the arguments of `register`; SkyRL calls it like its advantage estimators.

    SkyRL's process gets a copy of the estimator, because Ray moves registered functions between processes.
    """

    def __init__(self, estimator: AdvantageEstimator, *, weights: str = "none"):
        self.session = TrainerSession(estimator, weights=weights)
        self._expected: dict[str, Any] | None = None

    def expect(self, step: int, prompts: Sequence[Any] | None, weights: np.ndarray | None = None) -> None:
        """Prepare the next call: its 0-based step, and the known trajectories without padding.

        ``prompts`` are the first tokens of each; with None, uids are not checked. ``weights`` are its tokens in the
        loss.
        """
        self._expected = {"step": step, "prompts": prompts, "weights": weights}

    def __call__(self, token_level_rewards: Any, response_mask: Any, index: Any, **_: Any) -> tuple[Any, Any]:
        """Advantages and returns, both a row's advantage at every token of its response, (N, T); SkyRL's signature.

        A trajectory's reward is its sum over tokens, as in SkyRL's own estimators; ``index`` holds uids, with padding
        at the end. Raises a ValueError if a method with a history, or one with weights, runs without `BaselineTrainer`,
        or a uid does not identify a prompt.
        """
        uids, session = [str(uid) for uid in index], self.session
        real = len(uids) - padding_rows(uids)
        expected, self._expected = self._expected, None
        if expected is None and (session.stateful or session.weighs):
            raise ValueError(
                f"method {session.estimator.method!r} with weights={session.weights!r} needs the training step, "
                "checked prompt ids and lengths, which SkyRL's registry does not pass: return "
                "kaestat.integrations.skyrl.BaselineTrainer from your experiment's get_trainer."
            )
        expected = expected or {"step": None, "prompts": None}
        scores = token_level_rewards.sum(dim=-1)
        known = expected.pop("prompts")
        advantages = np.zeros(len(uids))
        advantages[:real] = session.advantages(
            scores[:real].detach().cpu().numpy().astype(np.float64),
            prompts=uids[:real] if known is None else known,
            ids=None if known is None else uids[:real],
            **expected,
        )
        column = scores.new_tensor(advantages).unsqueeze(-1) * response_mask
        return column, column


def register(estimator: AdvantageEstimator, name: str = "kaestat", *, weights: str = "none") -> RegisteredBaseline:
    """Add an estimator to SkyRL's registry; ``trainer.algorithm.advantage_estimator=kaestat`` selects it.

    Call it at the top of the entry-point module, as SkyRL's own examples do, before ``validate_cfg``. Methods without a
    history need nothing else.

    Parameters
    ----------
    estimator : AdvantageEstimator
    name : str
        Must be free in the registry.
    weights : {"none", "length"}
        Weight of each completion: none, or its tokens in the loss, which needs `BaselineTrainer`. A ValueError if the
        estimator cannot use it.
    """
    with SKYRL.imports():
        from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

    baseline = RegisteredBaseline(estimator, weights=weights)
    AdvantageEstimatorRegistry.register(name, baseline)
    return baseline


_SkyRlTrainer: Any = object  # the trainer is its other base class


class BaselineTrainerMixin(_SkyRlTrainer):
    """Mixin for SkyRL's trainers: ``class Mine(BaselineTrainerMixin, RayPPOTrainer)``.

    If the configuration names an estimator that is not from `register`, the trainer behaves as SkyRL's own.

    Attributes
    ----------
    check_prompts : bool
        Whether a uid must always belong to the same prompt tokens. Set it to False in a subclass if environments begin
        each conversation of a row with a different text; then only the data set ensures stable ids.
    """

    check_prompts = True

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        _check_no_sampler(cls)

    @property
    def baseline(self) -> RegisteredBaseline | None:
        """The registered estimator of this process, or None if the configuration names one of SkyRL's."""
        from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry

        found = AdvantageEstimatorRegistry.get(self.cfg.trainer.algorithm.advantage_estimator)
        return found if isinstance(found, RegisteredBaseline) else None

    def convert_to_training_input(self, generator_output: dict[str, Any], uids: list[str]) -> Any:
        """SkyRL's training input; keeps the prompts of the rows for the next call."""
        _check_no_sampler(self)
        self._prompts_of_step = prompts_of(generator_output)
        return super().convert_to_training_input(generator_output, uids)

    def compute_advantages_and_returns(self, data: Any) -> Any:
        """SkyRL's result, with our advantages; logs the baseline's metrics."""
        baseline = self.baseline
        if baseline is None:
            return super().compute_advantages_and_returns(data)
        session = baseline.session
        if session.stateful and (option := _filter(self.cfg.trainer)):
            warnings.warn(
                f"{option} drops groups before the history sees them, which pulls its values towards 1/2; turn it off.",
                stacklevel=2,
            )
        baseline.expect(
            self.global_step - 1,
            self._prompts_of_step if self.check_prompts else None,
            _tokens_in_loss(data, self.cfg.generator.step_wise_trajectories) if session.weighs else None,
        )
        data = super().compute_advantages_and_returns(data)
        self.all_metrics.update(session.metrics)
        return data

    def save_checkpoints(self) -> str:
        """SkyRL's method, after saving our state: SkyRL marks a checkpoint complete at the end."""
        baseline = self.baseline
        if baseline is not None:
            import torch
            from skyrl.backends.skyrl_train.utils.io import io

            folder = os.path.join(self.cfg.trainer.ckpt_path, f"global_step_{self.global_step}")
            io.makedirs(folder, exist_ok=True)
            with io.open_file(os.path.join(folder, STATE_FILE), "wb") as file:
                torch.save(baseline.session.state_dict()["history"], file)
        return super().save_checkpoints()

    def load_checkpoints(self) -> tuple[Any, ...]:
        """SkyRL's result, after loading our state too.

        Raises a LostState if the checkpoint has none for a method with a history.
        """
        loaded = super().load_checkpoints()
        baseline, folder = self.baseline, loaded[1]
        if baseline is None or folder is None:
            return loaded
        import torch
        from skyrl.backends.skyrl_train.utils.io import io

        session, path = baseline.session, os.path.join(folder, STATE_FILE)
        if io.exists(path):
            with io.open_file(path, "rb") as file:
                session.load_state_dict({"history": torch.load(file, map_location="cpu", weights_only=True)})
        elif session.stateful:
            session.lost(path, "start with resume_mode none")
        return loaded


def _check_no_sampler(trainer: Any) -> None:
    if (given := getattr(trainer, "prompt_sampler", None)) is not None:
        raise TypeError(f"prompt_sampler={given!r}: SkyRL has no place for a sampler of prompts; leave it out.")


def _filter(trainer: Any) -> str:
    """The option by which SkyRL drops groups before the estimator sees them; empty without one."""
    if getattr(getattr(trainer.algorithm, "dynamic_sampling", None), "type", None) is not None:
        return "trainer.algorithm.dynamic_sampling"
    fully_async = getattr(trainer, "fully_async", None)
    dropping = getattr(fully_async, "enabled", False) and getattr(fully_async, "sample_full_batch", False)
    return "trainer.fully_async.sample_full_batch" if dropping else ""


def padding_rows(uids: Sequence[str]) -> int:
    """The number of padding rows at the end: those with uids pad0, pad1, ...."""
    last = re.fullmatch(r"pad(\d+)", uids[-1]) if len(uids) else None
    if last is None:
        return 0
    number = int(last[1]) + 1
    return number if list(uids[-number:]) == [f"pad{k}" for k in range(number)] else 0


def prompts_of(generator_output: dict[str, Any]) -> list[Any]:
    """The token ids that each trajectory in a generator's output begins with.

    In step-wise training later rows of a trajectory repeat the conversation so far.
    """
    rows, last_steps = generator_output["prompt_token_ids"], generator_output.get("is_last_step")
    if last_steps is None:
        return list(rows)
    begins = [True, *last_steps[:-1]]
    return [row for row, begin in zip(rows, begins, strict=True) if begin]


def _tokens_in_loss(data: Any, step_wise: bool) -> np.ndarray:
    """Tokens of each trajectory in the loss, all its steps together, padding left out."""
    tokens = data["loss_mask"].sum(dim=-1).cpu().numpy().astype(np.float64)
    tokens = tokens[: len(tokens) - padding_rows(data.metadata["uids"])]
    if not step_wise:
        return tokens
    begins = [True, *data.metadata["is_last_step"][: len(tokens) - 1]]
    return np.bincount(np.cumsum(begins) - 1, tokens)


def __getattr__(name: str) -> Any:
    """``BaselineTrainer``, made at first use, since its base class is SkyRL's."""
    if name == "BaselineTrainer":
        with SKYRL.imports():
            from skyrl.train.trainer import RayPPOTrainer

        return type("BaselineTrainer", (BaselineTrainerMixin, RayPPOTrainer), {"__module__": __name__})
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
