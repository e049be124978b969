"""What earlier steps say of each token's baseline: sums of weighted returns at each place, forgotten exponentially.

`kaestat.credit.token_baseline.optimal_token_baseline` compares a completion with the others of its group. Completions
of the same prompt at earlier steps say something too, the less the older they are: the kernel estimator of `kaestat`
at every token. The kernel is the exponential one, for which two sums at each place hold the whole past.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.checks import MAX_STEP, check_positive, whole_step
from kaestat.core.storage import decode_keys, encode_keys, load_state, save_state
from kaestat.credit.token_baseline import token_sums


class TokenHistory:
    """Past weights and weighted returns of each prompt at each token.

    A completion of ``lag`` steps ago counts ``exp(-lag / bandwidth)`` times one of now. Two numbers are kept for each
    prompt and place: 16 bytes times prompts times tokens of the longest response.

    Parameters
    ----------
    bandwidth : float
        In training steps.

    Raises
    ------
    ValueError
        If the bandwidth is not a positive, finite number.

    Examples
    --------
    Single completions have no group to be compared with, but a past:

    >>> from kaestat.credit.token_baseline import optimal_token_baseline
    >>> history, mask, norms = TokenHistory(10.0), np.ones((1, 2), dtype=bool), np.array([[0.1, 0.3]])
    >>> optimal_token_baseline(np.ones((1, 2)), norms, mask, ["a"])
    array([[0., 0.]])
    >>> history.record(["sum-7"], np.ones((1, 2)), norms, mask, step=0)
    >>> past = history.past(["sum-7"], step=1, length=2)
    >>> optimal_token_baseline(np.zeros((1, 2)), norms, mask, ["a"], without_own=True, past=past)
    array([[1., 1.]])
    """

    def __init__(self, bandwidth: float):
        check_positive("bandwidth", bandwidth)
        self.bandwidth = float(bandwidth)
        self._row: dict[Hashable, int] = {}
        self._step = np.full(1, -1, dtype=np.int64)  # row 0 is that of prompts without a past
        self._sums = np.zeros((2, 1, 0))  # of weights, and of weighted returns; (2, rows, tokens)

    def __len__(self) -> int:
        """Prompts that have a past."""
        return len(self._row)

    def past(self, prompt_ids: Sequence[Hashable], *, step: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums over the completions of earlier steps, as of a step.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            Stable through the run.
        step : int
            The current training step.
        length : int
            Tokens, T.

        Returns
        -------
        mass, carried : ndarray of float64, shape (N, T)
            ``sum K W`` and ``sum K W G`` at each token; 0 where nothing is known.

        Raises
        ------
        ValueError
            If one of the prompts has been recorded at this step or a later one.
        """
        step, rows = whole_step(step), self._rows(prompt_ids)
        self._check_later(prompt_ids, rows, step)
        sums = np.zeros((2, len(rows), length))
        known = min(length, self._sums.shape[-1])
        sums[..., :known] = self._sums[:, rows, :known] * self._decay(rows, step)[:, None]
        return sums[0], sums[1]

    def record(
        self,
        prompt_ids: Sequence[Hashable],
        returns: np.ndarray,
        norms: np.ndarray,
        mask: np.ndarray,
        *,
        step: int,
    ) -> None:
        """Add the completions of one step, all of them in one call.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
        returns, norms, mask : ndarray, shape (N, T)
            As `kaestat.credit.token_baseline.optimal_token_baseline` takes them.
        step : int

        Raises
        ------
        ValueError
            If shapes do not fit, or a prompt has been recorded at this step or a later one; then nothing is recorded.
        """
        step = whole_step(step)
        weight, carried = token_sums(returns, norms, mask)
        if len(prompt_ids) != len(weight):
            raise ValueError(f"prompt_ids has {len(prompt_ids)} entries for {len(weight)} completions; give one each.")
        self._check_later(prompt_ids, self._rows(prompt_ids), step)
        for key in prompt_ids:
            self._row.setdefault(key, len(self._row) + 1)
        self._reserve(len(self._row) + 1, weight.shape[1])
        rows = self._rows(prompt_ids)
        distinct = np.unique(rows)
        self._sums[:, distinct] *= self._decay(distinct, step)[:, None]
        by_row = self._sums[..., : weight.shape[1]].swapaxes(0, 1)
        np.add.at(by_row, rows, np.stack([weight, carried], axis=1))
        self._step[distinct] = step

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain data and NumPy arrays (copies)."""
        used = len(self._row) + 1
        return {
            "bandwidth": self.bandwidth,
            "keys": encode_keys(list(self._row)),
            "step": self._step[1:used].copy(),
            "sums": self._sums[:, 1:used].copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`.

        Raises
        ------
        ValueError
            If it is none, or of another bandwidth; then nothing is changed.
        """
        try:
            keys, bandwidth = decode_keys(state["keys"]), float(state["bandwidth"])
            step, sums = np.asarray(state["step"]), np.asarray(state["sums"], dtype=np.float64)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"state: not a history of tokens ({type(error).__name__}: {error}).") from error
        fits = sums.ndim == 3 and sums.shape[:2] == (2, len(keys)) and step.shape == (len(keys),)
        sound = fits and step.dtype.kind in "iu" and len(set(keys)) == len(keys) and bool(np.isfinite(sums).all())
        if not sound or (sums[0] < 0).any() or not ((step >= 0) & (step <= MAX_STEP)).all():
            raise ValueError("state: the parts of the history of tokens do not fit together; the state was altered.")
        if bandwidth != self.bandwidth:
            raise ValueError(
                f"state: saved with bandwidth {bandwidth:g}, this history has {self.bandwidth:g}; give the same one."
            )
        self._row = {key: row for row, key in enumerate(keys, start=1)}
        self._step = np.concatenate([np.full(1, -1, dtype=np.int64), step.astype(np.int64)])
        self._sums = np.concatenate([np.zeros((2, 1, sums.shape[2])), sums], axis=1)

    def save(self, path: Any) -> None:
        """Write the history to a file, atomically and without pickle."""
        save_state(path, {"token_history": self.state_dict()})

    def load(self, path: Any) -> None:
        """Go on from a file of `save`.

        Raises
        ------
        FileNotFoundError
            If there is none.
        ValueError
            If it is torn, or holds something else.
        """
        state = load_state(path)
        if not isinstance(state.get("token_history"), dict):
            raise ValueError(f"{path}: holds no history of tokens.")
        self.load_state_dict(state["token_history"])

    def _rows(self, prompt_ids: Sequence[Hashable]) -> np.ndarray:
        return np.array([self._row.get(key, 0) for key in prompt_ids], dtype=np.int64)

    def _decay(self, rows: np.ndarray, step: int) -> np.ndarray:
        lag = np.where(rows > 0, step - self._step[rows], 0)
        return np.exp(-lag / self.bandwidth)

    def _check_later(self, prompt_ids: Sequence[Hashable], rows: np.ndarray, step: int) -> None:
        late = np.flatnonzero(self._step[rows] >= step)
        if len(late):
            first = int(late[0])
            raise ValueError(
                f"step: prompt {prompt_ids[first]!r} has been recorded at step {self._step[rows[first]]}, and comes "
                f"again at step {step}; give all completions of a step in one call, and steps in order."
            )

    def _reserve(self, rows: int, tokens: int) -> None:
        have, long = self._sums.shape[1:]
        if rows <= have and tokens <= long:
            return
        rows, tokens = (have if rows <= have else max(rows, 2 * have)), max(tokens, long)
        sums, step = np.zeros((2, rows, tokens)), np.full(rows, -1, dtype=np.int64)
        sums[:, :have, :long], step[:have] = self._sums, self._step
        self._sums, self._step = sums, step
