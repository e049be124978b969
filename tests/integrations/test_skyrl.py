"""SkyRL: the registry and the trainer; on SkyRL's own classes where it is installed, else on those written out."""

import importlib
import itertools
import pickle
from dataclasses import make_dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds
from kaestat.integrations.skyrl import BaselineTrainerMixin, padding_rows, register
from tests.fakes import skyrl_source
from tests.fakes.modules import put_in_place

NUMBER = itertools.count()  # a check makes several adapters, and each needs its own name in SkyRL's registry
INSTALLED = find_spec("skyrl") is not None
# SkyRL saves its configuration with dataclasses.asdict.
Config = make_dataclass("Config", ["trainer", "generator", ("data", object, None)])


@pytest.fixture(autouse=True)
def skyrl(monkeypatch):
    """SkyRL's modules, real or written out, and a registry that forgets what the test registered."""
    if not INSTALLED:
        put_in_place(monkeypatch, skyrl_source.modules())
    trainer = importlib.import_module("skyrl.train.trainer")
    monkeypatch.setattr(trainer, "compute_prompt_mini_batch_boundaries", lambda *args: [])  # needs groups in order
    monkeypatch.setattr(trainer, "compute_prompt_boundaries", lambda *args: [], raising=False)
    registry = importlib.import_module("skyrl.backends.skyrl_train.utils.ppo_utils").AdvantageEstimatorRegistry
    monkeypatch.setattr(registry, "_functions", dict(registry._functions))
    return SimpleNamespace(trainer=trainer, registry=registry)


def make_trainer(estimator, *, name="kaestat", ckpt_path=None, step_wise=False, weights="none"):
    """A trainer that never was on a GPU: what ``__init__`` and the configuration set, as far as it is used."""
    if estimator is not None:
        register(estimator, name, weights=weights)
    algorithm = SimpleNamespace(
        advantage_estimator=name,
        max_seq_len=None,
        off_policy_correction=SimpleNamespace(tis_ratio_type=None, sequence_mask_metric=None),
        gamma=1.0,
        lambd=1.0,
        grpo_norm_by_std=True,
    )
    trainer_config = SimpleNamespace(
        algorithm=algorithm,
        critic=SimpleNamespace(model=SimpleNamespace(path=None)),
        train_batch_size=6,
        policy_mini_batch_size=6,
        ckpt_path=ckpt_path and str(ckpt_path),
        ckpt_interval=1,
        resume_mode="latest",
    )
    trainer = object.__new__(importlib.import_module("kaestat.integrations.skyrl").BaselineTrainer)
    trainer.cfg = Config(trainer_config, SimpleNamespace(n_samples_per_prompt=4, step_wise_trajectories=step_wise))
    trainer.tokenizer = SimpleNamespace(pad_token_id=0)
    trainer.dispatch, trainer.train_dataloader = MagicMock(), MagicMock()
    trainer.train_dataloader.state_dict.return_value = {}
    trainer.resume_mode = importlib.import_module("skyrl.train.trainer").ResumeMode.LATEST
    trainer.global_step, trainer.all_metrics, trainer.all_timings = 1, {}, {}
    trainer._cleanup_old_checkpoints = lambda: None
    return trainer


def train_step(trainer, rewards, uids, prompts, *, last_steps=None, n_padding=0):
    """From the generator's output to advantages, as in ``RayPPOTrainer.train``."""
    size = len(uids)
    trainer.dispatch.get_lcm_dp_size.return_value = size + n_padding if n_padding else 1
    lengths = [1 + row % 3 for row in range(size)]
    output = {
        "prompt_token_ids": [list(prompt) for prompt in prompts],
        "response_ids": [[9] * length for length in lengths],
        "rewards": [[0.0] * (length - 1) + [float(r)] for length, r in zip(lengths, rewards, strict=True)],
        "loss_masks": [[1] * length for length in lengths],
    }
    if last_steps is not None:
        output["is_last_step"] = list(last_steps)
    data = trainer.convert_to_training_input(output, list(uids))
    data["values"] = None
    data = trainer.compute_advantages_and_returns(data)
    assert len(data["advantages"]) == size + n_padding and torch.equal(data["advantages"], data["returns"])
    advantages = torch.where(data["response_mask"] > 0, data["advantages"], torch.nan)
    assert torch.equal(data["advantages"], torch.nan_to_num(advantages))  # nothing outside the responses
    highest = torch.nan_to_num(advantages, nan=-torch.inf).amax(dim=-1)
    assert torch.equal(highest, torch.nan_to_num(advantages, nan=torch.inf).amin(dim=-1))  # the same at every token
    return highest.numpy()


