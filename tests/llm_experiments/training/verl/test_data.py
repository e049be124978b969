"""verl's data: the problems and prompts of the runs on TRL, and the same rewards, whatever the completion."""

import pyarrow as pa
import pytest
from pyarrow import parquet

from llm_experiments.config import TaskConfig, checked
from llm_experiments.policies.presets import STEP_BY_STEP
from llm_experiments.seeding import seed_of
from llm_experiments.tasks import MADE_WORLDS, load_task
from llm_experiments.tasks.local_files import with_local_file
from llm_experiments.training.config import RunConfig
from llm_experiments.training.trl.data import training_set
from llm_experiments.training.verl.command import ID_FIELD
from llm_experiments.training.verl.data import N_STAND_IN, grader, prepare_data
from llm_experiments.training.verl.reward import compute_score
from tests.helpers.verl_runs import write_rows

LEVELS = ("Level 3", "Level 5", "Level 1")
GSM8K = [{"question": f"What is {k} + 1?", "answer": f"It is {k + 1}.\n#### {k + 1:,}"} for k in range(995, 1007)]
MATH = [
    {"problem": f"Halve {k}.", "solution": rf"It is $\boxed{{\frac{{{k}}}{{2}}}}$.", "level": LEVELS[k % 3]}
    for k in range(1, 19, 2)
]
COPIED = [
    {
        "data_source": "math",
        "prompt": [{"role": "user", "content": "What is 1/2 + 1/2?"}],
        "reward_model": {"ground_truth": "1"},
        "extra_info": {"split": "train", "index": 5},
    }
] * 3

TEXTS = [
    "",
    "The answer is 1,000.",
    r"So \boxed{1000}",
    r"\boxed{996} or \boxed{999}",
    "#### 1000",
    "1000.0",
    "1e3",
    r"\boxed{\frac{1}{2}}",
    r"\boxed{0.5}",
    "half: $1/2$",
    r"\boxed{\dfrac{5}{2}}",
    "2.5",
    r"\boxed{2.5",
    "<answer>3</answer>",
    "nothing 🦆",
]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    write_rows(folder / "gsm8k_train.jsonl", GSM8K)
    write_rows(folder / "gsm8k_test.jsonl", [*GSM8K[:3], {"question": "Other?", "answer": "#### 4"}])
    write_rows(folder / "math_train.jsonl", MATH)
    parquet.write_table(pa.Table.from_pylist(COPIED), folder / "copied.parquet")
    return folder


def config(task, *, prompts=1, copies=1, **changes):
    content = {
        "name": "small",
        "model": {"name": "qwen2.5-math-1.5b", "dtype": "bfloat16"},
        "task": task,
        "sampling": {"engine": "vllm", "max_new_tokens": 64},
        "updates": {"steps": 20, "prompts": prompts, "group_size": 1, "copies": copies, "micro_batch": 1},
    }
    return checked(RunConfig, "small", content | changes)


def prepared(run, folder, source):
    files = prepare_data(run, folder, data=source)
    return parquet.read_table(files.train).to_pylist(), parquet.read_table(files.test).to_pylist(), files


TASKS = [
    {"name": "gsm8k"},
    {"name": "math"},
    {"name": "gsm8k", "n_prompts": 5},
    {"name": "verl", "path": "copied.parquet"},
    {"name": "arithmetic", "n_prompts": 20, "options": {"kinds": ["add-1", "mul-1x2"]}},
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: "-".join(map(str, task.values())).replace("/", ""))
def test_problems_and_prompts_are_those_of_a_run_on_trl(task, source, tmp_path):
    run = config(task, seed=3)
    rows, _, files = prepared(run, tmp_path / "out", source)
    problems = load_task(with_local_file(run.task, source), seed=seed_of(3, "task")).problems
    on_trl = training_set(list(problems), chat=True, system=STEP_BY_STEP, copies=1)
    assert [row["prompt"] for row in rows] == on_trl["prompt"][:]
    assert [row["extra_info"][ID_FIELD] for row in rows] == [problem.id for problem in problems]
    assert [row["reward_model"]["ground_truth"] for row in rows] == [problem.answer for problem in problems]
    assert [row["extra_info"]["index"] for row in rows] == list(range(files.n_train))
    assert {row["data_source"] for row in rows} == {task["name"]}
    assert all(row["extra_info"]["split"] and row["ability"] for row in rows)


def test_an_empty_system_message_leaves_it_to_the_template(source, tmp_path):
    run = config({"name": "gsm8k"}, model={"name": "qwen2.5-math-1.5b", "system": ""})
    rows, _, _ = prepared(run, tmp_path, source)
    assert [message["role"] for message in rows[0]["prompt"]] == ["user"]


