"""TRL's configuration with one completion per prompt."""

import pytest

pytest.importorskip("trl")

from kaestat.integrations.trl import BaselineGRPOConfig


def config(tmp_path, **options):
    return BaselineGRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **options)


def test_one_completion_per_prompt_is_kept(tmp_path):
    found = config(tmp_path, num_generations=1, per_device_train_batch_size=6)
    assert (found.num_generations, found.generation_batch_size) == (1, 6)


def test_an_odd_generation_batch_is_refused_with_what_to_change(tmp_path):
    with pytest.raises(ValueError, match="num_generations=1 needs an even number of completions"):
        config(tmp_path, num_generations=1, per_device_train_batch_size=3)
