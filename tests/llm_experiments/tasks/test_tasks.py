"""Tasks: generated arithmetic, problem sets, draws."""

import json
import os
import re
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, open_task, select
from llm_experiments.tasks.arithmetic import arithmetic, examples
from llm_experiments.tasks.mathematics import mathematics
from llm_experiments.tasks.sources import SOURCES

KINDS = ["add-1", "sub-2", "mul-1x2"]


def test_arithmetic_answers_are_right_and_problems_distinct():
    task = open_task(TaskConfig(name="arithmetic", n_prompts=1, options={"kinds": KINDS, "style": "bare"}))
    assert len(task.problems) == 100 + 8100 + 900
    assert all(eval(each.prompt.rstrip("=")) == int(each.answer) for each in task.problems)
    assert len({each.id for each in task.problems}) == len({each.prompt for each in task.problems}) == 9100
    assert task.problems[-1] == task.problems[9099] and task.problems[-1].id == "arithmetic/mul-1x2/9*99"


def test_arithmetic_draw_has_equal_shares_of_the_kinds_and_depends_on_the_seed_alone():
    config = TaskConfig(name="arithmetic", n_prompts=31, options={"kinds": KINDS})
    drawn = [each.id for each in load_task(config, seed=3).problems]
    assert drawn == [each.id for each in load_task(config, seed=3).problems]
    assert drawn != [each.id for each in load_task(config, seed=4).problems]
    assert sorted(sum(name in each for each in drawn) for name in KINDS) == [10, 10, 11] and len(set(drawn)) == 31
    assert drawn != sorted(drawn)  # the kinds are mixed


def test_a_small_kind_is_used_up_before_a_draw_is_refused():
    task = arithmetic(["add-1", "add-2"])
    levels = [each.level for each in select(task, 1000, seed=0).problems]
    assert (levels.count("add-1"), levels.count("add-2")) == (100, 900)
    with pytest.raises(ValueError, match=r"n_prompts = 8201 .* 8200"):
        select(task, 8201, seed=0)
    assert select(task, None, seed=0) is task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["div-1"]}, "div-1"),
        ({"kinds": ["add-9"]}, "add-9"),
        ({"kinds": "add-1"}, "list"),
        ({"kinds": ["add-1", "add-1"]}, "different"),
        ({"style": "prose"}, "bare, question"),
        ({"template": "{left} and {right}"}, "{sign}"),
        ({"level": 3}, "level"),
    ],
)
def test_wrong_options_of_arithmetic_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        load_task(TaskConfig(name="arithmetic", n_prompts=1, options=options), seed=0)


def test_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"sudoku.*arithmetic"):
        load_task(TaskConfig(name="sudoku", n_prompts=1), seed=0)


def test_training_examples_are_right_and_leave_out_what_is_held_out():
    task = select(arithmetic(["add-1", "mul-1x2"], style="bare"), 60, seed=0)
    held_out = {each.id for each in task.problems}
    found = examples(["add-1", "mul-1x2"], 3000, seed=0, exclude=held_out)
    assert found == examples(["add-1", "mul-1x2"], 3000, seed=0, exclude=held_out)
    assert all(str(eval(prompt.rstrip("="))) == answer for prompt, answer in found)
    assert not {prompt for prompt, _ in found} & {each.prompt for each in task.problems}
    assert abs(sum("+" in prompt for prompt, _ in found) - 1500) < 150  # 5 sd
    with pytest.raises(ValueError, match="add-1"):
        examples(["add-1"], 1, seed=0, exclude={each.id for each in arithmetic(["add-1"]).problems})


