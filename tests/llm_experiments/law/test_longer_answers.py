"""Made worlds with longer answers: the same problems, models taught stage by stage, and refused lengths."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from llm_experiments.config import PretrainingConfig, TaskConfig, checked
from llm_experiments.law import bases
from llm_experiments.law.bases import starting_model
from llm_experiments.law.config import CellConfig
from llm_experiments.law.longer_answers import LongerAnswers, longer_answers
from llm_experiments.policies import supervised
from llm_experiments.policies.tiny import tiny_folder
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import open_task, world_examples

SMALL = {"steps": 2, "batch_size": 4, "learning_rate": 1e-3, "width": 8, "layers": 1}
LONGER = {"begin": 1, "steps": 2, "learning_rate": 1e-3}
STAGES = [{"thoughts": 3, "batch_size": 4}, {"thoughts": 6, "batch_size": 2}]


def task(world="habits", **options):
    return TaskConfig(name=world, options={"world": 1, **options})


def test_thoughts_are_said_and_change_no_problem():
    for world, letters in (("habits", 5), ("columns", 9)):
        assert open_task(task(world, thoughts=letters)).problems == open_task(task(world)).problems
        said = [answer.lstrip("abcdefgh") for _, answer in world_examples(task(world, thoughts=letters), 20, seed=0)]
        whole = [answer for _, answer in world_examples(task(world, thoughts=letters), 20, seed=0)]
        assert {len(long) - len(short) for long, short in zip(whole, said, strict=True)} == {letters}
    with pytest.raises(ValueError, match=r"task chains, options .*thoughts"):
        open_task(task("chains", thoughts=3))


def test_each_stage_goes_on_from_the_one_before_and_a_cell_takes_those_it_needs(tmp_path, monkeypatch):
    config = checked(LongerAnswers, "test", LONGER | {"stages": STAGES})
    pretraining = checked(CellConfig, "test", cell()).model.pretraining
    examples = world_examples(task(thoughts=1), 30, seed=0)
    base = tiny_folder(tmp_path, examples, pretraining, 0)
    taught = []
    fit = supervised.fit_answers

    def noted(model, tokenizer, given, teaching, *arguments, **options):
        taught.append((len(given[0][1]) - 1, teaching.batch_size))  # letters before the digit
        fit(model, tokenizer, given, teaching, *arguments, **options)

    monkeypatch.setattr(supervised, "fit_answers", noted)
    monkeypatch.setattr("llm_experiments.law.longer_answers.EXAMPLES", 20)
    settings = {"cache": tmp_path, "device": "cpu", "progress": lambda *_: None}
    assert longer_answers(config, task(thoughts=1), base, **settings) == base
    middle = longer_answers(config, task(thoughts=3), base, **settings)
    assert taught == [(3, 4)]
    last = longer_answers(config, task(thoughts=6), base, **settings)
    assert taught == [(3, 4), (6, 2)], "the first stage was there"
    assert len({base, middle, last}) == 3 and AutoTokenizer.from_pretrained(last).eos_token_id is not None


def test_a_taught_language_model_is_the_studys_own(tmp_path, monkeypatch):
    monkeypatch.setattr(bases, "EXAMPLES", 30)
    short = task("columns", split="train")
    start = tiny_folder(tmp_path, world_examples(short, 30, seed=0), PretrainingConfig(**SMALL), 0)
    teaching = PretrainingConfig(steps=2, batch_size=4)
    config = checked(CellConfig, "test", cell(model={"name": str(start), "chat": False}, task=short, teaching=teaching))
    found = Path(starting_model(config, tmp_path, lambda *_: nullcontext(lambda: None)).name)
    # as llm_experiments.study.run makes the base model with the seed of this world
    examples = world_examples(short, 30, seed=seed_of(1, "examples") % 2**32)
    assert found == supervised.taught_folder(tmp_path, start, examples, teaching, seed_of(1, "model") % 2**32)
    assert (
        found != start and starting_model(config.model_copy(update={"teaching": None}), tmp_path, None) == config.model
    )


def cell(**changes):
    model = {"name": "tiny", "pretraining": SMALL}
    return {"model": model, "task": {"name": "habits", "options": {"thoughts": 6}}, "completions": 4} | changes


def test_wrong_lengths_are_refused_by_name():
    def refused(message, **changes):
        with pytest.raises(ValueError, match=message):
            checked(CellConfig, "test", cell(longer=LONGER | {"stages": STAGES}, **changes))

    assert checked(CellConfig, "test", cell(longer=LONGER | {"stages": STAGES})).longer.lengths == [1, 3, 6]
    refused(
        "task.options.thoughts = 5 is none of longer's: .1, 3, 6.", task={"name": "habits", "options": {"thoughts": 5}}
    )
    refused("longer is for tiny models in the worlds columns, habits", task={"name": "chains"})
    with pytest.raises(ValueError, match=r"must increase, got .1, 6, 3.\."):
        checked(LongerAnswers, "test", LONGER | {"stages": STAGES[::-1]})
