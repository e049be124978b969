"""TRL's asynchronous trainer on a CPU: a server that answers as vLLM does, and attention without a GPU's kernel."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # read by the worker's process too

import torch
from accelerate.state import PartialState
from datasets import Dataset
from trl.chat_template_utils import qwen2_5_chat_template
from trl.experimental.async_grpo import AsyncGRPOConfig, async_grpo_trainer, async_rollout_worker, packing
from trl.experimental.async_grpo.async_rollout_worker import (
    RolloutGroup,
    RolloutSample,
    TrainingSequence,
    _AsyncRolloutLoop,
)

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.trl.async_trainer import BaselineAsyncGRPOTrainer
from kaestat.integrations.trl.group_scoring import GroupScorer, baseline_loop
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer

SIZE = TinySize(width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16, context=512)


def any_order(method: str = "kae:bandwidth=10", **options) -> AdvantageEstimator:
    """An estimator as the trainer takes it."""
    return AdvantageEstimator(method, order="any", keep_deltas=True, **options)


def chats(n_prompts: int) -> Dataset:
    """Conversations with an id of their own."""
    return Dataset.from_dict(
        {
            "prompt": [[{"role": "user", "content": f"{k}+1="}] for k in range(n_prompts)],
            "question_id": [f"q{k}" for k in range(n_prompts)],
        }
    )


def chat_tokenizer():
    """The tiny tokenizer with a chat template that TRL knows."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = qwen2_5_chat_template
    return tokenizer


def write_model(folder: Path) -> str:
    """The tiny model, where the trainer reads it from."""
    tokenizer = chat_tokenizer()
    tiny_model(tokenizer, seed=0, size=SIZE).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def given(reward, **_) -> list[float | None]:
    """The reward that stands in the row."""
    return list(reward)


def parity(completion_ids, **_) -> list[float]:
    """1 for completions whose token ids have an even sum; of a module, so that the worker's process finds it."""
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]


def group(
    ids: list[str], rewards: list[float | None], version: int, *, rows: list[int] | None = None, group_id: int = 0
) -> RolloutGroup:
    """A group as TRL's worker hands it to scoring; ``rows`` training rows of each conversation, of 2, 3, ... tokens."""
    rows = [1] * len(rewards) if rows is None else rows
    sequences = [
        [TrainingSequence([7] * (3 + k), [0] + [1] * (2 + k), [-1.0] * (3 + k), f"{k}") for _ in range(n)]
        for k, n in enumerate(rows)
    ]
    return RolloutGroup(
        prompts=[[{"role": "user", "content": f"prompt {key}"}] for key in ids],
        reward_kwargs={"reward": list(rewards), "question_id": list(ids)},
        completions=[[{"role": "assistant", "content": "x"}] for _ in rewards],
        completions_ids=[[7, 7] for _ in rewards],
        completions_sequences=sequences,
        tool_call_counts=[0] * len(rewards),
        tool_failure_counts=[0] * len(rewards),
        model_version=version,
        group_id=group_id,
        env_rewards=[None] * len(rewards),
        rollout_rewards=[None] * len(rewards),
    )


class InProcess:
    """The loop of TRL's worker, in this process, with the advantages of an estimator; without one, TRL's own."""

    def __init__(self, estimator: AdvantageEstimator | None, *, prompt_id="question_id", weights="none", check=True):
        PartialState()  # TRL's logger asks for it
        make = _AsyncRolloutLoop
        if estimator is not None:
            scorer = GroupScorer(TrainerSession(estimator, weights=weights), prompt_id, check)
            make = partial(baseline_loop, _AsyncRolloutLoop, scorer)
        self.version = SimpleNamespace(value=0)
        self.loop = make(
            model_name="tiny",
            dataset=chats(4),
            reward_funcs=[given],
            processing_class=chat_tokenizer(),
            eos_token_ids=[0],
            rollout_buffer=Queue(),
            model_version_value=self.version,
            heartbeat_value=SimpleNamespace(value=0.0),
            failed_event=threading.Event(),
            exception_info_queue=Queue(),
            metrics_queue=Queue(),
        )

    def score(self, group: RolloutGroup, now: int) -> list[RolloutSample]:
        """What TRL's own loop gets for a group, at a version of the policy."""
        self.version.value = now
        return self.loop._loop.run_until_complete(self.loop._score_group(group))

    def close(self):
        self.loop._loop.close()


class _Completions(BaseHTTPRequestHandler):
    """vLLM's answer to a prompt: three tokens drawn by the request's seed, and their log probabilities."""

    def do_POST(self):
        time.sleep(0.05)  # or the worker runs ahead as far as TRL's queues let it
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = [random.Random(request["seed"]).randrange(3, 200) for _ in range(3)]
        choice = {"token_ids": tokens, "logprobs": {"token_logprobs": [-5.0] * 3}}
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextmanager
def completions_server() -> Iterator[str]:
    """The address of a server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Completions)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class NoTransfer:
    """Stands for the transfer of weights to vLLM: TRL's own protocol, doing nothing."""

    def init_weight_transfer(self):
        pass

    def pause(self):
        pass

    def send_weights(self, iterator):
        for _ in iterator:
            pass

    def resume(self):
        pass

    def destroy(self):
        pass


def varlen_attention(query, key, value, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal, window_size):
    """What FlashAttention computes, slowly: every segment of queries with its own keys, causal at their end."""
    assert causal and window_size == (-1, -1)
    found = []
    for q_from, q_to, k_from, k_to in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        q, k, v = (x.transpose(0, 1) for x in (query[q_from:q_to], key[k_from:k_to], value[k_from:k_to]))
        k, v = (x.repeat_interleave(len(q) // len(x), dim=0) for x in (k, v))
        n_q, n_k = q.shape[1], k.shape[1]
        seen = torch.arange(n_k)[None] <= torch.arange(n_q)[:, None] + n_k - n_q
        scores = (q @ k.transpose(1, 2) * softmax_scale).masked_fill(~seen, -torch.inf)
        found.append((scores.softmax(dim=-1) @ v).transpose(0, 1))
    return torch.cat(found)


def stand_in(monkeypatch) -> None:
    """Put the attention in the kernel's place. TRL also asks for vLLM, which it calls by HTTP, and a GPU's speed."""
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=varlen_attention))
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda accelerator, dtype: None)
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)


def async_trainer(
    folder: Path,
    model: str,
    server: str,
    estimator: AdvantageEstimator,
    *,
    trainer_class: type[BaselineAsyncGRPOTrainer] = BaselineAsyncGRPOTrainer,
    n_prompts: int = 4,
    dataset: Dataset | None = None,
    trainer_options: dict | None = None,
    **config,
) -> BaselineAsyncGRPOTrainer:
    """A trainer of 4 samples a step, in groups of 2."""
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 4,
        "max_steps": 4,
        "max_inflight_tasks": 2,
        "token_budget": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "learning_rate": 1e-2,
        "gradient_checkpointing": False,
        "vllm_server_base_url": server,
    } | config
    return trainer_class(
        model=model,
        reward_funcs=parity,
        args=AsyncGRPOConfig(**options),
        train_dataset=chats(n_prompts) if dataset is None else dataset,
        processing_class=chat_tokenizer(),
        weight_transfer=NoTransfer(),
        advantage_estimator=estimator,
        **(trainer_options or {}),
    )