def kae():
    return AdvantageEstimator("kae", bandwidth=5.0)


class SkyRLAdapter:
    """Conformance rows through converting, padding and advantages; a padding row is a copy of row 0."""

    def __init__(self, estimator, folder):
        self.trainer = make_trainer(estimator, name=f"kaestat{next(NUMBER)}", ckpt_path=folder)

    def advantages(self, rows):
        real = np.flatnonzero(~rows.padding)
        assert (real == np.arange(len(real))).all()
        self.trainer.global_step = rows.step + 1
        return train_step(
            self.trainer,
            rows.rewards[real],
            [str(rows.ids[row]) for row in real],
            [list(rows.prompts[row].encode()) for row in real],
            n_padding=int(rows.padding.sum()),
        )

    def state(self):
        return self.trainer.save_checkpoints()

    def restore(self, state):
        assert self.trainer.load_checkpoints()[0] == 3


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_integration_skyrl_conforms(check, tmp_path):
    check(lambda estimator: SkyRLAdapter(estimator, tmp_path))


@pytest.mark.parametrize("name", ["rloo", "grpo"])
def test_integration_skyrl_agrees_with_skyrls_own_estimator_of_the_name(name):
    rng = np.random.default_rng(0)
    rewards, uids = rng.random(20).astype(np.float32), [str(k) for k in rng.permutation(np.repeat(range(5), 4))]
    ours = train_step(make_trainer(AdvantageEstimator(name)), rewards, uids, [[int(uid) + 1] for uid in uids])
    theirs = train_step(make_trainer(None, name=name), rewards, uids, [[int(uid) + 1] for uid in uids])
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("name", "theirs", "ours"), [("rloo", 0.0, 1.0), ("grpo", 1.0, 0.0)])
def test_integration_skyrl_lone_completion_differs_from_skyrls_as_the_page_says(name, theirs, ours):
    batch = [1.0, 0.0, 1.0], ["0", "0", "1"], [[1], [1], [2]]
    np.testing.assert_allclose(train_step(make_trainer(None, name=name), *batch)[2], theirs, atol=1e-5)
    np.testing.assert_allclose(train_step(make_trainer(AdvantageEstimator(name)), *batch)[2], ours, atol=1e-5)


def test_integration_skyrl_registry_alone_serves_memoryless_methods_and_refuses_histories_and_weights(skyrl):
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2)
    register(AdvantageEstimator("rloo"), "ours")
    advantages, _ = skyrl.registry.get("ours")(token_level_rewards=rewards, response_mask=mask, index=["0", "0"])
    assert advantages.tolist() == [[1.0, 1.0], [-1.0, -1.0]]
    register(kae(), "history")
    register(AdvantageEstimator("opo"), "weights", weights="length")
    for name, needed in (("history", "training step.*prompt ids"), ("weights", r"weights=.length. needs")):
        with pytest.raises(ValueError, match=f"{needed}.*BaselineTrainer"):
            skyrl.registry.get(name)(token_level_rewards=rewards, response_mask=mask, index=["0", "0"])
    with pytest.raises(ValueError, match="already registered"):
        register(kae(), "history")


def test_integration_skyrl_registered_baseline_survives_the_move_to_another_process(skyrl):
    trainer = make_trainer(kae())
    rewards, uids, prompts = [1.0, 0.0, 1.0, 1.0], list("0011"), [[1], [1], [2], [2]]
    train_step(trainer, rewards, uids, prompts)
    skyrl.registry._functions["moved"] = pickle.loads(pickle.dumps(trainer.baseline))
    moved = make_trainer(None, name="moved")
    trainer.global_step = moved.global_step = 2
    found = train_step(moved, rewards, uids, prompts)
    np.testing.assert_array_equal(found, train_step(trainer, rewards, uids, prompts))
    assert found[0] != 1.0


def test_integration_skyrl_checkpoint_without_a_state_is_refused(tmp_path):
    plain = make_trainer(None, name="rloo", ckpt_path=tmp_path)
    assert plain.load_checkpoints()[0] == 0
    plain.save_checkpoints()
    plain.load_checkpoints()
    with pytest.raises(ValueError, match="saved without the history of 'kae'"):
        make_trainer(kae(), ckpt_path=tmp_path).load_checkpoints()
    make_trainer(AdvantageEstimator("dr_grpo"), name="memoryless", ckpt_path=tmp_path).load_checkpoints()