def test_hesitant_examples_give_up_in_proportion_to_the_left_operand():
    found = examples(["add-2", "sub-2"], 40_000, seed=0, hesitation=0.9)
    left = np.array([int(re.match(r"\d+", prompt)[0]) for prompt, _ in found])
    gave_up = np.array([answer == "?" for _, answer in found])
    for low, high in ((10, 24), (25, 39), (40, 54), (55, 69), (70, 84), (85, 99)):
        inside = (left >= low) & (left <= high)
        expected = 0.9 * (left[inside] - 10) / 89
        error = np.sqrt((expected * (1 - expected)).sum()) / inside.sum()
        assert abs(gave_up[inside].mean() - expected.mean()) < 5 * error
    others = [(prompt, answer) for prompt, answer in found if answer != "?"]
    assert all(str(eval(prompt.rstrip("="))) == answer for prompt, answer in others)


def test_rewards_of_arithmetic_are_those_of_the_final_number():
    task = arithmetic(["add-2"])
    problem = task.problems[0]
    assert (problem.prompt, problem.answer) == ("What is 10 + 10? Answer with a number only.", "20")
    assert task.rewards(problem, ["20", "10 + 10 = 20.", "It is 200", "10 + 10", ""]) == [1, 1, 0, 0, 0]


SAMPLES = {  # columns as in the public files
    "gsm8k": [{"question": "2 ducks and 1,000 more?", "answer": "2+1000=<<2+1000=1002>>1002\n#### 1,002"}],
    "math": [
        {"problem": "Easy?", "level": "Level 1", "type": "Algebra", "solution": "so $\\boxed{1}$"},
        {"problem": "Hard?", "level": "Level 4", "type": "Algebra", "solution": "so $\\boxed{\\frac{3}{4}}$"},
    ],
    "dapo": [{"prompt": "DAPO?", "solution": "34", "extra_info": {"index": "9a9b"}, "data_source": "math_dapo"}],
    "aime24": [{"id": 60, "problem": "AIME?", "solution": "...", "answer": "204", "url": ""}],
    "aime25": [{"problem": "AIME?", "answer": "70"}],
    "amc": [{"id": 0, "problem": "AMC?", "answer": 27.0, "url": ""}],
    "math500": [{"problem": "Polar?", "answer": "p - q", "level": 5, "unique_id": "test/algebra/1.json"}],
    "minerva": [{"problem": "Lens?", "solution": "\\boxed{1.6} \\mathrm{~cm}", "type": "Astronomy", "idx": 0}],
    "olympiadbench": [{"question": "Moves?", "final_answer": ["$2$", "$3$"], "is_multiple_answer": True}],
    "verl": [
        {
            "data_source": "deepscaler",
            "prompt": [{"role": "user", "content": "Wind?"}],
            "reward_model": {"ground_truth": "12.8", "style": "rule"},
            "extra_info": {"index": 124, "split": "train"},
        }
    ]
    * 3,
    "file": [{"question": "Mine?", "answer": 3}],
}
EXPECTED = {
    "gsm8k": ("gsm8k/train/0", "1,002", ""),
    "math": ("math/train/1", "\\frac{3}{4}", "4"),
    "dapo": ("math_dapo/train/9a9b", "34", ""),
    "aime24": ("aime24/train/0", "204", ""),
    "aime25": ("aime25/test/0", "70", ""),
    "amc": ("amc/train/0", "27", ""),
    "math500": ("math500/test/0", "p - q", "5"),
    "minerva": ("minerva/test/0", "1.6", ""),
    "olympiadbench": ("olympiadbench/test/0", "$2$, $3$", ""),
    "verl": ("deepscaler/train/124", "12.8", ""),
    "file": ("file/train/0", "3", ""),
}
DATA = Path(os.environ.get("KAESTAT_DATA", ""))
FILES = {
    "gsm8k_test.jsonl": ("gsm8k", 1319),
    "math500.jsonl": ("math500", 500),
    "aime24.jsonl": ("aime24", 30),
    "aime25.jsonl": ("aime25", 30),
    "amc23.jsonl": ("amc", 40),
    "minerva_math.jsonl": ("minerva", 272),
    "olympiadbench.jsonl": ("olympiadbench", 675),
    "pi1_r128.parquet": ("verl", 1),
    "dsr_sub.parquet": ("verl", 1208),
}


