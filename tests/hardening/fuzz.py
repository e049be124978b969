"""Many inputs for one property: ``python -m tests.hardening.fuzz csv --inputs 100000``.

The targets are the very properties of the ``test_fuzz_*.py`` files here. Inputs are bytes that Hypothesis turns into
arguments: drawn at random from a seed, or with ``--coverage`` bred by atheris (``pip install atheris``) towards lines
of ``kaestat`` that no input has reached. Failures are counted by their place, the shortest input of each is shown, and
the run goes on; the status is 1 if there was any.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from traceback import extract_tb

TARGETS = {
    "csv": "test_fuzz_readers:test_any_csv_file_is_a_log_or_refused_by_name",
    "jsonl": "test_fuzz_readers:test_any_jsonl_file_is_a_log_or_refused_by_name",
    "parquet": "test_fuzz_readers:test_any_parquet_file_is_a_log_or_refused_by_name",
    "verl": "test_fuzz_readers:test_any_verl_dump_is_a_log_or_refused_by_name",
    "trl": "test_fuzz_readers:test_any_log_of_trl_is_a_log_or_refused_by_name",
    "accuracies": "test_fuzz_readers:test_any_json_file_is_a_log_or_refused_by_name",
    "step": "test_fuzz_estimator:test_any_step_gives_finite_advantages_or_leaves_the_state_alone",
    "state": "test_fuzz_estimator:test_any_state_is_taken_over_whole_or_refused",
    "state_file": "test_fuzz_estimator:test_any_state_file_is_a_state_or_refused_by_name",
    "history": "test_fuzz_estimator:test_any_record_enters_the_history_whole_or_not_at_all",
    "specification": "test_fuzz_arguments:test_any_specification_is_a_method_or_refused",
    "parameters": "test_fuzz_arguments:test_any_parameters_make_a_baseline_or_are_refused_by_name",
    "kernels": "test_fuzz_arguments:test_any_kernel_weighs_by_finite_numbers_or_is_refused",
    "selectors": "test_fuzz_arguments:test_any_selector_is_one_or_refused_by_name",
    "select_bandwidth": "test_fuzz_arguments:test_any_log_has_a_positive_bandwidth_or_the_question_is_refused",
    "risk": "test_fuzz_arguments:test_any_log_has_finite_risks_or_the_question_is_refused",
    "reward_log": "test_fuzz_arguments:test_any_columns_are_a_log_or_refused_by_name",
    "schedules": "test_fuzz_arguments:test_any_sizes_are_a_schedule_or_refused_by_name",
    "cli": "test_fuzz_cli:test_any_command_line_is_answered_or_refused_in_one_line",
    "formulas": "test_fuzz_formulas:test_any_arguments_have_a_number_for_an_answer_or_are_refused_by_name",
    "prompts": "test_fuzz_prompt_ids:test_any_prompt_has_a_name_that_stays_or_is_refused",
    "prompt_ids": "test_fuzz_prompt_ids:test_any_ids_name_their_prompts_or_are_refused_and_nothing_is_learnt",
    "past_lags": "test_fuzz_arguments:test_any_lags_are_those_of_the_past_or_refused_by_name",
}
LARGEST = 2048  # bytes of an input: enough for the largest arguments that the strategies make


class Fuzzer:
    """Feeds one property and keeps the accounts."""

    def __init__(self, target: str):
        module, name = TARGETS[target].split(":")
        self.target = target
        self.run_one: Callable[[bytes], bytes | None] = getattr(
            importlib.import_module(f"tests.hardening.{module}"), name
        ).hypothesis.fuzz_one_input
        self.done, self.failures, self.began = 0, {}, time.monotonic()
        self.told = 0

    def feed(self, data: bytes) -> None:
        """Run the property once; an input too short to make arguments of is not counted."""
        try:
            self.done += self.run_one(data) is not None
        except Exception as error:
            self.done += 1
            cause = error.__cause__ or error
            place = "; ".join(f"{frame.filename}:{frame.lineno}" for frame in extract_tb(cause.__traceback__)[-2:])
            key = (type(cause).__name__, place)
            count, shortest, text = self.failures.get(key, (0, data, ""))
            if not text or len(data) < len(shortest):
                notes = "\n".join(getattr(error, "__notes__", []))
                shortest, text = data, f"{str(error)[:500]}\n{notes[:1500]}"
            self.failures[key] = (count + 1, shortest, text)

    def tell(self) -> None:
        """Progress every 10,000 inputs, so that a run that is cut off still says how far it came."""
        if self.done // 10_000 > self.told // 10_000:
            self.told = self.done
            print(self.report().splitlines()[0], flush=True)

    def report(self) -> str:
        seconds = time.monotonic() - self.began
        lines = [f"{self.target}: {self.done} inputs in {seconds:.0f} s, {len(self.failures)} kinds of failure"]
        for (kind, place), (count, _, text) in self.failures.items():
            lines.append(f"\n--- {kind} at {place}, {count} times\n{text}")
        return "\n".join(lines)


def at_random(fuzzer: Fuzzer, inputs: int, seed: int) -> None:
    """Bytes without plan, of many lengths."""
    rng = random.Random(seed)
    while fuzzer.done < inputs:
        fuzzer.feed(rng.randbytes(int(16 * (LARGEST / 16) ** rng.random())))
        fuzzer.tell()


def by_coverage(fuzzer: Fuzzer, inputs: int, seed: int) -> None:
    """Bytes bred by atheris; once it has run so many the process ends at once, or atheris would call that a crash."""
    import atheris

    def once(data: bytes) -> None:
        fuzzer.feed(data)
        fuzzer.tell()
        if fuzzer.done >= inputs:
            print(fuzzer.report(), flush=True)
            os._exit(bool(fuzzer.failures))

    atheris.Setup(
        [sys.argv[0], f"-seed={seed + 1}", f"-max_len={LARGEST}", "-timeout=60", "-print_final_stats=1"], once
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", action="store_true", help="breed the inputs with atheris")
    arguments = parser.parse_args()
    watched = nullcontext()
    if arguments.coverage:
        import atheris

        watched = atheris.instrument_imports(include=["kaestat"])
    with watched:
        fuzzer = Fuzzer(arguments.target)
    if arguments.coverage:
        by_coverage(fuzzer, arguments.inputs, arguments.seed)
    at_random(fuzzer, arguments.inputs, arguments.seed)
    print(fuzzer.report(), flush=True)
    return bool(fuzzer.failures)


if __name__ == "__main__":
    sys.exit(main())
