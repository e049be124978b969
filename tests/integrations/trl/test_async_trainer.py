"""TRL's asynchronous trainer from end to end: a worker in a process of its own, queues, loss, checkpoints.

The server answers as vLLM does; attention is computed in torch; weights go nowhere.
"""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import fields
from types import SimpleNamespace

import pytest

from kaestat import AdvantageEstimator
from kaestat.core.storage import encode_keys, load_state
from kaestat.history.columns import Columns
from kaestat.integrations.trl import STATE_FILE

pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker")
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from kaestat.integrations.trl.async_trainer import BaselineAsyncGRPOTrainer
from kaestat.integrations.trl.group_scoring import RecordedSample, RecordingQueue
from tests.helpers.tiny_async_trl import any_order, async_trainer, completions_server, stand_in, write_model

BANDWIDTH = 20
STEPS = 6


class KeepsSamples(BaselineAsyncGRPOTrainer):
    """Keeps what comes from the worker, in its order."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.samples, source = [], self.rollout_queue
        self.recorded = source._record

        def get(*args, **kwargs):
            self.samples.append(source.get(*args, **kwargs))
            return self.samples[-1]

        self.rollout_queue = SimpleNamespace(get=get, qsize=source.qsize)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model, and a server, as everything here needs them."""
    pytest.importorskip("aiohttp")
    with pytest.MonkeyPatch.context() as patch, completions_server() as server:
        stand_in(patch)
        yield SimpleNamespace(model=write_model(tmp_path_factory.mktemp("model")), server=server)


def trainer_of(place, folder, estimator=None, **options):
    estimator = any_order(f"kae:bandwidth={BANDWIDTH}") if estimator is None else estimator
    options = {"trainer_options": {"prompt_id": "question_id"}, "n_prompts": 2} | options
    return async_trainer(folder, place.model, place.server, estimator, trainer_class=KeepsSamples, **options)


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    """A run, with a checkpoint at every second step."""
    trainer = trainer_of(
        place, tmp_path_factory.mktemp("run"), max_steps=STEPS, save_strategy="steps", save_steps=2, max_staleness=2
    )
    trainer.train()
    return trainer


def visits_of(estimator):
    """Count and sum of each prompt's visit at each version."""
    found = {}
    for row, key in enumerate(keys := ["q0", "q1"]):
        visits = estimator.history.visits(keys, 1_000)
        for lag, count, total in zip(visits.lag[row], visits.count[row], visits.total[row], strict=True):
            if count:
                found[key, int(1_000 - lag)] = count, total
    return found


def visits_in(samples):
    found = {}
    for sample in samples:
        key = f"q{sample.prompt[0]['content'][0]}", sample.model_version
        count, total = found.get(key, (0.0, 0.0))
        found[key] = count + 1, total + sample.metrics["reward"]
    return found


def complete(samples):
    """Without the last group, where its samples have not all come; its delta comes with the first."""
    last = [sample for sample in samples if sample.group_id == samples[-1].group_id]
    return samples if len(last) == 2 else samples[:-1]


@pytest.mark.slow
def test_advantages_are_those_of_the_versions_that_the_worker_saw(run):
    by_hand = AdvantageEstimator("kae", bandwidth=BANDWIDTH, order="any")
    samples = complete(run.samples)
    for one, other in zip(samples[::2], samples[1::2], strict=True):
        assert (one.group_id, one.prompt, one.model_version) == (other.group_id, other.prompt, other.model_version)
        rewards = [one.metrics["reward"], other.metrics["reward"]]
        version = one.model_version
        wanted = by_hand.step([one.prompt[0]["content"]] * 2, rewards, version, version=[version] * 2)
        assert [one.advantage, other.advantage] == pytest.approx(wanted.tolist(), abs=1e-12)
    assert len({sample.model_version for sample in samples}) > 2
    assert max(sample.metrics["baseline/past_completions"] for sample in samples) > 0


@pytest.mark.slow
def test_the_trainer_knows_what_came_with_the_samples_that_it_took(run):
    estimator, last = run.advantage_estimator, run.samples[-1]
    expected, known = visits_in(complete(run.samples)), visits_of(estimator)
    half_taken = {(f"q{last.prompt[0]['content'][0]}", last.model_version)}
    assert known.keys() >= expected.keys()
    assert {key for key in known if expected.get(key) != known[key]} <= half_taken
    assert estimator.last_step <= run.model_version


@pytest.mark.slow
def test_what_is_logged_is_the_baselines_of_the_trained_samples(run):
    logged = {name for entry in run.state.log_history for name in entry if name.startswith("baseline/")}
    assert {"baseline/error", "baseline/known_prompts", "baseline/effective_history"} <= logged


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_history_and_the_versions(run, place, tmp_path):
    checkpoint = f"{run.args.output_dir}/checkpoint-4"
    before = visits_of(AdvantageEstimator.load(f"{checkpoint}/{STATE_FILE}"))
    with open(f"{checkpoint}/rollout_state.json") as file:
        version = json.load(file)["model_version"]
    resumed = trainer_of(place, tmp_path, max_steps=6)
    resumed.train(resume_from_checkpoint=checkpoint)
    assert resumed.samples[0].metrics["baseline/known_prompts"] == 1.0  # the worker has it from its first group on
    assert min(sample.model_version for sample in resumed.samples) == version + 1
    assert visits_of(resumed.advantage_estimator).items() > before.items()


