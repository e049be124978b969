"""Baselines, one family per file; `kaestat.make_baseline` makes them by name."""

from kaestat.baselines.base import Baseline
from kaestat.baselines.batch_mean import BatchMean
from kaestat.baselines.bayes_filter import BayesFilter
from kaestat.baselines.bnpo import Bnpo
from kaestat.baselines.ebpo import Ebpo
from kaestat.baselines.group_mean import GroupMean
from kaestat.baselines.grpo_passk import GrpoPassk
from kaestat.baselines.james_stein import JamesStein
from kaestat.baselines.kae import Kae
from kaestat.baselines.kae_eb import KaeEb
from kaestat.baselines.kae_stream import KaeStream
from kaestat.baselines.kalman import Kalman
from kaestat.baselines.krpo import Krpo
from kaestat.baselines.local_polynomial import LocalLinear, LocalPolynomial
from kaestat.baselines.maxrl import MaxRl
from kaestat.baselines.mc_grpo import McGrpo
from kaestat.baselines.opo import Opo
from kaestat.baselines.oracle import Oracle
from kaestat.baselines.outside_value import OutsideValue
from kaestat.baselines.pooled import Pooled
from kaestat.baselines.qae import Qae
from kaestat.baselines.reinforce import Zero
from kaestat.baselines.remax import Remax
from kaestat.baselines.sieve import Sieve
from kaestat.baselines.spo import Spo

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
