"""Baselines, one family per file; `kaestat.make_baseline` makes them by name."""

from kaestat.baselines.base import Baseline
from kaestat.baselines.batch_mean import BatchMean
from kaestat.baselines.bayes_filter import BayesFilter
from kaestat.baselines.group_mean import GroupMean
from kaestat.baselines.kae import Kae
from kaestat.baselines.kae_eb import KaeEb
from kaestat.baselines.kae_stream import KaeStream
from kaestat.baselines.oracle import Oracle
from kaestat.baselines.outside_value import OutsideValue
from kaestat.baselines.pooled import Pooled
from kaestat.baselines.published.bnpo import Bnpo
from kaestat.baselines.published.ebpo import Ebpo
from kaestat.baselines.published.grpo_passk import GrpoPassk
from kaestat.baselines.published.james_stein import JamesStein
from kaestat.baselines.published.kalman import Kalman
from kaestat.baselines.published.krpo import Krpo
from kaestat.baselines.published.local_polynomial import LocalLinear, LocalPolynomial
from kaestat.baselines.published.maxrl import MaxRl
from kaestat.baselines.published.mc_grpo import McGrpo
from kaestat.baselines.published.opo import Opo
from kaestat.baselines.published.qae import Qae
from kaestat.baselines.published.remax import Remax
from kaestat.baselines.published.sieve import Sieve
from kaestat.baselines.published.spo import Spo
from kaestat.baselines.reinforce import Zero

__all__ = [
    "Baseline",
    "BatchMean",
    "BayesFilter",
    "Bnpo",
    "Ebpo",
    "GroupMean",
    "GrpoPassk",
    "JamesStein",
    "Kae",
    "KaeEb",
    "KaeStream",
    "Kalman",
    "Krpo",
    "LocalLinear",
    "LocalPolynomial",
    "MaxRl",
    "McGrpo",
    "Opo",
    "Oracle",
    "OutsideValue",
    "Pooled",
    "Qae",
    "Remax",
    "Sieve",
    "Spo",
    "Zero",
]
