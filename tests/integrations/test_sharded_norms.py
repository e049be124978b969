"""Norms from the training pass of a model whose parameters two processes share (FSDP), against one process."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from kaestat.integrations.adam_units import Units, mean_squares
from kaestat.integrations.backward_norms import norms_in_backward, not_zero
from tests.integrations.test_backward_norms import ADVANTAGES, gradients_of, loss_of
from tests.integrations.test_gradient_norms import VOCABULARY, Batch, llama, policy, qwen2, slow, stepped

PARTS = (slice(0, 2), slice(2, 5))
MODELS = {"tied": qwen2, "untied": lambda: llama(vocab_size=VOCABULARY + 2)}  # rows that two cannot share evenly


class Part(Batch):
    """A process's rows; FSDP takes means over processes, so what they add to the loss counts twice."""

    def __init__(self, model, rank):
        super().__init__(model)
        self.ids, self.mask, self.counted = self.ids[PARTS[rank]], self.mask[PARTS[rank]], self.counted[PARTS[rank]]

    def scores(self, rows=slice(None)):
        return 2 * super().scores(rows)


def fsdp1(model, layer, sharding=ShardingStrategy.SHARD_GRAD_OP):
    return FullyShardedDataParallel(
        model,
        sharding_strategy=sharding,
        auto_wrap_policy=ModuleWrapPolicy({layer}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def copies(model, layer):
    return fsdp1(model, layer, ShardingStrategy.NO_SHARD)


def fsdp2(model, layer):
    mesh = init_device_mesh("cpu", (2,))
    for each in model.model.layers:
        fully_shard(each, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole_gradients(model):
    if not isinstance(model, FullyShardedDataParallel):
        return {key: each.full_tensor() for key, each in gradients_of(model).items()}
    with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
        found = gradients_of(model).items()
        return {key.replace("_fsdp_wrapped_module.", ""): each.clone() for key, each in found}


def of_rank(rank, folder, names, shard):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in names:
        bare = policy(name, MODELS)
        bare.gradient_checkpointing_enable({"use_reentrant": False})
        model = shard(bare, type(bare.model.layers[0]))
        optimizer = stepped(model, batch=Part(model, rank))
        part, units = Part(model, rank), [Units(None), Units(mean_squares(optimizer, model))]
        with norms_in_backward(model, units) as norms:
            (2 * loss_of(part, not_zero(ADVANTAGES[PARTS[rank]]), norms)).backward()
        torch.save((norms.norms, whole_gradients(model)), f"{folder}/{name}-{rank}")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module", params=[fsdp1, copies, fsdp2])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(of_rank, (str(path), list(MODELS), request.param), nprocs=2)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_two_processes_have_the_norms_and_gradients_of_one(name, folder):
    model = policy(name, MODELS)
    squares, batch = mean_squares(stepped(model)), Batch(model)
    expected = [slow(batch), slow(batch, squares)]
    loss_of(batch, ADVANTAGES).backward()
    gradients = gradients_of(model)
    of_ranks = [torch.load(folder / f"{name}-{rank}") for rank in range(2)]
    for unit, norms in enumerate(expected):
        found = torch.cat([of_rank[0][unit] for of_rank in of_ranks])
        torch.testing.assert_close(found, norms, rtol=1e-3, atol=0)
    for _, found in of_ranks:
        assert found.keys() == gradients.keys()
        for key, each in gradients.items():
            torch.testing.assert_close(found[key], each, rtol=1e-3, atol=1e-5 * float(each.abs().max()), msg=key)


def test_rows_end_to_end_have_the_norms_of_rows_apart():
    """As in one long row without padding, each token seeing its own row alone; padding may follow."""
    model = policy("tied", MODELS)
    squares, batch = mean_squares(stepped(model)), Batch(model)
    expected = [slow(batch), slow(batch, squares)]
    whole = batch.mask.bool()
    lengths, places = whole.sum(1).tolist(), torch.arange(whole.shape[1]).expand_as(whole)
    # Left padding shifts a row's places; rotary attention sees their differences alone.
    given = {"input_ids": batch.ids[whole][None], "position_ids": places[whole][None]}
    given = {key: nn.functional.pad(each, (0, 3)) for key, each in given.items()}
    with norms_in_backward(model, [Units(None), Units(squares)]) as norms:
        logits = model(**given, use_cache=False).logits[0, :-3]
        log_probs = (logits / 0.7).log_softmax(-1)[:-1].gather(1, given["input_ids"][0, 1:-3, None])[:, 0]
        counted = torch.zeros(whole.shape)
        counted[:, -batch.counted.shape[1] :] = batch.counted
        before = counted[whole][1:]  # of the token that follows

        def rows(each):
            padded = torch.zeros(whole.shape)
            padded[whole] = nn.functional.pad(each, (1, 0))
            return padded

        norms.of_scores(log_probs, counted, rows=rows, lengths=lengths)
        advantages = not_zero(ADVANTAGES)[:, None].expand_as(whole)[whole][1:]
        (-(log_probs * before * advantages).sum() / 37.0).backward()
    for found, norm in zip(norms.norms, expected, strict=True):
        torch.testing.assert_close(found, norm, rtol=1e-4, atol=0)
