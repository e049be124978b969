"""The process in which `math-verify` runs; see `llm_experiments.verifiers.mathematics`."""

import logging
from collections.abc import Callable
from functools import lru_cache

from llm_experiments.verifiers.worker_loop import serve


def prepare() -> Callable[[list[str]], bool]:
    """Import math-verify, and make the function that grades one request: ground truth and passage."""
    from latex2sympy2_extended import NormalizationConfig
    from latex2sympy2_extended.sets import FiniteSet
    from math_verify import LatexExtractionConfig, parse, verify
    from sympy import Union
    from sympy.core.relational import Eq, Ne, Relational

    from llm_experiments.verifiers import equality
    from llm_experiments.verifiers.units import unwrapped

    equality.install()
    normal = NormalizationConfig(basic_latex=True, malformed_operators=True, nits=True)  # units are ours
    boxed = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=normal)]

    def read(content: str) -> list:
        # "first_match": where the box can not be parsed, no part of it is taken for the whole.
        # No timeout: math-verify's own limits are alarms, which this process uses itself.
        found = parse(f"\\boxed{{{content}}}", boxed, extraction_mode="first_match", parsing_timeout=None)
        ranges = found[0].args if found and isinstance(found[0], FiniteSet) and " or " in unwrapped(content) else ()
        if ranges and all(isinstance(each, Relational) and not isinstance(each, Eq | Ne) for each in ranges):
            found[0] = Union(*(each.as_set() for each in ranges))
        return found

    truth = lru_cache(maxsize=4096)(read)

    def grade(request: list[str]) -> bool:
        answer, passage = request
        return bool(verify(truth(answer), read(passage), allow_set_relation_comp=True, timeout_seconds=None))

    grade([r"\frac{1}{2}", "0.5"])  # builds the parsers' tables before the first limit on time
    return grade


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # math-verify warns about limits that are ours here
    serve(prepare)
