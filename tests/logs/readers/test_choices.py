"""What a reader decides where a file leaves something open: it takes the right column, says so, or asks."""

import json
import pickle

import pandas as pd
import pytest

from kaestat import RewardLog, read_log
from kaestat.logs.columns import ALIASES
from tests.helpers.log_warnings import warned

GOOD = {"prompt": ["a", "a", "b", "b"], "step": [0, 0, 1, 1], "reward": [1.0, 0.0, 1.0, 0.5]}
OTHER = {"prompt": ["x", "y", "x", "y"], "step": [5, 6, 7, 8], "reward": [0.0, 1.0, 0.25, 1.0]}
NAMES = [(part, alias) for part in GOOD for alias in ALIASES[part]]
WRITERS = {
    "frame": None,
    "run.csv": lambda frame, path: frame.to_csv(path, index=False),
    "run.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "run.json": lambda frame, path: frame.to_json(path, orient="records"),
    "run.parquet": lambda frame, path: frame.to_parquet(path),
}


@pytest.fixture(params=WRITERS)
def read(request, tmp_path):
    """Read a table from each container of long tables."""

    def of(columns, **hints):
        frame = pd.DataFrame(columns)
        if WRITERS[request.param] is None:
            return RewardLog.from_frame(frame, **hints)
        WRITERS[request.param](frame, tmp_path / request.param)
        return read_log(tmp_path / request.param, **hints)

    return of


def rows(log):
    return [
        (log.prompts[code], *rest) for code, *rest in log.frame[["prompt", "step", "reward"]].itertuples(index=False)
    ]


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("read", ["frame", "run.jsonl"], indirect=True)
@pytest.mark.parametrize(("part", "alias"), NAMES)
def test_a_second_column_with_a_usual_name_is_mentioned(read, part, alias):
    expected = rows(read(GOOD))
    for columns in (GOOD | {alias: OTHER[part]}, {alias: OTHER[part]} | GOOD):
        with warned() as texts:
            assert rows(read(columns)) == expected
        assert len(texts) == 1 and f"{part} is read from {part}, not from {alias}" in texts[0]
    with warned() as texts:
        assert rows(read(GOOD | {alias: OTHER[part]}, **{part: alias})) == rows(read(GOOD | {part: OTHER[part]}))
    assert not texts


def test_two_columns_of_which_none_has_the_part_s_own_name_are_asked_for(read):
    columns = {"prompt": GOOD["prompt"], "step": GOOD["step"], "score": GOOD["reward"], "correct": GOOD["reward"]}
    with pytest.raises(ValueError, match="reward could be score or correct; choose with reward="):
        read(columns)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "step": 1, "reward/accuracy": 1.0},
        {"prompt": "a", "step": 1, "rewards/accuracy_reward": 1.0, "length": 3},
        {"prompt": "a", "step": 1, "reward": {"accuracy": 1.0}},
        {"prompt": "a", "step": 1, "rewards.accuracy": 1.0},
        {"prompt": "a", "update": 1, "scalar_reward": 1.0},
        {"messages": [{"role": "user", "content": "a"}], "step": 1, "score": True},
        {"step": 1, "prompt": "a", "completion": "b", "accuracy_reward": 1.0, "advantage": 0.5},
    ],
    ids=lambda row: next(name for name in row if name not in ("prompt", "step")),
)
@pytest.mark.parametrize("name", list(WRITERS)[2:])
def test_what_the_field_writes_is_read_without_a_hint(tmp_path, name, row):
    WRITERS[name](pd.DataFrame([row, row]), tmp_path / name)
    with warned() as texts:
        log = read_log(tmp_path / name)
    assert log.frame[["step", "reward"]].to_numpy().tolist() == [[1, 1], [1, 1]] and len(log.prompts) == 1
    assert not texts


def test_the_prompt_of_messages_ends_with_the_user(tmp_path):
    """What the model wrote is not part of it: each completion would be a prompt."""
    asked = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "?"}, {"role": "user", "content": "b"}]
    said = [[], [{"role": "assistant", "content": "c"}], [{"role": "assistant", "content": "d"}, {"role": "tool"}]]
    path = lines(tmp_path / "run.jsonl", [{"messages": asked + end, "step": 0, "reward": 1} for end in said])
    assert [json.loads(prompt) for prompt in read_log(path).prompts] == [asked]


@pytest.mark.parametrize("name", ["run.jsonl", "1.jsonl", "run.json", "accuracies.json"])
def test_a_key_that_comes_twice_is_refused(tmp_path, name):
    key, row = {
        "run.jsonl": ("reward", '{"prompt": "a", "step": 0, "reward": 1, "reward": 0}'),
        "1.jsonl": ("score", '{"input": "a", "output": "b", "score": 1, "score": 0}'),
        "run.json": ("reward", '[{"prompt": "a", "step": 0, "reward": 1, "reward": 0}]'),
        "accuracies.json": ("a", '{"a": [0.5], "a": [0.25]}'),
    }[name]
    (tmp_path / name).write_text(row + "\n")
    with pytest.raises(ValueError, match=f"key '{key}' comes twice"):
        read_log(tmp_path / name)


