"""Baselines inside TRL: `BaselineGRPOTrainer`, a ``GRPOTrainer`` whose advantages come from an `AdvantageEstimator`.

Tested with TRL 1.16.0 (1.15.0 once), transformers 5.23.0, accelerate 1.15.0 and torch 2.13.0. TRL's hooks that are used
here carry a leading underscore and may change; a TRL without them is refused on import.
"""

from kaestat.integrations.trl.checkpoints import SAMPLER_FILE, STATE_FILE
from kaestat.integrations.trl.config import BaselineGRPOConfig
from kaestat.integrations.trl.trainer import BaselineGRPOTrainer

__all__ = ["SAMPLER_FILE", "STATE_FILE", "BaselineGRPOConfig", "BaselineGRPOTrainer"]
