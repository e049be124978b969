"""`AdvantageEstimator` gets anything: a proper result, or a refusal that leaves the state alone."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import assume, given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.core.storage import FORMAT, VERSION, load_state
from tests.helpers.contract import JUNK, NUMBERS, REFUSED, attempt
from tests.helpers.estimators import PARAMETERS, UNWEIGHTED

FOLDER = tempfile.TemporaryDirectory(prefix="kaestat-fuzz-")
METHODS = st.sampled_from(UNWEIGHTED)
IDS = st.sampled_from(["a", "b", "a", "b", 7, ("c", 1), 1.5, b"d", True, 2**70, "\ud800", ""])
KINDS = st.sampled_from(
    [list, tuple, np.array, pd.Series, *(lambda n, t=t: np.array(n).astype(t) for t in ("f2", "f4", "i8", "u1", "?"))]
)
ARGUMENTS = ("prompt_ids", "rewards", "step", "mask", "stream_ids", "weights", "divergence")


def make(name: str, scale: str | None = None) -> AdvantageEstimator:
    return AdvantageEstimator(name, scale=scale, **PARAMETERS.get(name, {}))


def like_a_trainer(draw, numbers: st.SearchStrategy, size: int) -> Any:
    values = draw(st.lists(numbers, min_size=size, max_size=size))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        try:
            return draw(KINDS)(values)
        except (ValueError, TypeError, OverflowError):  # NumPy cannot make that of it, so nobody passes it
            return values


@st.composite
def calls(draw, number: int) -> dict[str, Any]:
    """The arguments of one step: proper ones, with some that are not."""
    size = draw(st.integers(0, 6))
    plain = st.sampled_from([0.0, 1.0, 1.0, 0.0, 0.25, 0.5, -1.0])
    call: dict[str, Any] = {
        "prompt_ids": draw(st.lists(IDS, min_size=size, max_size=size)),
        "rewards": like_a_trainer(draw, plain | NUMBERS if draw(st.integers(0, 3)) == 0 else plain, size),
        "step": number,
    }
    for name, usual in (("mask", st.booleans()), ("weights", plain), ("divergence", plain), ("stream_ids", IDS)):
        if draw(st.integers(0, 5)) == 0:
            call[name] = like_a_trainer(draw, usual, size) if name != "stream_ids" else [draw(usual)] * size
    if draw(st.integers(0, 3)) == 0:
        call[draw(st.sampled_from(ARGUMENTS))] = draw(JUNK | st.lists(JUNK, min_size=size, max_size=size))
    return call


@st.composite
def trainings(draw) -> list[dict[str, Any]]:
    steps = np.cumsum(draw(st.lists(st.sampled_from([0, 1, 1, 2, 30, -1]), min_size=1, max_size=5))).tolist()
    return [draw(calls(step)) for step in steps]


def check_step(estimator: AdvantageEstimator, call: dict[str, Any]) -> None:
    """One step does what it should: finite advantages of the right shape, or the state as it was."""
    before, assigned = None, estimator.values  # noqa: PD011 - of the estimator, no frame
    try:
        before = estimator.state_dict()
    except TypeError as error:  # an id of a kind that cannot be stored was recorded: legal, until it is to be saved
        assert "cannot be saved" in str(error)
    advantages = attempt(lambda: estimator.step(**call), ARGUMENTS)
    if advantages is REFUSED:
        assert estimator.values is assigned  # noqa: PD011
        assert before is None or estimator.state_dict() == before, "a refused step has changed the state"
        return
    shape = (len(call["prompt_ids"]),)
    for result in (advantages, estimator.values):  # noqa: PD011
        assert result.shape == shape and np.isfinite(result).all() and result.dtype.kind == "f"
    masked = np.zeros(shape, bool) if call.get("mask") is None else ~np.asarray(call["mask"], dtype=bool)
    assert (np.asarray(advantages)[masked] == 0).all()
    assert estimator.last_step == call["step"]


@given(name=METHODS, scale=st.sampled_from([None, None, "none", "trl_batch", "batch_std"]), training=trainings())
def test_any_step_gives_finite_advantages_or_leaves_the_state_alone(name, scale, training):
    estimator = make(name, scale)
    for call in training:
        check_step(estimator, call)


def state_file(name: str) -> bytes:
    path = Path(FOLDER.name) / "whole"
    estimator = make(name)
    for step in range(3):
        estimator.step(["a", "a", 7], [1.0, 0.0, 0.5], step)
    estimator.save(path)
    return path.read_bytes()


WHOLE = {name: state_file(name) for name in ("kae", "ebpo", "kalman")}


@st.composite
def state_files(draw) -> bytes:
    """A state file with some bytes altered; half the time with a checksum that fits, as nobody but a fiend would."""
    import hashlib

    content = bytearray(WHOLE[draw(st.sampled_from(sorted(WHOLE)))])
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.sampled_from([0, 1, 8, 500]))] = draw(st.binary(max_size=8))
    if draw(st.booleans()):
        rest = bytes(content).partition(b"\n")[2]
        return f"{FORMAT} {VERSION} {hashlib.sha256(rest).hexdigest()}\n".encode() + rest
    return bytes(content)


@given(content=state_files())
def test_any_state_file_is_a_state_or_refused_by_name(content):
    path = Path(FOLDER.name) / "state"
    path.write_bytes(content)
    attempt(lambda: load_state(path), [str(path)])
    estimator = attempt(lambda: AdvantageEstimator.load(path), [str(path), "state"])
    if estimator is not REFUSED:
        step = max(estimator.last_step + 1, 9)
        assume(step < 2**31 - 1)
        check_step(estimator, {"prompt_ids": ["a", "b"], "rewards": [1.0, 0.0], "step": step})
