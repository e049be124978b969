"""Which prompts come when: TRL's order, each minibatch ``reuse`` generations in a row."""

import itertools

import pytest
from datasets import IterableDataset
from trl.trainer.utils import RepeatSampler

from kaestat import AdvantageEstimator
from kaestat.integrations.trl.sampler import ReuseSampler
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_trl import questions, train_tiny


def generations(folder, *, reuse, max_steps, n_prompts=12, dataset=None, **config) -> list[frozenset[str]]:
    """The prompts of each generation."""
    trainer = train_tiny(
        folder,
        AdvantageEstimator("kae", bandwidth=5.0),
        n_prompts=n_prompts,
        trainer_options={"reuse": reuse},
        max_steps=max_steps,
        dataset=dataset,
        **config,
    )
    for batch in trainer.batches:  # groups of 2, side by side
        assert batch["prompts"][::2] == batch["prompts"][1::2]
    kept = [tuple(map(tuple, batch["completions"].tolist())) for batch in trainer.batches]
    assert len(set(kept)) == len(kept), "completions were not fresh"
    return [frozenset(batch["prompts"]) for batch in trainer.batches]


@pytest.mark.parametrize(
    ("reuse", "config", "updates"),
    slow_after(
        2,
        [
            (3, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 2}, 2),
            (3, {"num_iterations": 2}, 2),
            (3, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}, 1),
            (1, {}, 1),
        ],
    ),
)
def test_each_minibatch_is_used_for_that_many_generations_in_a_row(reuse, config, updates, tmp_path):
    seen = generations(tmp_path, reuse=reuse, max_steps=6 * updates, **config)
    assert len(seen) == 6
    minibatches = [minibatch for minibatch, _ in itertools.groupby(seen)]
    assert len(minibatches) == 6 // reuse
    assert all(len(list(run)) == reuse for _, run in itertools.groupby(seen))
    assert len(frozenset.union(*minibatches[:3])) == 4 * min(3, len(minibatches))  # a pass repeats no prompt


def test_a_streamed_data_set_is_trained_on_in_its_order_and_not_reused(tmp_path):
    rows = questions(8)
    stream = IterableDataset.from_generator(lambda: iter(rows.to_list()))
    seen = generations(tmp_path, reuse=1, max_steps=2, dataset=stream, shuffle_dataset=False)
    assert seen == [frozenset(rows["prompt"][:4]), frozenset(rows["prompt"][4:])]
    with pytest.raises(ValueError, match="reuse does not go with a data set that is streamed"):
        generations(tmp_path, reuse=2, max_steps=2, dataset=stream)


@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_have_the_order_of_trl(shuffle):
    now = {"epoch": 0}
    ours = ReuseSampler(range(11), 2, batch_size=4, repeat_count=3, shuffle=shuffle, seed=5, epoch=lambda: now["epoch"])
    theirs = RepeatSampler(range(11), 2, batch_size=4, repeat_count=3, shuffle=shuffle, seed=5)
    assert len(ours) == len(theirs) == len(list(ours))
    for now["epoch"] in range(3):
        assert list(ours) == list(ours) == list(theirs)
