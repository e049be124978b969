"""A tiny model trains through TRL, and the advantages in its loss are the estimator's."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_trl import RecordingTrainer, tiny_trainer

from kaestat import AdvantageEstimator

METHODS = {"kae": {"bandwidth": 5.0}, "kae_eb": {"bandwidth": 5.0}, "rloo": {}, "spo": {}}


@pytest.mark.parametrize("method", METHODS)
def test_advantages_in_the_loss_are_those_of_the_estimator(method, tmp_path):
    trainer = tiny_trainer(
        tmp_path, AdvantageEstimator(method, **METHODS[method]), trainer_class=RecordingTrainer, max_steps=4
    )
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()

    plain = AdvantageEstimator(method, **METHODS[method])
    assert len(trainer.batches) == 4
    for step, batch in enumerate(trainer.batches):
        expected = plain.step(batch["prompts"], batch["rewards"].sum(dim=1).double(), step)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected.numpy(), atol=1e-6)
    assert any(batch["advantages"].abs().max() > 0.1 for batch in trainer.batches)
    assert any((now != then).any() for now, then in zip(trainer.model.parameters(), before, strict=True))
