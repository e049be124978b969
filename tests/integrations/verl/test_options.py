"""What the user writes for verl, and what names a prompt there: read without verl."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import METHODS
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.integrations.verl.options import Options, keeps_history
from kaestat.integrations.verl.prompts import read_prompt

MESSAGES = [{"role": "user", "content": "2+2="}]


def test_text_is_read_as_on_the_command_line_and_numbers_as_they_are():
    given = {"params": {"bandwidth": "rate(c=2)", "kernel": "exponential"}}
    assert Options.read("kae", {"kaestat": given}).estimator().baseline.bandwidth.c == 2
    assert Options.read("kae", {"kaestat": {"params": {"bandwidth": 7}}}).params == {"bandwidth": 7}
    assert Options.read("kae", {"kaestat": {"objective": "pass@8"}}).estimator().objective == "pass@8"


def test_a_history_is_kept_exactly_by_the_methods_whose_second_step_depends_on_the_first():
    for method in (name for name, method in METHODS.items() if method.needs is None):
        rewards, ids = [1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"]
        fresh, used = AdvantageEstimator(method), AdvantageEstimator(method)
        for step in range(4):
            used.step(ids, [0.0, 0.0, 1.0, 0.0], step)
        differs = not np.allclose(used.step(ids, rewards, 4), fresh.step(ids, rewards, 4))
        assert differs == keeps_history(method), method


DRAWING = {"prompt_sampler": "neyman"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bandwidth": 3}, "bandwidth: unknown option; choose from params"),
        ({"weights": "lengths"}, "weights: unknown 'lengths'; choose one of none, length, score_norm"),
        ({"prompt_id": "uid"}, "prompt_id: unknown 'uid'"),
        (DRAWING | {"sampler_params": {"flor": 0.2}}, r"sampler_params\.flor: unknown parameter; choose from floor"),
        (DRAWING | {"sampler_params": 0.2}, "sampler_params must be a mapping"),
        ({"sampler_params": {"floor": 0.2}}, "sampler_params: no prompts are drawn without prompt_sampler"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(given, message):
    with pytest.raises(ValueError, match=rf"algorithm\.kaestat\.{message}"):
        Options.read("kae", {"kaestat": given}).estimator()


def test_an_index_is_told_apart_by_source_and_split():
    ids = {
        read_prompt("auto", source, {"split": split, "index": index}, MESSAGES).id
        for source in ("gsm8k", "math", None)
        for split in ("train", "test", None)
        for index in (0, 1, "0")
    }
    assert len(ids) == 27


@pytest.mark.parametrize("extra_info", [{}, {"index": None}, None, {"split": "train"}])
def test_without_an_index_the_prompt_is_its_own_name(extra_info):
    """verl's own column says 0 then, for every prompt."""
    assert read_prompt("auto", "gsm8k", extra_info, MESSAGES).id == hash_prompt(MESSAGES)


def test_a_key_of_ones_own():
    assert read_prompt("extra_info.problem", "gsm8k", {"problem": "p7", "index": 0}, MESSAGES).id == "p7"
    with pytest.raises(UnstablePromptIds, match=r"prompt_id=extra_info\.problem.*holds index.*prompt_id=prompt"):
        read_prompt("extra_info.problem", "gsm8k", {"index": 0}, MESSAGES)


def test_a_policy_is_checked_when_it_is_read_and_refused_where_no_prompts_are_drawn():
    options = Options.read("kae", {"kaestat": DRAWING | {"sampler_params": {"floor": 0.2}}})
    assert options.sampler_params == {"floor": 0.2}
    with pytest.raises(ValueError, match=r"prompt_sampler=neyman: this trainer takes prompts"):
        options.refuse_sampler("this trainer")
    Options.read("kae", None).refuse_sampler("this trainer")
    with pytest.raises(ValueError, match="unknown 'best'"):
        Options.read("kae", {"kaestat": {"prompt_sampler": "best"}})


def test_a_history_in_any_order_is_given_to_what_can_keep_one():
    def order(method):
        return Options.read(method, {"kaestat": {"params": {}}}).estimator(any_order=True).order

    assert [order(method) for method in ("kae", "rloo", "spo", "ebpo")] == ["any", "any", "strict", "strict"]
    assert Options.read("kae", None).estimator().order == "strict"
