"""TRL's table of completions, as our trainer writes it, read back: which of what was trained on is in it."""

from collections import Counter

import pytest

from kaestat import AdvantageEstimator, read_log
from tests.helpers.log_warnings import warned
from tests.helpers.tiny_trl import questions, train_tiny

EVALUATIONS = {"eval_dataset": questions(2), "eval_strategy": "steps", "eval_steps": 2}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, []),
        (
            EVALUATIONS | {"per_device_eval_batch_size": 4, "num_iterations": 3},
            ["completions of evaluations", "generation"],
        ),
        (
            {"steps_per_generation": 2, "gradient_accumulation_steps": 4, "per_device_train_batch_size": 4},
            ["generations from 1 to 7 missing or not complete"],
        ),
    ],
    ids=["plain", "evaluations of fewer completions", "more accumulation"],
)
def test_what_is_read_was_trained_on_and_what_is_missing_is_said(tmp_path, config, words):
    trainer = train_tiny(
        tmp_path,
        AdvantageEstimator("kae", bandwidth=5.0),
        n_prompts=8,
        trainer_options={"prompt_id": "question_id"},
        log_completions=True,
        **config,
    )
    with warned() as texts:
        log = read_log(tmp_path)
    made = [
        Counter(zip(batch["prompts"], batch["rewards"][:, 0].tolist(), strict=True))
        for batch in trainer.batches
        if batch["training"]
    ]
    read = [
        Counter(zip((log.prompts[code] for code in rows["prompt"]), rows["reward"], strict=True))
        for _, rows in log.frame.groupby("step")
    ]
    left = iter(made)
    assert all(any(not found - batch for batch in left) for found in read)  # each is in a later one than the one before
    assert len(texts) == len(words) and all(word in text for word, text in zip(words, texts, strict=True))
    if not words:
        assert read == made
