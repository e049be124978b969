"""The modules that are put through mutation testing, and the quick tests that belong to each."""

from __future__ import annotations

from dataclasses import dataclass

from kaestat.baselines.kae import KernelBaseline
from kaestat.baselines.registry import METHODS

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


def _of_baselines() -> dict[str, Tests]:
    """Every baseline's module, with its own tests and the cases of its methods."""
    found: dict[str, Tests] = {}
    for name, method in METHODS.items():
        path = method.baseline.__module__.replace(".", "/") + ".py"
        room, _, file = path.removeprefix("kaestat/").rpartition("/")
        more = RELATIVES_OF_KAE if issubclass(method.baseline, KernelBaseline) and name != "kae" else ()
        methods = (*found[path].methods, name) if path in found else (name,)
        found[path] = Tests((f"tests/{room}/test_{file}", *OF_EVERY_BASELINE, *more), methods)
    return found


SMOOTHING_TESTS = (
    "tests/smoothing/selectors/test_smoothing.py",
    "tests/smoothing/selectors/test_window_sums.py",
    "tests/smoothing/selectors/test_selector_formulas.py",
)
TESTED: dict[str, Tests] = {
    "kaestat/smoothing/kernels.py": Tests(("tests/smoothing/test_kernels.py", "tests/baselines/test_kae.py")),
    "kaestat/logs/risk.py": Tests(("tests/logs/test_risk_tables.py",)),
    **_of_baselines(),
    "kaestat/baselines/base.py": Tests(
        ("tests/baselines/test_base.py", "tests/hardening/test_public_errors.py", *OF_EVERY_BASELINE)
    ),
    "kaestat/estimator/scaling.py": Tests(("tests/estimator/test_scaling.py", "tests/estimator/test_advantage.py")),
    "kaestat/history/history.py": Tests(("tests/history/test_history.py", "tests/estimator/test_state.py")),
    "kaestat/smoothing/selectors/smoothing.py": Tests(SMOOTHING_TESTS),
}
