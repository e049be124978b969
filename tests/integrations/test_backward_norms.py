"""Norms from the pass that trains, against a loop over completions and a plain backward pass."""

import pytest
import torch

from kaestat.integrations import row_norms
from kaestat.integrations.adam_units import Units, mean_squares
from kaestat.integrations.backward_norms import TINY, norms_in_backward, not_zero
from kaestat.integrations.row_norms import FusedHead
from tests.integrations.test_gradient_norms import PROMPT, Batch, model, policy, slow, stepped  # noqa: F401

ADVANTAGES = torch.tensor([0.7, -0.2, 0.0, 1e-20, -0.9])  # two rows send nothing back, or as good as nothing


def loss_of(batch, advantages, norms=None, *, fused=False):
    """As of GRPO, over a normaliser; for advantages of rows, or of tokens. Logits come from the model as a whole."""
    given, completions = {"input_ids": batch.ids, "attention_mask": batch.mask}, batch.ids[:, PROMPT:]
    if fused:
        head, hidden = batch.model.get_output_embeddings(), batch.model.base_model(**given).last_hidden_state
        hidden = hidden[:, PROMPT - 1 : -1]
        logits = hidden @ head.weight.T
    else:
        logits = batch.model(**given).logits[:, PROMPT - 1 : -1]
    log_probs = (logits / 0.7).log_softmax(-1).gather(2, completions[..., None])[..., 0]
    if norms is not None:
        head = FusedHead(head, hidden.detach(), completions, log_probs.detach(), 0.7) if fused else None
        norms.of_scores(log_probs, batch.counted, head)
    ratio = (log_probs - log_probs.detach()).exp()
    return -(advantages.reshape(len(advantages), -1) * ratio * batch.counted).sum() / 37.0


def gradients_of(policy):
    found = {name: each.grad for name, each in policy.named_parameters() if each.grad is not None}
    policy.zero_grad()
    return found


@pytest.mark.parametrize(
    ("fused", "checkpointing", "short"),
    [(False, {"use_reentrant": False}, True), (True, {"use_reentrant": True}, False)],
    ids=["logits", "fused head"],
)
def test_norms_of_the_training_pass_are_those_of_a_loop_and_its_gradients_stay(  # as short rows, and as long ones
    model,  # noqa: F811
    checkpointing,
    fused,
    short,
    monkeypatch,
):
    monkeypatch.setattr(row_norms, "ELEMENT", 1e9 if short else 0)
    monkeypatch.setattr(row_norms, "VOCABULARY", 7)
    squares, batch = mean_squares(stepped(model)), Batch(model)
    expected = [slow(batch), slow(batch, squares)]
    loss_of(batch, ADVANTAGES, fused=fused).backward()
    plain = gradients_of(model)
    model.train().gradient_checkpointing_enable(checkpointing)
    model.enable_input_require_grads()
    with norms_in_backward(model, [Units(None), Units(squares)]) as norms:
        loss_of(batch, not_zero(ADVANTAGES), norms, fused=fused).backward()
    for found, norm in zip(norms.norms, expected, strict=True):
        torch.testing.assert_close(found, norm, rtol=1e-4, atol=0)
    found = gradients_of(model)
    assert found.keys() == plain.keys()
    for name, each in plain.items():
        torch.testing.assert_close(found[name], each, rtol=1e-4, atol=1e-6 * float(each.abs().max()), msg=name)


def test_a_loss_whose_scores_are_not_given_keeps_its_gradients(model):  # noqa: F811
    batch = Batch(model)
    loss_of(batch, ADVANTAGES).backward()
    plain = gradients_of(model)
    with norms_in_backward(model, [Units(None)]) as norms:
        loss_of(batch, ADVANTAGES).backward()
    assert norms.norms == []
    torch.testing.assert_close(gradients_of(model), plain)


def test_advantages_that_are_not_zero_keep_all_digits():
    given = torch.tensor([0.3, -1e-3, 0.0, -1e-30, TINY])
    assert not_zero(given).tolist() == pytest.approx([0.3, -1e-3, TINY, -TINY, TINY], rel=1e-7)


def test_a_row_that_sends_nothing_back_or_differs_by_token_has_no_norm(model):  # noqa: F811
    """Silence would make a weight of it: of 0, or of another gradient than the score's."""
    batch = Batch(model)
    advantages = ADVANTAGES[:, None].expand(-1, batch.counted.shape[1]).clone()
    advantages[0, 2] *= 1.5
    with norms_in_backward(model, [Units(None)]) as norms:
        loss_of(batch, advantages, norms).backward()
    assert norms.norms[0].isnan().tolist() == [True, False, True, False, False]


@pytest.mark.parametrize("name", ["tied", "untied", "LoRA"])
@pytest.mark.parametrize("fused", [False, True], ids=["logits", "fused head"])
def test_norms_under_autocast_are_those_of_a_loop_under_autocast(name, fused):
    """Rows' factors are powers of two, so that both round alike to bfloat16; others round 2 % of a norm away."""
    made = policy(name)
    squares, batch = mean_squares(stepped(made)), Batch(made)
    with torch.autocast("cpu", torch.bfloat16):
        expected = [slow(batch), slow(batch, squares)]
        with norms_in_backward(made, [Units(None), Units(squares)]) as norms:
            loss = loss_of(batch, 37 * torch.tensor([0.5, -0.25, TINY, -TINY, -1.0]), norms, fused=fused)
    loss.backward()
    for found, norm in zip(norms.norms, expected, strict=True):
        torch.testing.assert_close(found, norm, rtol=1e-2, atol=0)
