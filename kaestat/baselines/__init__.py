"""Baselines, one family per file; `kaestat.make_baseline` makes them by name."""

from kaestat.baselines.base import Baseline as Baseline
from kaestat.baselines.batch_mean import BatchMean as BatchMean
from kaestat.baselines.batch_mean import Zero as Zero
from kaestat.baselines.bayes_filter import BayesFilter as BayesFilter
from kaestat.baselines.group_mean import GroupMean as GroupMean
from kaestat.baselines.group_mean import Pooled as Pooled
from kaestat.baselines.kae import Kae as Kae
from kaestat.baselines.kae_eb import KaeEb as KaeEb
from kaestat.baselines.kae_stream import KaeStream as KaeStream
from kaestat.baselines.oracle import Oracle as Oracle
from kaestat.baselines.outside_value import OutsideValue as OutsideValue
from kaestat.baselines.published.bnpo import Bnpo as Bnpo
from kaestat.baselines.published.ebpo import Ebpo as Ebpo
from kaestat.baselines.published.grpo_passk import GrpoPassk as GrpoPassk
from kaestat.baselines.published.james_stein import JamesStein as JamesStein
from kaestat.baselines.published.kalman import Kalman as Kalman
from kaestat.baselines.published.krpo import Krpo as Krpo
from kaestat.baselines.published.local_polynomial import LocalLinear as LocalLinear
from kaestat.baselines.published.local_polynomial import LocalPolynomial as LocalPolynomial
from kaestat.baselines.published.maxrl import MaxRl as MaxRl
from kaestat.baselines.published.mc_grpo import McGrpo as McGrpo
from kaestat.baselines.published.opo import Opo as Opo
from kaestat.baselines.published.qae import Qae as Qae
from kaestat.baselines.published.remax import Remax as Remax
from kaestat.baselines.published.sieve import Sieve as Sieve
from kaestat.baselines.published.spo import Spo as Spo
