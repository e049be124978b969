"""Weights that a trainer's user asks for: refused where they are unknown, useless or missing."""

import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.method_checks import check_weights


@pytest.mark.parametrize(
    ("method", "weights", "message"),
    [
        ("kae", "score_norm", r"option: unknown 'score_norm'; choose one of none, length\.$"),
        ("kae", ["length"], r"option: unknown \['length'\]; choose one of"),
        ("spo", "length", "option=length: method 'spo' does not average rewards, so it takes none; take .* 'kae_eb'"),
        ("reinforce++", "length", "the advantages are the same without option=length; set scale='none'"),
        ("opo", "none", "option=none: method 'opo' averages by weights of completions; choose length"),
    ],
)
def test_weights_that_do_not_fit_are_refused(method, weights, message):
    with pytest.raises(ValueError, match=message):
        check_weights(AdvantageEstimator(method), weights, option="option")


def test_weights_that_fit_pass():
    for method, weights in (("spo", "none"), ("kae", "none"), ("kae", "length"), ("opo", "length")):
        check_weights(AdvantageEstimator(method), weights)


def test_all_that_a_trainer_has_are_named():
    with pytest.raises(ValueError, match="choose length or score_norm"):
        check_weights(AdvantageEstimator("opo"), "none", ("none", "length", "score_norm"))