@pytest.mark.slow
def test_a_checkpoint_without_its_history_is_refused_and_one_without_trls_count_goes_on_counting(run, place, tmp_path):
    checkpoint = tmp_path / "checkpoint-2"
    shutil.copytree(f"{run.args.output_dir}/checkpoint-2", checkpoint)
    (checkpoint / "rollout_state.json").unlink()
    kept = load_state(checkpoint / STATE_FILE)["state"]["last_step"]
    trainer = trainer_of(place, tmp_path, max_steps=3)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert min(sample.model_version for sample in trainer.samples) == kept + 1

    (checkpoint / STATE_FILE).unlink()
    with pytest.raises(ValueError, match=r"checkpoint-2.*history.*model='.*checkpoint-2'"):
        trainer_of(place, tmp_path, max_steps=3).train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.slow
def test_what_goes_wrong_in_the_worker_stops_the_run_with_its_reason(place, tmp_path):
    trainer = trainer_of(place, tmp_path, trainer_options={"prompt_id": "uid"})
    with pytest.raises(RuntimeError, match="Rollout worker child has failed") as raised:
        trainer.train()
    assert "prompt_id='uid': the rows have no such column, only question_id" in str(raised.value.__cause__)


def test_a_worker_that_computes_its_own_advantages_is_refused(place, tmp_path):
    own = SimpleNamespace(rollout_buffer=None)
    with pytest.raises(TypeError, match="rollout_worker must be an AsyncRolloutWorker, got SimpleNamespace"):
        trainer_of(place, tmp_path, trainer_options={"rollout_worker": own})


def test_a_warm_estimator_goes_on_counting(place, tmp_path):
    warm = any_order()
    warm.step(["q0", "q0"], [1.0, 0.0], 7)
    trainer = trainer_of(place, tmp_path, warm)
    assert (trainer.model_version, trainer.rollout_worker.model_version) == (7, 7)


def test_a_checkpoint_waits_for_the_visits_that_are_being_merged(place, tmp_path, monkeypatch):
    trainer, worker = trainer_of(place, tmp_path), any_order()
    worker.step(["q0", "q0"], [1.0, 0.0], 0)
    sample = RecordedSample(**dict.fromkeys(of_sample.name for of_sample in fields(RolloutSample)))
    sample.delta = worker.take_delta().to_bytes()
    queue = RecordingQueue(SimpleNamespace(get=lambda: sample), trainer.recorded)
    amid, go_on, carry_out = threading.Event(), threading.Event(), Columns.carry_out

    def slow(history, write):
        amid.set()
        assert go_on.wait(60)
        carry_out(history, write)

    monkeypatch.setattr(Columns, "carry_out", slow)
    monkeypatch.setattr(AsyncGRPOTrainer, "_save_checkpoint", lambda *given: None)
    with ThreadPoolExecutor(2) as pool:
        taking = pool.submit(queue.get)
        assert amid.wait(60)
        saving = pool.submit(trainer._save_checkpoint, None, None)
        done, _ = wait([saving], timeout=0.2)
        go_on.set()
        assert not done
        taking.result(60), saving.result(60)
    (file,) = tmp_path.glob(f"**/checkpoint-0/{STATE_FILE}")
    assert load_state(file)["state"]["history"]["keys"] == encode_keys(["q0"])


@pytest.mark.parametrize(
    ("estimator", "options", "error", "match"),
    [
        ("kae", {}, TypeError, r'got \'kae\'; for example.*order="any", keep_deltas=True'),
        (AdvantageEstimator("kae"), {}, ValueError, r'order="any", keep_deltas=True'),
        (AdvantageEstimator("kae", order="any"), {}, ValueError, "keep_deltas=True"),
        (any_order("spo:rho=0.9"), {}, ValueError, "'batch_std' takes the whole batch"),
        (any_order("opo"), {}, ValueError, "weights=none: method 'opo'.*length"),
        (any_order(), {"weights": "score_norm"}, ValueError, "unknown 'score_norm'; choose one of none, length"),
        (any_order(), {"prompt_id": 3}, TypeError, "prompt_id must be the name of a column"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_loaded(estimator, options, error, match):
    with pytest.raises(error, match=match):
        BaselineAsyncGRPOTrainer(model="none", advantage_estimator=estimator, **options)


def test_a_name_is_needed_where_prompts_are_not_checked():
    class Unchecked(BaselineAsyncGRPOTrainer):
        check_prompts = False

    with pytest.raises(ValueError, match="check_prompts=False"):
        Unchecked(model="none", advantage_estimator=any_order())


@pytest.mark.parametrize("method", ["kae", "kae_eb:bandwidth=10", "james_stein"])
def test_a_method_that_borrows_from_other_prompts_is_warned_of(method):
    with (
        pytest.warns(UserWarning, match="learns from the other prompts"),
        pytest.raises((OSError, ValueError)),
    ):  # there is no such model
        BaselineAsyncGRPOTrainer(model="/none/at/all", advantage_estimator=any_order(method))
