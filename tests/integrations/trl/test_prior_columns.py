"""Columns of the data set with pass rates from before the run are the estimator's prior, once."""

import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.trl import STATE_FILE
from tests.helpers.tiny_trl import RecordingTrainer, questions, tiny_trainer

COLUMNS = ("prior_mean", "prior_count")


def rated(n_prompts: int = 4):
    rows = questions(n_prompts).add_column("prior_mean", [0.25, 1.0, None, 0.5][:n_prompts])
    return rows.add_column("prior_count", [8, 8, 8, 4][:n_prompts])


def trainer_of(folder, estimator, dataset=None, prompt_id="question_id", **options):
    options = {"prior_columns": COLUMNS, "prompt_id": prompt_id, **options}
    dataset = rated() if dataset is None else dataset
    return tiny_trainer(
        folder,
        estimator,
        dataset=dataset,
        trainer_class=RecordingTrainer,
        trainer_options=options,
        max_steps=1,
        save_strategy="steps",
        save_steps=1,
    )


def test_values_of_the_first_step_are_those_of_the_columns(tmp_path):
    estimator = AdvantageEstimator("spo", rho=1.0, prior_count=1e-6, scale="none")
    trainer = trainer_of(tmp_path, estimator)
    trainer.train()

    known = {"q0": 0.25, "q1": 1.0, "q2": 0.5, "q3": 0.5}
    record = estimator.record
    for key, values in zip(record.packing.keys, record.values, strict=True):
        assert values == pytest.approx(known[key], abs=1e-5)


def test_without_a_column_of_ids_the_prior_is_kept_by_the_prompt(tmp_path):
    estimator = AdvantageEstimator("kae")
    trainer_of(tmp_path, estimator, prompt_id=None)
    (prior,) = estimator.priors
    assert prior.prompt_ids == [hash_prompt(f"{k}+1=") for k in (0, 1, 3)]


def test_a_resumed_run_counts_the_prior_once(tmp_path):
    trainer_of(tmp_path, AdvantageEstimator("kalman")).train()
    resumed, loaded = AdvantageEstimator("kalman"), AdvantageEstimator.load(tmp_path / "checkpoint-1" / STATE_FILE)
    trainer_of(tmp_path / "again", resumed).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    trainer_of(tmp_path / "other", loaded)
    for estimator in (resumed, loaded):
        assert estimator.priors == ()
        assert estimator.history.visits(["q0"], 9).count.sum() == loaded.history.visits(["q0"], 9).count.sum() == 8 + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior_columns": "prior_mean"}, "prior_columns must be the names of two columns"),
        ({"prior_columns": ("rate", "prior_count")}, "prior_columns: the data set has no column 'rate', only prompt"),
        ({"prompt_id": "id"}, "prior_columns: the data set has no column 'id'"),
    ],
)
def test_wrong_columns_are_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        trainer_of(tmp_path, AdvantageEstimator("kae"), **options)
