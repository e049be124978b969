"""The modules that are put through mutation testing, and the quick tests that belong to each."""

from __future__ import annotations

from dataclasses import dataclass

# Of the equivalences, those that single out a formula; the others drive the same lines through whole runs, slowly.
EQUIVALENCES = (
    "test_values_are_those_of_the_slow_reference_and_padding_never_matters",
    "test_weighted_values_are_those_of_the_slow_reference",
    "test_a_value_never_depends_on_its_own_reward",
    "test_own_weight_is_the_derivative_of_the_value_in_its_own_reward",
    "test_torch_tensors_give_the_same_values_as_numpy_and_stay_tensors",
    "test_leading_axes_are_a_loop_over_replicates",
)


@dataclass(frozen=True)
class Tests:
    """Files of tests, and methods whose cases of ``test_equivalences.py`` belong to them as well."""

    files: tuple[str, ...]
    methods: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """What pytest is to run, in this order: those that single out the module first."""
        if not self.methods:
            return list(self.files)
        cases, methods = " or ".join(EQUIVALENCES), " or ".join(f"[{method}" for method in self.methods)
        chosen = f"not test_equivalences or (({cases}) and ({methods}))"
        return [*self.files, "tests/estimator/test_equivalences.py", "-k", chosen]


OF_EVERY_BASELINE = ("tests/baselines/test_averaging.py", "tests/baselines/test_prompts_apart.py")
RELATIVES_OF_KAE = ("tests/baselines/test_kae.py",)  # what they have in common is tested there


def _baseline(name: str, *methods: str, more: tuple[str, ...] = ()) -> tuple[str, Tests]:
    files = (f"tests/baselines/test_{name}.py", *OF_EVERY_BASELINE, *more)
    return f"kaestat/baselines/{name}.py", Tests(files, methods)


SMOOTHING_TESTS = (
    "tests/smoothing/selectors/test_smoothing.py",
    "tests/smoothing/selectors/test_window_sums.py",
    "tests/smoothing/selectors/test_selector_formulas.py",
)
TESTED: dict[str, Tests] = {
    "kaestat/smoothing/kernels.py": Tests(("tests/smoothing/test_kernels.py", "tests/baselines/test_kae.py")),
    "kaestat/logs/risk.py": Tests(("tests/logs/test_risk_tables.py",)),
    **dict(
        (
            _baseline("kae", "kae"),
            _baseline("kae_eb", "kae_eb", more=RELATIVES_OF_KAE),
            _baseline("local_polynomial", "local_polynomial", "local_linear", more=RELATIVES_OF_KAE),
            _baseline("kalman", "kalman"),
            _baseline("spo", "spo"),
            _baseline("james_stein", "james_stein"),
            _baseline("ebpo", "ebpo"),
            _baseline("krpo", "krpo"),
            _baseline("sieve", "sieve"),
            _baseline("kae_stream", "kae_stream", more=RELATIVES_OF_KAE),
            _baseline("batch_mean", "reinforce++"),
            _baseline("group_mean", "grpo", "rloo"),
            _baseline("critic", "critic"),
            _baseline("oracle", "oracle"),
            _baseline("pooled", "pooled"),
            _baseline("reinforce", "none"),
        )
    ),
    "kaestat/baselines/base.py": Tests(
        ("tests/baselines/test_base.py", "tests/hardening/test_public_errors.py", *OF_EVERY_BASELINE)
    ),
    "kaestat/estimator/scaling.py": Tests(("tests/estimator/test_scaling.py", "tests/estimator/test_advantage.py")),
    "kaestat/history/history.py": Tests(("tests/history/test_history.py", "tests/estimator/test_state.py")),
    "kaestat/smoothing/selectors/smoothing.py": Tests(SMOOTHING_TESTS),
}
