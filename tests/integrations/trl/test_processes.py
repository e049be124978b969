"""Two ``accelerate`` processes on the CPU: one history, one set of advantages, whatever the split of the rows."""

from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from tests.helpers.processes import TWO, run_module

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What both processes wrote."""
    folder = tmp_path_factory.mktemp("ranks")
    run_module(*TWO, "tests.helpers.two_ranks", folder)
    return folder


def saw(folder: Path, name: str) -> list[np.lib.npyio.NpzFile]:
    return [np.load(folder / f"{name}-{rank}.npz") for rank in (0, 1)]


def test_there_really_are_two_processes(folder):
    first, second = saw(folder, "whole")
    assert first["processes"] == second["processes"] == 2
    assert first["prompts"].shape == second["prompts"].shape == (5, 6)
    assert set(first["prompts"][0]) & set(second["prompts"][0])  # a group on both
    assert set(first["prompts"][0]) != set(second["prompts"][0])


@pytest.mark.parametrize("name", ["whole", "resumed", "weighed"])
def test_both_processes_end_with_the_same_state(name, folder):
    first, second = ((folder / f"{name}-{rank}.state").read_bytes() for rank in (0, 1))
    assert first == second
    assert len(AdvantageEstimator.load(folder / f"{name}-0.state").history) == 6


def test_advantages_are_those_of_one_process_with_all_rows(folder):
    first, second = saw(folder, "whole")
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    for step in range(5):
        np.testing.assert_array_equal(first["rewards"][step], second["rewards"][step])
        prompts, lengths, found = (
            np.concatenate([first[column][step], second[column][step]])
            for column in ("prompts", "lengths", "advantages")
        )
        rewards = first["rewards"][step].sum(axis=1).astype(float)
        assert len(set(lengths.tolist())) > 1
        expected = plain.step(prompts.tolist(), rewards, step, weights=lengths.astype(float))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_norms_in_adams_units_are_those_of_all_processes_completions(folder):
    first, second = (np.load(folder / f"weights-{rank}.npy") for rank in (0, 1))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (5, 12) and first.std(axis=1).min() > 0.01
    np.testing.assert_allclose(first.mean(axis=1), 1.0, rtol=1e-5)
    plain, (one, other) = AdvantageEstimator("kae", bandwidth=5.0), saw(folder, "weighed")
    for step in range(5):
        prompts, found = (np.concatenate([one[name][step], other[name][step]]) for name in ("prompts", "advantages"))
        rewards = one["rewards"][step].sum(axis=1).astype(float)
        expected = plain.step(prompts.tolist(), rewards, step, weights=first[step].astype(float))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_resume_goes_on_with_the_same_prompts_and_history(folder):
    for whole, resumed in zip(saw(folder, "whole"), saw(folder, "resumed"), strict=True):
        np.testing.assert_array_equal(resumed["prompts"], whole["prompts"][3:])
        np.testing.assert_array_equal(resumed["rewards"], whole["rewards"][3:])
        np.testing.assert_array_equal(resumed["advantages"], whole["advantages"][3:])
    assert (folder / "whole-0.state").read_bytes() == (folder / "resumed-0.state").read_bytes()