def test_integration_skyrl_prompts_that_change_under_a_uid_are_refused_unless_they_may():
    trainer = make_trainer(kae())
    with pytest.raises(UnstablePromptIds, match="names two prompts"):
        train_step(trainer, [1.0, 0.0], ["0", "0"], [[1], [2]])
    trainer.check_prompts = False
    assert train_step(trainer, [1.0, 0.0], ["0", "0"], [[1], [2]]).tolist() == [1.0, -1.0]


def test_integration_skyrl_padding_is_known_by_its_whole_sequence_of_uids():
    assert padding_rows(["pad0"]) == 1
    assert padding_rows(["3", "pad1"]) == 0  # not SkyRL's padding: pad0 would stand before it
    assert padding_rows(["pad0", "3"]) == padding_rows(["7", "padlock"]) == padding_rows([]) == 0


def test_integration_skyrl_subclass_that_asks_for_drawn_prompts_is_refused():
    with pytest.raises(TypeError, match="prompt_sampler='neyman': SkyRL has no place"):
        type("Drawing", (BaselineTrainerMixin,), {"prompt_sampler": "neyman"})
    trainer = make_trainer(kae())
    trainer.prompt_sampler = "neyman"
    with pytest.raises(TypeError, match="prompt_sampler='neyman': SkyRL has no place"):
        train_step(trainer, [1.0, 0.0], ["0", "0"], [[1], [1]])


def test_integration_skyrl_filter_that_hides_groups_from_the_history_is_warned_of():
    trainer = make_trainer(kae())
    trainer.cfg.trainer.fully_async = SimpleNamespace(enabled=True, sample_full_batch=True)
    with pytest.warns(UserWarning, match=r"^trainer\.fully_async\.sample_full_batch drops .* towards 1/2"):
        train_step(trainer, [1.0, 0.0], ["0", "0"], [[1], [1]])
    trainer.cfg.trainer.algorithm.dynamic_sampling = SimpleNamespace(type="filter")
    with pytest.warns(UserWarning, match=r"^trainer\.algorithm\.dynamic_sampling drops .* towards 1/2"):
        train_step(trainer, [1.0, 0.0], ["1", "1"], [[2], [2]])


@pytest.mark.parametrize("method", ["opo", "kae"])
def test_integration_skyrl_lengths_are_tokens_in_the_loss_padding_left_out(method):
    rewards, uids, prompts = [1.0, 0.0, 1.0, 1.0, 0.0], list("00011"), [[1], [1], [1], [2], [2]]
    lengths = [1, 2, 3, 1, 2]  # as `train_step` makes them
    expected = AdvantageEstimator(method).step(uids, rewards, 0, weights=lengths)
    assert not np.allclose(
        expected, AdvantageEstimator("dr_grpo" if method == "opo" else method).step(uids, rewards, 0)
    )
    for n_padding in (0, 3):
        trainer = make_trainer(AdvantageEstimator(method), name=f"{method}{n_padding}", weights="length")
        found = train_step(trainer, rewards, uids, prompts, n_padding=n_padding)
        np.testing.assert_allclose(found, [*expected, *[0.0] * n_padding], rtol=1e-6, atol=1e-7)


def test_integration_skyrl_length_of_a_step_wise_trajectory_is_that_of_all_its_steps():
    last, uids = [False, True, True, False, False, True, True], list("0001111")
    rewards, prompts = [0.3, 1.0, 0.0, 0.3, 0.3, 1.0, 0.0], [[1], [1, 5], [1], [2], [2, 6], [2, 6, 7], [2]]
    lengths = [1 + 2, 3, 1 + 2 + 3, 1]
    expected = AdvantageEstimator("opo").step(list("0011"), [1.0, 0.0, 1.0, 0.0], 0, weights=lengths)
    for n_padding in (0, 2):
        trainer = make_trainer(AdvantageEstimator("opo"), name=f"o{n_padding}", step_wise=True, weights="length")
        found = train_step(trainer, rewards, uids, prompts, last_steps=last, n_padding=n_padding)
        np.testing.assert_allclose(found, [*expected[[0, 0, 1, 2, 2, 2, 3]], *[0.0] * n_padding], rtol=1e-6)
