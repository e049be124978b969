"""Pass rates in a verl data file: prompts are named as the run names them. Read without verl."""

import json

import pytest

from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.verl.options import Options
from kaestat.integrations.verl.prompts import prior_of_data_file, read_prompt

ROWS = [
    {
        "data_source": "gsm8k",
        "prompt": [{"role": "user", "content": f"{k}+{k}="}],
        "extra_info": {"split": "train", "index": k, "name": f"q{k}"},
        "prior_mean": mean,
        "prior_count": count,
    }
    for k, (mean, count) in enumerate([(0.25, 8), (1.0, 4), (None, None)])
]


@pytest.fixture(params=["jsonl", "parquet"])
def file(request, tmp_path):
    path = tmp_path / f"train.{request.param}"
    if request.param == "parquet":
        table = pytest.importorskip("pyarrow").Table.from_pylist(ROWS)
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS))
    return str(path)


@pytest.mark.parametrize(
    ("prompt_id", "names"),
    [
        ("auto", [read_prompt("auto", "gsm8k", row["extra_info"], row["prompt"]).id for row in ROWS]),
        ("prompt", [hash_prompt(row["prompt"]) for row in ROWS]),
        ("extra_info.name", ["q0", "q1", "q2"]),
    ],
)
def test_rows_are_named_as_the_run_names_them(file, prompt_id, names):
    prior = prior_of_data_file(file, prompt_id)
    assert prior.prompt_ids == names[:2]
    assert prior.sums["count"].tolist() == [8, 4] and prior.sums["total"].tolist() == [2, 4]


def test_the_estimator_of_the_options_begins_with_it(file):
    options = Options.read("kae", {"kaestat": {"prior": file, "params": {"bandwidth": 10}, "prompt_id": "prompt"}})
    for any_order in (False, True):
        estimator = options.estimator(any_order=any_order)
        first = hash_prompt(ROWS[0]["prompt"])
        assert estimator.predict([first], step=0).value.tolist() == [0.25]
    estimator = Options.read("kae", {"kaestat": {"prior": file, "prior_step": -7}}).estimator()
    assert [each.step for each in estimator.priors] == [-7]


def test_what_is_missing_is_named(tmp_path, file):
    with pytest.raises(ValueError, match="prior: method 'grpo' keeps no history"):
        Options.read("grpo", {"kaestat": {"prior": file}}).estimator()
    with pytest.raises(ValueError, match=r"train\..*extra_info holds index, name, split"):
        prior_of_data_file(file, "extra_info.id")
    rest = tmp_path / "rest.jsonl"
    rest.write_text(json.dumps({"prompt": "2+2="}))
    with pytest.raises(ValueError, match="no column 'prior_mean'"):
        prior_of_data_file(str(rest), "auto")
