"""Command lines as the documentation gives them, against verl's own configuration and its own checks."""

import re
import shlex
from pathlib import Path

import pytest
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import validate_config

from kaestat import AdvantageEstimator
from tests.helpers.tiny_verl import SEPARATE, compose_config, make_trainer

PAGE = Path(__file__).parents[4] / "docs" / "frameworks" / "verl.md"


def test_the_script_of_the_documentation():
    page = PAGE.read_text(encoding="utf-8")
    (script,) = re.findall(r"python -m verl\.trainer\.main_ppo (.*?)```", page, flags=re.DOTALL)
    config = compose_config(*shlex.split(script.replace("\\\n", " ")))
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert config.data.kaestat == {"repeats": 10, "n_steps": 500}
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    assert trainer.session.estimator.baseline == AdvantageEstimator().baseline


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+algorithm.kaestat.params.bandwith=10", "bandwith"),
        ("+algorithm.kaestat.params.bandwidth=-1", "bandwidth"),
        ("+algorithm.kaestat.bandwidth=10", r"algorithm\.kaestat\.bandwidth"),
    ],
)
def test_a_wrong_option_stops_the_run_before_it_begins(override, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(override)


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        ("kae", "", r"adv_estimator=kae needs the prompts' ids and the step.*trainer_mode=kaestat_sync"),
        ("kaestat_pooled", "", "adv_estimator=pooled needs the prompts' ids"),
        ("kaestat_rloo", "+algorithm.kaestat.weights=score_norm", "score_norm needs the actor's probabilities"),
        ("kaestat_opo", "+algorithm.kaestat.weights=adam", "norms from the actor, .*kaestat_sync"),
        ("kaestat_rloo", "+algorithm.kaestat.prompt_sampler=neyman", "a trainer of verl's own takes prompts in"),
        ("kaestat_rloo", "+algorithm.kaestat.scales=none", r"algorithm\.kaestat\.scales: unknown option"),
    ],
)
def test_verls_own_trainers_refuse_before_workers_start_what_needs_ours(method, override, message, mode):
    with pytest.raises(ValueError, match=message):
        make_trainer(*SEPARATE, *filter(None, [override]), mode=mode, method=method)


@pytest.mark.parametrize("mode", ["sync", "kaestat_sync"])
@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        ("kaestat_rloo", "actor_rollout_ref.rollout.n=1", r"actor_rollout_ref\.rollout\.n=1: rloo"),
        ("james_stein", "+algorithm.kaestat.scale=group_std", "scale: 'group_std' divides .*Take 'batch_std'"),
    ],
)
def test_groups_and_scales_that_do_not_fit_stop_the_run_before_it_begins(method, override, message, mode):
    with pytest.raises(ValueError, match=message):
        make_trainer(override, mode=mode, method=method)
