"""JSON files of per-prompt accuracy sequences."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import read_log
from kaestat.logs.columns import LogWarning

REAL = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"


def write(folder: Path, content) -> Path:
    path = folder / "acc.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def refusal(path: Path, **hints) -> str:
    with pytest.raises(ValueError) as caught:
        read_log(path, **hints)
    return str(caught.value)


def test_each_visit_has_its_successes_and_the_visit_index_is_the_time(tmp_path):
    log = read_log(write(tmp_path, {"x": [0.25, 1.0], "y": [0.0], "never sampled": []}))
    assert log.time_axis == "visit" and log.prompts == ["x", "y"]
    assert log.group_sizes.tolist() == [4, 4, 4]
    assert log.frame.groupby(["prompt", "step"])["reward"].sum().to_dict() == {(0, 0): 1, (0, 1): 4, (1, 0): 0}
    assert set(log.frame["reward"]) == {0.0, 1.0}


@given(
    size=st.integers(2, 64),
    counts=st.lists(st.lists(st.integers(0, 64), max_size=5), min_size=1, max_size=5),
    digits=st.sampled_from([8, 17]),
)
def test_any_group_size_is_inferred_and_all_successes_come_back(tmp_path_factory, size, counts, digits):
    counts = [*[[min(k, size) for k in row] for row in counts], [1]]  # one success of G pins G down
    content = {f"p{i}": [round(k / size, digits) for k in row] for i, row in enumerate(counts)}
    log = read_log(write(tmp_path_factory.mktemp("acc"), content))
    assert set(log.group_sizes) == {size}
    totals = [log.prompt_units.total[log.prompt_units.visit_prompt == i] for i in range(len(log.prompts))]
    assert [total.tolist() for total in totals] == [row for row in counts if row]


def test_the_order_inside_groups_is_random_but_the_same_at_every_reading(tmp_path):
    path = write(tmp_path, {str(i): [0.5] * 50 for i in range(20)})
    first = read_log(path, group_size=4).frame["reward"].to_numpy().reshape(-1, 4)
    assert (read_log(path, group_size=4).frame["reward"].to_numpy().reshape(-1, 4) == first).all()
    assert len(np.unique(first, axis=0)) == 6  # every order of two successes in four occurs
    assert np.abs(first.mean(axis=0) - 0.5).max() < 0.1  # and no place is favoured (sd 0.016)


def test_a_given_group_size_allows_rounded_accuracies(tmp_path):
    log = read_log(write(tmp_path, {"x": [0.33, 0.667, 1]}), group_size=3)
    assert log.prompt_units.total.tolist() == [1, 2, 3]


def test_accuracies_of_0_and_1_alone_leave_the_group_size_open(tmp_path):
    path = write(tmp_path, {"x": [0, 1, 1]})
    assert "any group size fits" in refusal(path)
    assert read_log(path, group_size=1).frame["reward"].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"x": [0.12345]}, "no group size up to 64"),
        ({"x": [0.5], "y": [0.5, 1.5]}, "prompt 'y', visit 1: an accuracy must be a number in [0, 1], got 1.5"),
        ({"x": [0.5, None]}, "got None. Leave such visits out by missing='drop'"),
        ({"x": [[0, 1], [1, 0]]}, "got [0.0, 1.0]. Write one completion per line"),
        ('{"x": [0.5], "x": [0.25]}', "key 'x' comes twice"),
        ('{"x": [0.5, 0.2', "line 1, column 16: is not complete JSON"),
        ('{"x": [0.5]}\n{"y": [0.5]}\n', "line 2, column 1: is not complete JSON"),
        ({"x": 0.5}, "must be a JSON object of accuracy lists"),
        ({}, "holds no accuracies"),
    ],
)
def test_bad_content_is_refused(tmp_path, content, words):
    path = write(tmp_path, content)
    message = refusal(path)
    assert words in message and str(path) in message


def test_visits_without_an_accuracy_are_dropped_if_wanted_and_counted(tmp_path):
    with pytest.warns(LogWarning, match="2 visits without an accuracy are left out"):
        log = read_log(write(tmp_path, {"x": [0.5, None, 0.25], "y": [None, 1.0]}), missing="drop")
    assert log.ungraded == 2 and log.prompt_units.counts.tolist() == [4, 4, 4]


@pytest.mark.skipif(not REAL.is_file(), reason="KAESTAT_DATA does not name a folder with acc_step_500_dev.json")
def test_the_real_run_has_its_known_size():
    log = read_log(REAL)
    assert (len(log.frame), len(log.prompts), log.n_visits) == (266_088, 629, 33_261)
    assert set(log.group_sizes) == {8} and log.time_axis == "visit"
    accuracies = json.loads(REAL.read_text())
    means = log.frame.groupby("prompt")["reward"].mean()
    expected = [np.mean(accuracies[prompt]) for prompt in log.prompts]
    np.testing.assert_allclose(means.to_numpy(), expected, atol=1e-12)
