"""verl without GPUs or workers: its real configuration, its real trainers, batches in its real transfer queue."""

import copy
import os
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.utils.torch_functional import calculate_sum_pi_squared_from_logits

import kaestat.integrations.verl  # noqa: F401  (registers)
from kaestat.integrations.shared.session import TrainerSession

RESPONSE = 5  # longest response, tokens
SEPARATE = (  # what verl's separate_async needs
    "data.train_batch_size=16",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
)


@cache
def _composed(overrides):
    folder = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", overrides=list(overrides))


def compose_config(*overrides):
    """verl's own configuration with a command line's overrides."""
    return copy.deepcopy(_composed(overrides))


def make_trainer(*overrides, mode="kaestat_sync", method="kae"):
    """A trainer as verl's main program makes it, before workers are started."""
    config = compose_config(
        f"trainer.v1.trainer_mode={mode}",
        f"algorithm.adv_estimator={method}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.rollout.n=2",
        *overrides,
    )
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)(config)
    trainer.tokenizer = SimpleNamespace(eos_token_id=0)
    trainer.global_steps = 0
    return trainer


def sample(uid, session, output, prompt, index, reward, length, *, data_source="sums"):
    """One output of an agent loop as its worker puts it into the transfer queue."""
    scores = torch.zeros(length)
    scores[-1] = reward
    return {
        "uid": uid,
        "session_id": session,
        "output": output,
        "prompts": torch.ones(3, dtype=torch.int64),
        "responses": torch.ones(length, dtype=torch.int64),
        "input_ids": torch.ones(3 + length, dtype=torch.int64),
        "position_ids": torch.arange(3 + length),
        "response_mask": torch.ones(length, dtype=torch.int64),
        "loss_mask": torch.ones(length, dtype=torch.int64),
        "rm_scores": scores,
        "raw_prompt": [{"role": "user", "content": prompt}],
        "extra_info": {} if index is None else {"split": "train", "index": index},
        "index": 0 if index is None else index,
        "data_source": data_source,
        "num_turns": 2,
    }


def put(queue, samples, tags=None):
    """Samples into the transfer queue."""
    keys = [f"{row['uid']}_{row['session_id']}_{row['output']}" for row in samples]
    tags = tags or [{} for _ in samples]
    tags = [{"seq_len": len(row["input_ids"]), **tag} for row, tag in zip(samples, tags, strict=True)]
    queue.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(samples), tags=tags)
    return KVBatchMeta(keys=keys, tags=tags, partition_id="train")


def compute(queue, trainer, batch, step):
    """Token-level advantages of a batch at a step (0-based), by key; the trainer's metrics; the queue is left empty."""
    trainer.global_steps = step + 1
    metrics = {}
    try:
        trainer._compute_advantage(batch, metrics)
        data = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages", "returns"])
        for advantages, returns in zip(data["advantages"].unbind(), data["returns"].unbind(), strict=True):
            assert torch.equal(advantages, returns)
        return dict(zip(batch.keys, data["advantages"].unbind(), strict=True)), metrics
    finally:
        queue.kv_clear(keys=batch.keys, partition_id="train")


class Actor:
    """Stands for verl's actor workers: writes what its FSDP engine returns of random logits into the queue.

    Like the engine it gives numbers of prompt and response, those of a token at the place before it.
    """

    def __init__(self, queue, *, vocabulary=7, engine_has_squares=True, seed=0):
        self.queue, self.vocabulary, self.engine_has_squares = queue, vocabulary, engine_has_squares
        self.rng = np.random.default_rng(seed)
        self.asked, self.norms, self.row_norms = [], {}, {}

    def try_norms(self):
        self.asked.append("tried")

    def compute_log_prob(self, batch):
        self.asked.append(batch.extra_info.get("calculate_sum_pi_squared", False))
        wanted = batch.extra_info.get("kaestat_norms")
        stored = self.queue.kv_batch_get(
            keys=batch.keys, partition_id="train", select_fields=["input_ids", "responses"]
        )
        rows = []
        for key, ids, response in zip(
            batch.keys, stored["input_ids"].unbind(), stored["responses"].unbind(), strict=True
        ):
            logits = torch.tensor(3 * self.rng.standard_normal((len(ids), self.vocabulary)), dtype=torch.float32)
            log_pi, following = logits.log_softmax(dim=-1), ids.roll(-1)
            found = {"log_probs": log_pi[torch.arange(len(ids)), following]}
            found["entropy"] = -(log_pi.exp() * log_pi).sum(dim=-1)
            if self.asked[-1] and self.engine_has_squares:
                found["sum_pi_squared"] = calculate_sum_pi_squared_from_logits(logits)
            if wanted is not None:
                self.row_norms[key] = wanted, self.rng.gamma(3.0)
                found["kaestat_norms"] = torch.tensor([self.row_norms[key][1]], dtype=torch.float32)
            one_hot = torch.nn.functional.one_hot(following, self.vocabulary)
            norms = (one_hot - log_pi.exp()).double().square().sum(dim=-1)
            self.norms[key] = norms[-len(response) - 1 : -1]
            rows.append(found)
        put_fields(self.queue, batch, rows)
        return batch


def put_fields(queue, batch, rows):
    """More fields for the rows of a batch."""
    fields = list_of_dict_to_tensordict(rows)
    queue.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields, tags=batch.tags)


def balance(trainer, batch, dp_size=2):
    """verl's own padding to full minibatches and reordering over ``dp_size`` ranks."""
    trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(dp_size))})
    return trainer._balance_batch(batch, metrics={})


class QueueAdapter:
    """A trainer and the transfer queue, in the words of the conformance kit."""

    def __init__(self, queue, estimator):
        self.queue, self.trainer = queue, make_trainer()
        self.trainer.session = TrainerSession(estimator)
        self.lengths = np.random.default_rng(5)

    def advantages(self, rows):
        sessions, samples, tags = {}, [], []
        for prompt, index, uid, reward, padding in zip(
            rows.prompts, rows.ids, rows.uids, rows.rewards, rows.padding, strict=True
        ):
            session = sessions[uid] = sessions.get(uid, -1) + 1
            samples.append(sample(uid, session, 0, prompt, index, reward, int(self.lengths.integers(1, RESPONSE))))
            tags.append({"is_padding": True} if padding else {})
        batch = put(self.queue, samples, tags)
        advantages, _ = compute(self.queue, self.trainer, batch, rows.step)
        for key, tokens in advantages.items():
            assert (tokens == tokens[0]).all(), f"{key}: the advantage differs between tokens of a response"
        return np.array([advantages[key][0] for key in batch.keys], dtype=float)

    def state(self):
        return self.trainer.session.state_dict()

    def restore(self, state):
        self.trainer.session.load_state_dict(state)
