"""The process in which `math-verify` runs; see `llm_experiments.verifiers.mathematics`."""

import logging
from collections.abc import Callable
from functools import lru_cache

from llm_experiments.verifiers.worker_loop import serve


def prepare(arguments: dict) -> Callable[[list[str]], bool]:
    """Import math-verify, and make the function that grades one request: answer, passage, "box" or "text"."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    boxed = [LatexExtractionConfig(boxed_match_priority=0)]
    free = [LatexExtractionConfig(), ExprExtractionConfig()]

    def parse_boxed(content: str) -> list:
        # "first_match": where the box can not be parsed, no part of it is taken for the whole.
        # No timeout: math-verify's own limits are alarms, which this process uses itself.
        return parse(f"\\boxed{{{content}}}", boxed, extraction_mode="first_match", parsing_timeout=None)

    truth = lru_cache(maxsize=4096)(parse_boxed)

    def grade(request: list[str]) -> bool:
        answer, passage, kind = request
        found = parse_boxed(passage) if kind == "box" else parse(passage, free, parsing_timeout=None)
        return bool(verify(truth(answer), found, timeout_seconds=None))

    grade([r"\frac{1}{2}", "0.5", "box"])  # builds the parsers' tables before the first limit on time
    return grade


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # math-verify warns about limits that are ours here
    serve(prepare)
