"""Priors from rates, rewards, completions, tables and files; what is not a prior is refused by name."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import Prior
from kaestat.history.prior import as_prior


def sums_of(prior: Prior) -> dict[str, list[float]]:
    return {name: column.tolist() for name, column in prior.sums.items()}


@given(count=st.integers(1, 400), share=st.floats(0, 1), low=st.floats(-3, 3), width=st.floats(0.1, 5))
def test_rates_are_those_of_rewards_of_the_two_kinds(count, share, low, width):
    high, above = low + width, round(share * count)
    rewards = [high] * above + [low] * (count - above)

    prior = Prior.of_rates(["a"], [np.mean(rewards)], [count], low=low, high=high)

    expected = Prior.of_rewards({"a": rewards})
    for name, column in expected.sums.items():
        np.testing.assert_allclose(prior.sums[name], column, rtol=1e-9, atol=1e-9)


@given(count=st.integers(1, 10_000), data=st.data())
def test_a_share_of_successes_is_their_number_to_the_last_bit(count, data):
    successes = data.draw(st.integers(0, count))
    assert Prior.of_mapping({"a": (successes / count, count)}).sums["total"].tolist() == [successes]


def test_a_rate_need_not_be_a_share_of_its_count():
    assert sums_of(Prior.of_rates(["a"], [0.3], [4])) == {"count": [4.0], "total": [1.2], "total_sq": [1.2]}


def test_prompts_without_completions_are_left_out():
    prior = Prior.of_rates(["a", "b"], [0.5, float("nan")], [2, 0])
    assert prior.prompt_ids == ["a"] and len(prior) == 1
    assert len(Prior.of_mapping({})) == 0


def test_completions_of_a_prompt_are_added_up_whatever_their_order():
    prior = Prior.of_samples(["a", "b", "a"], [1.0, 0.5, 0.0], weights=[2.0, 1.0, 4.0], step=3)
    assert (prior.prompt_ids, prior.step, prior.weighted) == (["a", "b"], 3, True)
    assert sums_of(prior) == {
        "count": [2.0, 1.0],
        "total": [1.0, 0.5],
        "total_sq": [1.0, 0.25],
        "weight": [6.0, 1.0],
        "weight_sq": [20.0, 1.0],
        "weighted_total": [2.0, 0.5],
        "weighted_total_sq": [2.0, 0.25],
        "weight_sq_total": [4.0, 0.5],
        "weight_sq_total_sq": [4.0, 0.25],
    }


def test_ids_may_be_pairs_and_rewards_ragged():
    prior = Prior.of_rewards({("math", 1): [1, 0, 1], ("math", 2): np.array([1.0]), "none": []})
    assert prior.prompt_ids == [("math", 1), ("math", 2)]
    assert prior.sums["count"].tolist() == [3.0, 1.0]


TABLE = pd.DataFrame(
    {"prompt_id": [7, 8, 9], "prior_mean": [0.25, None, 1.0], "prior_count": [8, 8, 4], "text": ["x", "y", "z"]}
)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_and_tables_hold_the_same_prior_and_rows_without_a_mean_none(kind, tmp_path):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"prior.{kind}"
    {
        "csv": lambda: TABLE.to_csv(path, index=False),
        "jsonl": lambda: TABLE.to_json(path, orient="records", lines=True),
        "parquet": lambda: TABLE.to_parquet(path),
    }[kind]()

    for prior in (Prior.read(path), as_prior(path), as_prior(str(path)), Prior.of_table(TABLE)):
        assert prior.prompt_ids == [7, 9]
        assert sums_of(prior) == {"count": [8.0, 4.0], "total": [2.0, 4.0], "total_sq": [2.0, 4.0]}


def test_text_ids_of_json_lines_stay_text(tmp_path):
    path = tmp_path / "prior.jsonl"
    path.write_text('{"prompt_id": "007", "prior_mean": 0.5, "prior_count": 2}\n')
    assert Prior.read(path).prompt_ids == ["007"]


def test_columns_have_the_names_that_are_given():
    table = {"id": ["a"], "rate": [0.5], "n": [2]}
    assert Prior.of_table(table, prompt="id", mean="rate", count="n").prompt_ids == ["a"]


def test_data_sets_of_hugging_face_are_tables():
    datasets = pytest.importorskip("datasets")
    rows = {"prompt_id": ["a", "b"], "prior_mean": [0.5, None], "prior_count": [2, None]}
    assert Prior.of_table(datasets.Dataset.from_dict(rows)).prompt_ids == ["a"]


@pytest.mark.parametrize(
    "prior",
    [
        Prior.of_samples(["a", ("b", 2), 3], [1.0, 0.25, -1.0], step=-7),
        Prior.of_samples([4, 5], [1.0, 0.0], weights=[1.0, 2.0]),
        Prior.of_mapping({}),
    ],
    ids=repr,
)
def test_plain_data_bring_back_the_prior(prior):
    again = Prior.of_plain(prior.plain())
    assert (again.prompt_ids, again.step, sums_of(again)) == (prior.prompt_ids, prior.step, sums_of(prior))


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_ids": ["a", "b"]},
        {"sums": {"count": np.ones(1)}},
        {"sums": {name: np.array([np.inf]) for name in ("count", "total", "total_sq")}},
        {"sums": {name: np.array([0.5]) for name in ("count", "total", "total_sq")}},
        {"step": 0.5},
    ],
)
def test_corrupted_states_are_refused(change):
    with pytest.raises(ValueError, match="state: "):
        Prior.of_plain(Prior.of_mapping({"a": (0.5, 2)}).plain() | change)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Prior.of_rates(["a", "a"], [0, 1], [1, 1]), ValueError, "prompt_ids: 'a' comes twice; add up"),
        (lambda: Prior.of_rates(["a"], [0, 1], [1]), ValueError, "means has 2 entries for 1 prompts"),
        (lambda: Prior.of_rates(["a"], [1.5], [2]), ValueError, r"means: prompt 'a' has 1.5; it must lie in \[0, 1\]"),
        (lambda: Prior.of_rates(["a"], [0.5], [1.5]), ValueError, "counts: prompt 'a' has 1.5; it must be a whole"),
        (lambda: Prior.of_rates(["a"], [0.5], [1], low=1, high=1), ValueError, "low must be less than high"),
        (lambda: Prior.of_rates(["a"], [0.5], [1], step=0.5), ValueError, "step must be a whole number from"),
        (lambda: Prior.of_mapping({"a": 0.5}), ValueError, "the entry of 'a' must be a pair"),
        (lambda: Prior.of_rewards({"a": [float("inf")]}), ValueError, "rewards must be finite"),
        (lambda: Prior.of_samples(["a"], [1.0], weights=[-1.0]), ValueError, "weights must be finite and non-neg"),
        (lambda: Prior.of_table({"prompt_id": []}), ValueError, "prior: no column 'prior_mean' among prompt_id"),
        (lambda: Prior.of_table(3), TypeError, "table must give columns by name, got int"),
        (
            lambda: Prior.of_table({"prompt_id": ["a"], "prior_mean": ["x"], "prior_count": [1]}),
            TypeError,
            "prior: column 'prior_mean' must hold numbers",
        ),
        (lambda: Prior.read("prior.xlsx"), ValueError, "a prior is kept in .csv, .jsonl or .parquet"),
        (lambda: Prior.read("nowhere.csv"), FileNotFoundError, "nowhere.csv"),
        (lambda: as_prior([("a", 0.5, 1)]), TypeError, "prior must be a kaestat.Prior, a mapping"),
    ],
)
def test_what_is_no_prior_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_errors_of_files_name_them(tmp_path):
    path = tmp_path / "prior.csv"
    path.write_text("prompt_id,prior_mean,prior_count\na,2,1\n")
    with pytest.raises(ValueError, match=r"prior\.csv: means: prompt 'a' has 2"):
        Prior.read(path)
    path.write_text("")
    with pytest.raises(ValueError, match=r"prior\.csv: cannot be read"):
        Prior.read(path)