@pytest.mark.parametrize("name", ["run.jsonl", "run.json", "1.jsonl"])
def test_a_number_and_its_text_are_one_prompt_in_json(tmp_path, name):
    ids = [1, "1", 1.0, True, "true", 2]
    of_verl = name == "1.jsonl"
    records = [
        {"input": p, "output": "", "score": 1} if of_verl else {"prompt": p, "step": 1, "reward": 1} for p in ids
    ]
    lines(tmp_path / name, records) if name != "run.json" else (tmp_path / name).write_text(json.dumps(records))
    log = read_log(tmp_path / name)
    assert log.prompts == ["1", "true", "2"] and log.prompt_units.counts.tolist() == [3, 2, 1]


@pytest.mark.parametrize("part", ["prompt", "step", "reward", "length"])
def test_rows_that_lack_a_value_are_refused_or_dropped_and_counted(read, part):
    columns = GOOD | {"length": [1.0, 2.0, 3.0, 4.0]}
    holes = columns | {part: [columns[part][0], None, None, columns[part][3]]}
    with pytest.raises(ValueError, match=f"{part} is missing.*(length='none'|missing='drop')"):
        read(holes)
    with warned() as texts:
        log = read(holes, missing="drop")
    assert len(texts) == 1 and f"2 of 4 rows left out for lack of {part}" in texts[0] and log.ungraded == 2
    assert rows(log) == [row for k, row in enumerate(rows(read(columns))) if k in (0, 3)]
    with pytest.raises(ValueError, match='missing must be "refuse" or "drop"'):
        read(columns, missing="skip")


@pytest.mark.parametrize("name", ["run.pkl", "run.pickle", "run.pt"])
def test_a_pickle_is_not_opened_and_the_message_says_what_works(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(pd.DataFrame(GOOD)))
    with pytest.raises(ValueError, match=r"RewardLog\.from_frame or write it by frame\.to_parquet"):
        read_log(tmp_path / name)


def turns(number):
    """Rows of three questions, with three rollouts each, of which two have further turns."""
    for step in range(1, 4):
        for question in range(3):
            for rollout in range(3):
                said = f"question {question}"
                for turn in range(number if rollout else 1):
                    yield step, said, (question + rollout + step) % 2, turn
                    said += f"\ncall {rollout} answer {turn}"


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("form", ["text", "messages", "verl"])
def test_later_turns_as_rows_of_their_own_are_noticed_and_merged(tmp_path, number, form):
    def prompt(text):
        said = [{"role": "user", "content": part} for part in text.split("\n")]
        return said if form == "messages" else text

    records = [{"prompt": prompt(p), "step": s, "reward": r} for s, p, r, _ in turns(number)]
    first = [{"prompt": prompt(p), "step": s, "reward": r} for s, p, r, turn in turns(number) if turn == 0]
    if form == "verl":
        (tmp_path / "dump").mkdir()
        for step in range(1, 4):
            of_step = [{"input": r["prompt"], "score": r["reward"]} for r in records if r["step"] == step]
            lines(tmp_path / "dump" / f"{step}.jsonl", of_step)
        path = tmp_path / "dump"
    else:
        path = lines(tmp_path / "run.jsonl", records)
    with warned() as texts:
        assert len(read_log(path).frame) == len(records)
    assert len(texts) == 1 and "read the log by turns='merge'" in texts[0]
    expected = read_log(lines(tmp_path / "first.jsonl", first))
    with warned() as texts:
        assert rows(read_log(path, turns="merge")) == rows(expected)
    assert not texts


def test_prompts_that_only_look_alike_are_no_turns(tmp_path):
    """Ids, and texts that do not come at the same steps."""
    alike = [("q1", 0), ("q10", 0), ("a b", 0), ("a bc d", 0), ("one", 0), ("one two", 1)]
    with warned() as texts:
        read_log(lines(tmp_path / "run.jsonl", [{"prompt": p, "step": s, "reward": 1} for p, s in alike]))
    assert not texts


def test_turns_with_rewards_of_their_own_are_not_merged(tmp_path):
    records = [{"prompt": "why", "step": 0, "reward": 1}, {"prompt": "why because", "step": 0, "reward": 0.25}]
    with pytest.raises(ValueError, match=r"at step 0 a later turn has the reward 0\.25"):
        read_log(lines(tmp_path / "run.jsonl", records), turns="merge")
    with pytest.raises(ValueError, match='turns must be "keep" or "merge"'):
        read_log(tmp_path / "run.jsonl", turns="join")


def test_a_usual_column_that_only_later_rows_have_is_named(tmp_path):
    file = tmp_path / "log.jsonl"
    rows = [{"prompt": "a", "step": 0, "reward": 1}, {"prompt": "a", "step": 1, "reward": 0, "score": 1, "note": "x"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.warns(UserWarning, match="score not read.*every"):
        read_log(file)
