"""The code on the pages of docs/frameworks: every Python block is run, recipes on arrays shaped as the trainers'."""

import re
import types
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from tests.fakes.modules import add_module, put_in_place

PAGES = Path(__file__).resolve().parents[2] / "docs" / "frameworks"
PROMPTS = [f"What is {k} + 1?" for k in range(6)]


def blocks(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)


def run(page, number, name="recipe", **given):
    """The namespace that a page's block leaves behind; its names are importable from module ``name`` meanwhile."""
    module = types.ModuleType(name)
    module.__dict__.update(given)
    exec(compile(blocks(page)[number], f"{page}.md", "exec"), module.__dict__)
    return module


def steps(n_steps, seed=0, group=4):
    """Prompts and rewards of several steps, 4 of 6 prompts each."""
    rng = np.random.default_rng(seed)
    for step in range(n_steps):
        prompts = np.repeat(rng.permutation(6)[:4], group)
        yield step, [PROMPTS[k] for k in prompts], (rng.random(len(prompts)) < 0.5).astype(np.float32)


def kae(bandwidth="auto"):
    return AdvantageEstimator("kae", bandwidth=bandwidth)


def test_integration_recipe_for_any_trainer(tmp_path):
    (recipe,) = [number for number, block in enumerate(blocks("index")) if "TrainerSession(" in block]
    recipe, again, plain = run("index", recipe), run("index", recipe), AdvantageEstimator()
    for step, prompts, rewards in steps(6):
        expected = plain.step(prompts, rewards.astype(float), step)
        np.testing.assert_allclose(recipe.compute_advantages(prompts, rewards, step), expected, atol=1e-12)
        if step == 3:
            recipe.save_checkpoint(tmp_path)
            again.load_checkpoint(tmp_path)
            recipe = again


def nemo_rl_step(prompts, rewards, rng):
    """As in NeMo-RL's grpo_train: prompts' tokens padded to the longest of the batch, a mask over whole sequences."""
    tokens = [[1 + ord(letter) for letter in prompt] for prompt in prompts]
    width = max(map(len, tokens)) + int(rng.integers(4))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in tokens])
    mask = torch.zeros(len(prompts), width + 5)
    mask[:, width:] = 1.0
    return {"prompt_ids": ids, "rewards": torch.from_numpy(rewards), "mask": mask, "repeated_batch": {}}


def test_integration_recipe_nemo_rl_knows_prompts_through_padding_and_resumes(tmp_path):
    def begun(step):
        return run("nemo-rl", 0).BaselineAdvantage(AdvantageEstimator("kae"), 0, tmp_path, step)

    baseline, plain, rng = begun(0), kae(), np.random.default_rng(1)
    for step, prompts, rewards in steps(6):
        call = nemo_rl_step(prompts, rewards, rng)
        call["mask"][1] = 0.0
        valid = torch.ones(len(prompts))
        valid[2] = 0.0  # a row that stands in for a failed rollout
        found = baseline.compute_advantage(**call, valid_mask=None if step == 2 else valid)
        keep = ~np.isin(np.arange(len(prompts)), [1] if step == 2 else [1, 2])
        expected = plain.step(prompts, rewards.astype(float), step, mask=keep)
        assert found.shape == call["mask"].shape and found.dtype == torch.float32
        np.testing.assert_allclose(found.numpy(), np.repeat(expected[:, None], found.shape[1], 1), atol=1e-6)
        if step == 3:
            baseline = begun(4)
    with pytest.raises(FileNotFoundError):
        begun(7)
    with pytest.raises(ValueError, match="prompt's id"):
        baseline.compute_advantage(torch.arange(4), torch.zeros(4), torch.ones(4, 3))


# As in nemo_rl/algorithms/grpo.py since 65be481, and before.
@pytest.mark.parametrize("grpo_state", [Namespace(total_steps=0), {"total_steps": 0}], ids=["dataclass", "dict"])
def test_integration_recipe_nemo_rl_is_put_where_its_trainers_look(grpo_state, tmp_path, monkeypatch):
    made = {"kae_nemo_rl": run("nemo-rl", 0)}
    grpo, sync = (add_module(made, f"nemo_rl.algorithms.{name}") for name in ("grpo", "grpo_sync"))
    put_in_place(monkeypatch, made)
    config = Namespace(checkpointing={"checkpoint_dir": str(tmp_path)})
    run("nemo-rl", 1, tokenizer=Namespace(pad_token_id=0), config=config, grpo_state=grpo_state)
    for module in (grpo, sync):
        estimator = module._create_advantage_estimator({})
        found = estimator.compute_advantage(**nemo_rl_step(["a", "a"], np.float32([1, 0]), np.random.default_rng(0)))
        assert found[:, 0].tolist()[0] > 0 > found[:, 0].tolist()[1]
