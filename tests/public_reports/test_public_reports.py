"""Cases after public reports from users of other libraries: each names the report and asserts what is right."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import kaestat
from kaestat import AdvantageEstimator, gdpo
from kaestat.logs.columns import LogWarning
from llm_experiments.verifiers import MathVerifier, NumberVerifier

TIMES_TEN_TO_EIGHT = r"\boxed{3\times10^{8}}"


def boxed(answer):
    return f"\\boxed{{{answer}}}"


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# Advantages


@pytest.mark.parametrize("rewards", [[0.35] * 7 + [0], [0.4] * 7 + [1], [0.3] * 15 + [0]])
def test_nemo_rl_4161_rounding_in_the_deviation_does_not_multiply_an_advantage(rewards):
    advantages = AdvantageEstimator("rloo", scale="group_std").step(["a"] * len(rewards), torch.tensor(rewards), 0)
    assert advantages.abs().max() <= 4.001


def test_nemo_rl_4161_a_history_is_not_divided_by_the_deviation_of_a_dead_group():
    with pytest.raises(ValueError, match="batch_std"):
        AdvantageEstimator("kae_eb", scale="trl_group")


@pytest.mark.parametrize("missing", [(1, 1), (slice(None), 1), (0, slice(None))], ids=["cell", "function", "row"])
def test_ms_swift_8123_a_missing_reward_of_several_leaves_the_advantages_finite(missing):
    rewards = np.array([[1, 0.5], [0, 0.5], [1, 1.0], [0, 0]])
    rewards[missing] = np.nan
    advantages = gdpo(["right", "format"]).step(["a"] * 4, rewards, 0)
    assert np.isfinite(advantages).all() and np.all(advantages[np.isnan(rewards).all(axis=1)] == 0)


def test_openrlhf_1334_rewards_of_few_bits_keep_their_differences():
    rewards = torch.tensor([1, 1, 1, 1.0078125], dtype=torch.bfloat16)
    assert np.allclose(
        AdvantageEstimator("grpo").step(["a"] * 4, rewards, 0).float(), [-0.5, -0.5, -0.5, 1.5], atol=0.02
    )
    for dtype in (torch.int64, torch.int32, torch.float16):
        assert not AdvantageEstimator("grpo").step(["a"] * 4, torch.full((4,), 3, dtype=dtype), 0).any()


def test_trl_3857_rewards_that_cancel_in_the_sum_give_no_advantage():
    rewards = np.array([[-3, 6], [2, 1], [-3, 6], [2, 1.0]])
    assert not AdvantageEstimator("grpo").step(["a"] * 4, rewards.sum(axis=1), 0).any()
    assert np.allclose(gdpo(["a", "b"]).step(["a"] * 4, rewards, 0), 0)


def test_trl_5026_maxrl_refuses_a_negative_mean():
    with pytest.raises(ValueError, match="shift them"):
        AdvantageEstimator("maxrl").step(["a"] * 4, [-1, -1, 1, -1.0], 0)


def test_rllm_776_an_id_of_its_own_for_every_completion_is_noticed():
    estimator, rng = AdvantageEstimator(), np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no prompt has come back"):
        for step in range(130):
            estimator.step([f"{step}-{k}" for k in range(8)], rng.integers(2, size=8), step)


# Logs


def rows_of_dump(step, prompts, size, uid, **extra):
    reward = np.random.default_rng(step).integers(2, size=(prompts, size))
    return [
        {"input": f"q{p}", "output": "o", "score": float(reward[p, g]), "step": step, "uid": uid(step, p, g), **extra}
        for p in range(prompts)
        for g in range(size)
    ]


def test_rllm_776_a_dump_with_a_uid_per_trajectory_is_read_by_prompt_text(tmp_path):
    for step in (1, 2, 3):
        write_lines(tmp_path / f"{step}.jsonl", rows_of_dump(step, 6, 4, lambda *place: str(place)))
    frame = kaestat.read_log(tmp_path).frame
    assert len(frame) == 72 and frame["prompt"].nunique() == 6


def test_verl_6101_validation_dumps_from_step_0_are_read(tmp_path):
    for step in (0, 20, 40):
        rows = rows_of_dump(step, 6, 2, lambda *_: None, acc=True, pred=None)
        write_lines(tmp_path / f"{step}.jsonl", [{k: v for k, v in row.items() if k != "uid"} for row in rows])
    assert sorted(kaestat.read_log(tmp_path).frame["step"].unique()) == [0, 20, 40]


def test_agent_lightning_489_later_turns_as_rows_of_their_own_are_said_and_merged(tmp_path):
    for step in (1, 2, 3):
        rows = []
        for row in rows_of_dump(step, 4, 3, lambda step, p, g: f"{step}-{p}-{g}"):
            rows += [row, row | {"input": f"{row['input']} call tool", "output": "answer"}]
        write_lines(tmp_path / f"{step}.jsonl", rows)
    with pytest.warns(LogWarning, match="turns='merge'"):
        assert kaestat.read_log(tmp_path).frame["prompt"].nunique() == 8
    merged = kaestat.read_log(tmp_path, turns="merge").frame
    assert merged["prompt"].nunique() == 4 and len(merged) == 36


@pytest.mark.parametrize("coding", [lambda r: 2 * r - 1, lambda r: r - 1, lambda r: 10 * r])
def test_skyrl_1430_sampling_figures_do_not_depend_on_the_coding_of_success(coding):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame([(f"p{p}", step, p) for step in range(8) for p in range(16) for _ in range(4)])
    frame.columns = ["prompt", "step", "reward"]
    frame["reward"] = (rng.random(len(frame)) < (frame["reward"] + 1) / 18).astype(float)
    plain, coded = (
        kaestat.sampling_risk(kaestat.RewardLog.from_frame(frame.assign(reward=reward))).select_dtypes("number")
        for reward in (frame["reward"], coding(frame["reward"]))
    )
    np.testing.assert_allclose(coded, plain, rtol=0, atol=1e-9)


def test_wandb_a_table_is_read_and_a_curve_of_means_refused(tmp_path):
    rows = [[str(step), f"q{p}", "c", float(g), 0.0] for step in range(3) for p in range(4) for g in range(2)]
    columns = ["step", "prompt", "completion", "reward", "advantage"]
    (tmp_path / "table.json").write_text(json.dumps({"columns": columns, "data": rows, "ncols": 5}))
    assert len(kaestat.read_log(tmp_path / "table.json").frame) == 24
    (tmp_path / "curve.csv").write_text('"Step","run - train/reward"\n0,0.1\n1,0.2\n')
    with pytest.raises(ValueError, match="Every row must be a completion"):
        kaestat.read_log(tmp_path / "curve.csv")


def test_a_key_that_comes_twice_in_a_line_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"prompt":"a","step":0,"reward":1,"reward":0}\n' * 4)
    with pytest.raises(ValueError, match="'reward' comes twice"):
        kaestat.read_log(tmp_path / "log.jsonl")


def test_numbers_and_text_as_ids_of_a_json_log_are_one_prompt(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [{"prompt": p, "step": 0, "reward": 1} for p in (1, "1", 2, "2")])
    assert kaestat.read_log(log).frame["prompt"].nunique() == 2


def test_conversations_and_ragged_groups_are_read(tmp_path):
    talk = [
        {"prompt": [{"role": "user", "content": f"q{p}"}], "step": 0, "reward": p % 2} for p in range(4) for _ in "ab"
    ]
    assert kaestat.read_log(write_lines(tmp_path / "talk.jsonl", talk)).frame["prompt"].nunique() == 4
    groups = [{"prompt": f"q{p}", "step": 0, "rewards": [1, 0, 1][: 1 + p % 3]} for p in range(4)]
    assert len(kaestat.read_log(write_lines(tmp_path / "groups.jsonl", groups)).frame) == 1 + 2 + 3 + 1


# Verifiers


@pytest.fixture(scope="module")
def graders():
    with MathVerifier(timeout=10, workers=1) as math_verifier:
        yield {"math": math_verifier, "number": NumberVerifier()}


@pytest.mark.parametrize(
    ("grader", "gold", "answer", "right"),
    [
        ("number", "3", TIMES_TEN_TO_EIGHT, 0.0),
        ("number", "300000000", TIMES_TEN_TO_EIGHT, 1.0),
        ("math", "300000000", TIMES_TEN_TO_EIGHT, 1.0),
        ("number", "2", r"The answer is $2\cdot3$.", 0.0),
        ("number", "6", r"The answer is $2\times3=6$.", 1.0),
        ("number", "42", "2+40=42\n#### 42\n" + " check: 7*6 = 42, 8*5=40" * 20, 1.0),  # verl 7274
        ("math", "7", r"Mark your solution with \boxed. So \boxed{7}", 1.0),  # lm-evaluation-harness 3477
        ("math", "7", "Mark with \\boxed \n", 0.0),
        ("math", "7", r"\boxed{7}. I wrote \boxed{} as asked.", 1.0),
        ("math", r"\frac{1}{2^{98}}", boxed(r"\frac{1}{2^{99}}"), 0.0),  # Math-Verify 14
        ("math", r"\frac{1}{2006!}", boxed(r"\frac{1}{2004!}"), 0.0),
        ("math", r"\frac{1}{2^{20}}", boxed("0.000001"), 0.0),
        ("math", "n=2, 3, 4", boxed("n=1, 2, 3"), 0.0),
        ("math", "D = (0, 1)", boxed("D = (0, 1.5)"), 0.0),
        ("math", "x>2", boxed(r"(2,\infty)"), 1.0),  # Math-Verify 10 and 25
        ("math", r"(2,\infty)", boxed("x>2"), 1.0),
        ("math", r"\frac{x^2}{4}+\frac{y^2}{3}=1", boxed(r"\frac{x^2}{16}+\frac{y^2}{12}=1"), 0.0),  # Math-Verify 40
        ("math", r"\frac{x^2}{4}+\frac{y^2}{3}=1", boxed(r"\frac{y^2}{3}+\frac{x^2}{4}=1"), 1.0),
        ("math", "-4", boxed("\N{MINUS SIGN}4"), 1.0),
        ("number", "7", "It may be 3, or 5, or 7, or 9.", 0.0),  # verifiers 1028
        ("math", r"\text{see figure}", boxed("5"), 0.0),  # cookbook 335
        ("math", r"\text{see figure}", boxed(r"\text{see figure}"), 1.0),
    ],
)
def test_an_answer_gets_the_reward_that_a_reader_would_give(graders, grader, gold, answer, right):
    assert graders[grader].rewards(gold, [answer]) == [right]


def test_cookbook_335_an_empty_ground_truth_is_refused(graders):
    with pytest.raises(ValueError, match="empty"):
        graders["math"].rewards(" ", [boxed("5")])


# TRL


@pytest.fixture
def train(tmp_path):
    from tests.helpers.tiny_trl import RecordingTrainer, tiny_trainer

    def run(estimator=None, **options):
        options = {"trainer_options": {"prompt_id": "question_id"}, "log_completions": True} | options
        trainer = tiny_trainer(
            tmp_path / "run", estimator or AdvantageEstimator(), trainer_class=RecordingTrainer, **options
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            trainer.train()
        return trainer, tmp_path / "run"

    return run


def test_trl_6613_rows_of_an_evaluation_are_not_read_as_training(train):
    from tests.helpers.tiny_trl import questions

    asked = questions(4).map(lambda row: {"question_id": "e" + row["question_id"]})
    _, folder = train(eval_dataset=asked, eval_strategy="steps", eval_steps=2, n_prompts=8)
    with pytest.warns(LogWarning, match="evaluation"):
        frame = kaestat.read_log(folder).frame
    assert sorted(frame["step"].unique()) == [1, 3] and len(frame) == 16


@pytest.mark.parametrize(
    "schedule",
    [
        {"num_iterations": 3, "max_steps": 6},
        {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 4, "max_steps": 4},
    ],
)
def test_trl_4531_a_generation_counts_once_however_often_it_is_used(train, schedule):
    trainer, folder = train(n_prompts=8, **schedule)
    assert trainer.advantage_estimator.last_step == len(trainer.batches) - 1
    assert len(kaestat.read_log(folder).frame) == 8 * len(trainer.batches)


def test_trl_5775_a_completion_without_a_reward_gets_no_advantage_and_no_row(train):
    def reward(completion_ids, **_):
        return [None if sum(ids) % 3 == 0 else float(sum(ids) % 2 == 0) for ids in completion_ids]

    trainer, folder = train(reward=reward)
    missing = torch.cat([batch["rewards"] for batch in trainer.batches]).isnan().all(dim=1)
    advantages = torch.cat([batch["advantages"] for batch in trainer.batches])
    assert advantages.isfinite().all() and not advantages[missing].any()
    assert missing.any() and len(kaestat.read_log(folder).frame) == int((~missing).sum())


@pytest.mark.parametrize("ids", [["q"] * 8, [None] * 8], ids=["shared", "missing"])
def test_ids_that_name_two_prompts_or_none_are_refused(train, ids):
    from datasets import Dataset

    with pytest.raises(ValueError, match="id of its own"):
        train(dataset=Dataset.from_dict({"prompt": ["1+1=", "2+1="] * 4, "question_id": ids}))