def test_copies_of_a_prompt_are_alike_and_one_problem(source, tmp_path):
    run = config({"name": "verl", "path": "copied.parquet"}, prompts=4, copies=4)
    rows, _, files = prepared(run, tmp_path, source)
    assert len(rows) == 4 and all(row == rows[0] for row in rows) and files.n_train == 1
    assert rows[0]["extra_info"][ID_FIELD] == "math/train/5"


def test_a_test_leaves_out_what_is_trained_on_and_reads_its_own_split(source, tmp_path):
    test = {"task": {"name": "gsm8k", "split": "test"}, "every": 5}
    rows, held_out, files = prepared(config({"name": "gsm8k"}, test=test), tmp_path, source)
    assert [row["reward_model"]["ground_truth"] for row in held_out] == ["4"] and files.n_test == 1
    assert held_out[0]["extra_info"][ID_FIELD] == "gsm8k/test/3"
    assert {row["extra_info"]["split"] for row in rows} == {"train"}
    with pytest.raises(ValueError, match="every problem of it is trained on"):
        prepare_data(config({"name": "gsm8k"}, test={"task": {"name": "gsm8k"}, "every": 5}), tmp_path, data=source)


def test_without_a_test_verl_still_gets_a_validation_file_of_its_own(source, tmp_path):
    rows, stand_in, files = prepared(config({"name": "gsm8k"}), tmp_path, source)
    assert files.train != files.test and files.n_test == 0
    assert stand_in == rows[:N_STAND_IN]


def test_too_few_prompts_are_refused(source, tmp_path):
    with pytest.raises(ValueError, match="13 exceeds the 12 x 1 prompts of task gsm8k"):
        prepare_data(config({"name": "gsm8k"}, prompts=13), tmp_path, data=source)


def test_files_are_found_in_the_folder_of_local_data_or_the_refusal_says_where_they_were_sought(source, tmp_path):
    assert with_local_file(TaskConfig(name="math"), source).path == source / "math_train.jsonl"
    assert with_local_file(TaskConfig(name="dapo"), source).path is None
    given = TaskConfig(name="gsm8k", path=source / "gsm8k_test.jsonl")
    assert with_local_file(given, None).path == given.path
    with pytest.raises(FileNotFoundError, match="--data"):
        with_local_file(TaskConfig(name="verl", path="pi1_r128.parquet"), None)
    with pytest.raises(FileNotFoundError, match="or in "):
        with_local_file(TaskConfig(name="verl", path="pi1_r128.parquet"), source)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        with_local_file(TaskConfig(name="math"), tmp_path / "elsewhere")


def test_the_same_run_gives_the_same_bytes(source, tmp_path):
    run = config({"name": "gsm8k"})
    first = prepare_data(run, tmp_path / "a", data=source)
    again = prepare_data(run, tmp_path / "b", data=source)
    assert first.train.read_bytes() == again.train.read_bytes()


def score(row, text):
    return compute_score(
        data_source=row["data_source"],
        solution_str=text,
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info=row["extra_info"] | {"num_turns": 2, "rollout_reward_scores": {}},  # as verl adds them
        reward_router_address=None,
    )


@pytest.mark.parametrize("task", TASKS, ids=lambda task: "-".join(map(str, task.values())).replace("/", ""))
def test_rewards_are_the_tasks_own(task, source, tmp_path):
    run = config(task)
    rows, _, _ = prepared(run, tmp_path, source)
    own = load_task(with_local_file(run.task, source), seed=seed_of(0, "task"))
    right = 0
    for problem, row in zip(own.problems, rows, strict=True):
        texts = [*TEXTS, problem.answer, rf"\boxed{{{problem.answer}}}", f"#### {problem.answer}"]
        found = [score(row, text) for text in texts]
        assert found == own.rewards(problem, texts)
        assert all(isinstance(value, float) for value in found)
        right += sum(found)
    assert 0 < right < len(rows) * len(TEXTS)


@pytest.mark.parametrize("name", MADE_WORLDS)
def test_a_task_that_no_verifier_grades_is_refused(name):
    """Its answers hold no number, so all rewards would be 0."""
    with pytest.raises(ValueError, match=f"task {name}: verl's runs cannot grade it"):
        grader(TaskConfig(name=name))


@pytest.mark.parametrize("info", [None, {}, {"grader": None}, {"grader": '{"verifier": "kindness"}'}])
def test_a_row_that_was_prepared_elsewhere_is_refused(info):
    with pytest.raises(ValueError, match="launch-verl"):
        compute_score("gsm8k", "1", "1", info)
