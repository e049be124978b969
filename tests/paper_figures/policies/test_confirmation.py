"""The table of runs by two trainers has the paired differences of the same runs."""

import pandas as pd

from llm_experiments.study.curves import CURVE_COLUMNS
from paper_figures.policies.confirmation import confirmation_table


def curves(ends, seeds):
    """Straight learning curves from 0 to each design's end, a little higher from seed to seed and base to base."""
    rows = []
    for design, end in ends.items():
        for base in (0, 1):
            for seed in seeds:
                height = end + 0.1 * base + 0.01 * seed
                for generated in (0, 50, 100):
                    numbers = dict.fromkeys(CURVE_COLUMNS, height * generated / 100)
                    rows.append(numbers | {"design": design, "base": base, "seed": seed, "generated": generated})
    return pd.DataFrame(rows)


def test_differences_are_paired_and_only_the_same_seeds_are_compared():
    names = {"grpo_8": "GRPO", "kae_eb_1": "KAE-EB"}
    study = curves({"grpo_8": 0.4, "kae_eb_1": 0.8}, seeds=range(4))
    confirmed = curves({"grpo_8": 0.5, "kae_eb_1": 0.7, "none_1": 0.9}, seeds=(0, 1))
    table = confirmation_table(confirmed, study, 100, "grpo_8", names).set_index("Design")
    assert list(table.index) == ["GRPO", "KAE-EB"]
    assert table.loc["KAE-EB", "less GRPO, TRL"] == "+0.100 ± 0.000"
    assert table.loc["KAE-EB", "less GRPO, the study"] == "+0.200 ± 0.000"
    assert table.loc["GRPO", "Mean accuracy, TRL"] == "0.278"  # (0.5 + 0.05 + 0.005) / 2
    assert table.loc["GRPO", "Completions, TRL"] == "1.00"
    assert 0.5 < float(table.loc["KAE-EB", "Completions, the study"]) < 0.57
