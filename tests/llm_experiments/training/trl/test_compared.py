"""The estimates against committed measurements: what is said of their error is what the measurements show."""

import math
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llm_experiments.training.shapes import GIB, ModelShape
from llm_experiments.training.trl import compared, measured_steps
from llm_experiments.training.trl.measured_steps import CASES, Case
from llm_experiments.training.trl.resources import KNOWN_ERROR, Accelerator, _Run, estimate

MEASURED = pd.read_csv(compared.RESULTS / "steps.csv")
COMPARED = pd.read_csv(compared.RESULTS / "compared.csv")


def test_comparison_and_table_are_made_from_the_measurements():
    found = compared.compared(MEASURED)
    pd.testing.assert_frame_equal(found, COMPARED, rtol=2e-3)
    assert compared.table(found) == (compared.RESULTS / "tables" / "compared.md").read_text()


def test_measured_are_the_sizes_that_the_command_measures_and_some_are_held_out():
    columns = list(Case.__dataclass_fields__)
    assert [Case(**row) for row in MEASURED[columns].to_dict("records")] == list(CASES)
    assert (MEASURED["use"] == "check").sum() >= 8


def test_the_stated_error_is_that_of_sizes_that_were_not_fitted_to():
    ratios = compared.ratios(COMPARED)
    stated = re.findall(r"(\d\.\d\d) to (\d\.\d\d)", KNOWN_ERROR)
    shown = [
        (f"{ratios.loc[name, 'least']:.2f}", f"{ratios.loc[name, 'largest']:.2f}") for name in ("peak_gib", "step_s")
    ]
    assert stated == shown


def test_estimates_hold_within_it_and_no_constant_is_fitted_to_memory():
    held_out = COMPARED[(COMPARED["use"] == "check") & (COMPARED["peak_gib"] >= compared.SMALL_GIB)]
    assert (abs(held_out["peak_gib_predicted"] / held_out["peak_gib"] - 1) < 0.15).all()
    checks = COMPARED[COMPARED["use"] == "check"]
    assert (abs((checks["step_s_predicted"] / checks["step_s"]).map(math.log)) < math.log(1.6)).all()
    slow = compared.fitted(MEASURED.assign(**{f"{part}_s": 2 * MEASURED[f"{part}_s"] for part in compared.PARTS}))
    fast = compared.fitted(MEASURED)
    assert fast.training_share / slow.training_share == pytest.approx(2, rel=0.01)
    row = MEASURED.iloc[-1]
    assert compared.predicted(row, slow).training_gib == compared.predicted(row, fast).training_gib


def shape_of_case(case):
    heads, key_value = case.heads
    return ModelShape(
        case.hidden, case.layers, case.feed_forward, heads, key_value, 64, case.vocabulary, tied=True, biases=False
    )


def test_the_optimizer_holds_sixteen_bytes_a_weight_and_seconds_fall_with_rates(tmp_path):
    case = Case("check", 192, 3, 512, 1024)
    shape, options = shape_of_case(case), {"gpus": 1, "sharded": False}
    one = estimate(case.run_config(tmp_path), shape, **options)
    assert one.optimizer_gib * GIB == 16 * shape.parameters
    machine = compared.fitted(MEASURED)
    twice = [
        estimate(case.run_config(tmp_path), shape, **options, accelerator=each)
        for each in (
            machine,
            type(machine)(**vars(machine) | {"flops": 2 * machine.flops, "bandwidth": 2 * machine.bandwidth}),
        )
    ]
    for part in compared.PARTS:
        assert getattr(twice[0], f"{part}_s") == pytest.approx(2 * getattr(twice[1], f"{part}_s"))


@pytest.mark.parametrize("feed_forward", [256, 1024])
def test_what_a_layer_keeps_is_what_autograd_saves(feed_forward):
    """Bytes of all tensors that a backward pass of a Llama layer would need, weights aside, by storage."""
    tokens, layers = (4, 64), 3
    shape = ModelShape(192, layers, feed_forward, 3, 1, 64, 128, tied=True, biases=False)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128, hidden_size=192, intermediate_size=feed_forward, num_hidden_layers=layers,
            num_attention_heads=3, num_key_value_heads=1, tie_word_embeddings=True,
        )
    )  # fmt: skip
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        held.append(tensor)  # so that no address is used twice
        return tensor

    held: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = model.model(torch.zeros(tokens, dtype=torch.long)).last_hidden_state
    assert hidden.requires_grad
    case = Case("check", 192, layers, feed_forward, 128)
    formula = _Run(case.run_config(Path("x")), shape, 1, False, 4, 1.0, Accelerator()).layer_bytes() * layers
    assert sum(kept.values()) / (tokens[0] * tokens[1]) == pytest.approx(formula, rel=0.1)


@pytest.mark.slow
def test_a_size_is_measured_part_by_part(tmp_path):
    found = measured_steps.measure(Case("check", 64, 1, 64, 300, prompts=2, micro_batch=2, new_tokens=3), tmp_path)
    assert set(found) == {"prompt_tokens", *(f"{part}_{unit}" for part in compared.PARTS for unit in ("s", "gib"))}
    assert all(found[f"{part}_s"] > 0 for part in compared.PARTS)
    assert found["prompt_tokens"] >= 4