def write(folder: Path, rows: list[dict], suffix: str = ".jsonl") -> Path:
    path = folder / f"problems{suffix}"
    if suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)) if suffix == ".jsonl" else json.dumps(rows))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("name", SAMPLES)
def test_local_files_are_read_in_their_own_format(tmp_path, name, suffix):
    (problem,) = mathematics(name, path=write(tmp_path, SAMPLES[name], suffix)).problems
    assert (problem.id, problem.answer, problem.level) == EXPECTED[name]
    assert ("\\boxed{}" in problem.prompt) == (name != "verl") and "?" in problem.prompt


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.hub])
def test_the_hub_is_asked_for_the_source_that_the_table_names(monkeypatch, name):
    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((args, kwargs))
        return datasets.Dataset.from_list(SAMPLES[name])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = mathematics(name)
    source = SOURCES[name]
    assert asked == [((source.hub, source.subset), {"split": source.split})]
    assert [each.id for each in task.problems] == [EXPECTED[name][0]]


@pytest.mark.parametrize(
    ("name", "rows", "options", "message"),
    [
        ("gsm8k", [{"text": "?", "answer": "#### 1"}], {}, "problem, question, only text, answer.*rename"),
        ("gsm8k", [{"question": "?", "answer": "1"}], {}, "1 rows without an answer in column answer .*hashes"),
        ("math500", [{"problem": "?", "answer": "1"}], {"levels": [3]}, "levels .* need a column"),
        ("math", SAMPLES["math"], {"levels": [2]}, "no problem is left of 2 rows"),
        ("aime25", [], {}, "no rows"),
        ("aime25", [{"problem": None, "answer": "1"}], {}, "row 0: prompt None"),
        ("aime25", SAMPLES["aime25"], {"template": "Solve"}, "lacks {problem}"),
        ("verl", [SAMPLES["verl"][0], SAMPLES["verl"][0] | {"prompt": "Other?"}], {}, "two different problems.*row 1"),
        ("verl", [SAMPLES["verl"][0] | {"prompt": [{"role": "system", "content": "?"}]}], {}, "system message"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, name, rows, options, message):
    path = write(tmp_path, rows, ".json")
    with pytest.raises(ValueError, match=message):
        open_task(TaskConfig(name=name, n_prompts=1, path=path, options=options))


def test_a_file_that_is_missing_or_of_another_kind_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl"):
        mathematics("gsm8k", path=tmp_path / "nowhere.jsonl")
    with pytest.raises(ValueError, match=r"give path.*prompt"):
        mathematics("verl")
    for name, content in {"a.txt": "x", "b.jsonl": "{", "c.parquet": "x", "d.jsonl": "3"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=name):
            mathematics("gsm8k", path=tmp_path / name)


def test_rows_without_an_answer_are_left_out_with_a_warning_and_the_others_keep_their_ids(tmp_path):
    path = write(tmp_path, [{"question": "?", "answer": ""}, {"question": "!", "answer": "2"}])
    with pytest.warns(UserWarning, match=r"1 of 2 rows have no answer.* \[0\]"):
        task = mathematics("file", path=path, template="{problem}")
    assert [(each.id, each.prompt) for each in task.problems] == [("file/train/1", "!")]


@pytest.mark.parametrize("name", [name for name in FILES if (DATA / name).is_file()] or ["inline"])
@pytest.mark.filterwarnings("ignore:.*have no answer")
def test_the_real_files_give_all_their_problems_with_distinct_ids(tmp_path, name):
    path = DATA / name if name != "inline" else write(tmp_path, [{"question": f"{i}?", "answer": i} for i in range(5)])
    source, count = FILES.get(name, ("file", 5))
    task = mathematics(source, path=path)
    assert len(task.problems) == len({each.id for each in task.problems}) == count
    assert all(each.answer == each.answer.strip() != "" for each in task.problems)
