"""The reuse schedule as verl loads it: right prompts at each step, also after a resume; validation untouched."""

import pandas as pd
import pytest
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_dataset, create_rl_sampler
from verl.utils.dataset.rl_dataset import collate_fn

from kaestat.sampling.schedules import reuse
from tests.helpers.tiny_verl import compose_config

N, BATCH, J = 11, 3, 4


class Tokenizer:
    """One token a character."""

    def apply_chat_template(self, messages, **kwargs):
        return [ord(letter) for message in messages for letter in message["content"]]


def rows_of(count):
    return [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{k}+1="}],
            "reward_model": {"ground_truth": str(k + 1)},
            "extra_info": {"split": "train", "index": k},
        }
        for k in range(count)
    ]


@pytest.fixture
def files(tmp_path):
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    pd.DataFrame(rows_of(N)).to_parquet(train)
    pd.DataFrame(rows_of(2)).to_parquet(test)
    return str(train), str(test)


def data_config(files, *overrides):
    train, test = files
    return compose_config(
        f"data.train_files={train}",
        f"data.val_files={test}",
        f"data.train_batch_size={BATCH}",
        "data.max_prompt_length=16",
        "data.filter_overlong_prompts_workers=1",
        "data.custom_cls.path=pkg://kaestat.integrations.verl.dataset",
        "data.custom_cls.name=ReuseSchedule",
        "data.shuffle=False",
        *overrides,
    ).data


def training_set(config):
    return create_rl_dataset(config.train_files, config, Tokenizer(), None, is_train=True)


def loader(config, dataset):
    return StatefulDataLoader(
        dataset=dataset,
        batch_size=BATCH,
        num_workers=0,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=create_rl_sampler(config, dataset),
    )


def test_each_step_has_the_prompts_of_the_schedule(files):
    config = data_config(files, f"+data.kaestat.repeats={J}", "+data.kaestat.n_steps=18", "data.seed=3")
    steps = [batch["index"].tolist() for batch in loader(config, training_set(config))]
    assert steps == reuse(N, BATCH, 18, repeats=J, seed=3).tolist()


def test_a_resumed_loader_goes_on_where_it_stopped(files):
    config = data_config(files, f"+data.kaestat.repeats={J}", "+data.kaestat.n_steps=18")
    dataset = training_set(config)
    whole = [batch["index"].tolist() for batch in loader(config, dataset)]
    stopped = loader(config, dataset)
    iterator = iter(stopped)
    for _ in range(6):
        next(iterator)
    state = stopped.state_dict()

    resumed = training_set(config)
    resumed.resume_dataset_state()  # as a loader's workers do: reads the files again
    again = loader(config, resumed)
    again.load_state_dict(state)
    assert [batch["index"].tolist() for batch in again] == whole[6:]


def test_validation_is_left_as_it_is(files):
    config = data_config(files, f"+data.kaestat.repeats={J}")
    dataset = create_rl_dataset(config.val_files, config, Tokenizer(), None, is_train=False)
    assert [dataset[k]["index"] for k in range(len(dataset))] == [0, 1]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.shuffle=True", "+data.kaestat.repeats=2"), r"data\.shuffle must be False"),
        ((), r"\+data\.kaestat\.repeats=10"),
        (("+data.kaestat.repeat=2",), r"data\.kaestat\.repeat: unknown option"),
        (("+data.kaestat.repeats=2", "data.train_batch_size=12"), "batch_size=12 exceeds n_prompts=11"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(files, overrides, message):
    config = data_config(files, *overrides)
    with pytest.raises(ValueError, match=message):
        training_set(config)


def test_one_file_for_training_and_validation_is_refused(files):
    config = data_config((files[0], files[0]), "+data.kaestat.repeats=2")
    with pytest.raises(ValueError, match="a file of its own"):
        training_set(config)
