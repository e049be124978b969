"""Methods with their parameters as text (``kae:bandwidth=10``), and as plain data in a saved state."""

import ast
import re
import reprlib
import warnings
from inspect import signature
from typing import Any

import numpy as np

from kaestat import baselines
from kaestat.core.spelling import check_parameters
from kaestat.smoothing.kernels import KERNELS, Exponential
from kaestat.smoothing.selectors import SELECTORS, make_selector


def parse_specification(text: str) -> tuple[str, dict[str, Any]]:
    """The name and parameters in ``name`` or ``name:key=value,key=name(key=value)`` (see `parse_method`).

    Raises a ValueError if the text cannot be read, and a TypeError if it is not text.
    """
    if not isinstance(text, str):
        raise TypeError(f"a method specification is text such as kae:bandwidth=10, got {type(text).__name__}.")
    name, _, rest = text.strip().partition(":")
    if not name:
        raise ValueError(f"method specification {text!r} has no name; write for example kae:bandwidth=10.")
    return name, _parse_parameters(rest, text)


def dump(value: Any) -> Any:
    """A parameter as plain data for JSON: numbers, strings, None, and tagged kernels, selectors and baselines.

    Raises a TypeError for anything else, such as a user's function.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    known = _stored_types()
    if type(value).__name__ in known and known[type(value).__name__] is type(value):
        params = {name: dump(getattr(value, name)) for name in signature(type(value)).parameters}
        return {"type": type(value).__name__, "params": params}
    if isinstance(value, tuple | list):
        return [dump(item) for item in value]
    raise TypeError(
        f"{reprlib.repr(value)} of type {type(value).__name__} cannot be saved with the estimator: "
        "save only the state (state_dict) and build the estimator from code before load_state_dict."
    )


def load(plain: Any) -> Any:
    """The inverse of `dump`; a ValueError if the data names an unknown type."""
    if isinstance(plain, list):
        return tuple(load(item) for item in plain)
    if not isinstance(plain, dict):
        return plain
    known = _stored_types()
    if plain.get("type") not in known:
        raise ValueError(f"state: unknown type {plain.get('type')!r}; it was saved by another version of kaestat.")
    return known[plain["type"]](**{name: load(value) for name, value in plain["params"].items()})


def _stored_types() -> dict[str, type]:
    stored: list[type] = [*SELECTORS.values(), Exponential, *(type(k) for k in KERNELS.values())]
    stored += [each for each in vars(baselines).values() if isinstance(each, type)]
    return {cls.__name__: cls for cls in stored}


def _parse_parameters(text: str, whole: str) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for part in _split(text, whole):
        key, equals, value = part.partition("=")
        if not equals or not key.strip().isidentifier() or not value.strip():
            raise ValueError(f"cannot read {part!r} in {whole!r}; write parameters as key=value, separated by commas.")
        if key.strip() in params:
            raise ValueError(f"parameter {key.strip()!r} is given twice in {whole!r}.")
        params[key.strip()] = _parse_value(value.strip(), whole)
    return params


def _split(text: str, whole: str) -> list[str]:
    """Split at commas outside parentheses and brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            break
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise ValueError(f"parentheses do not match in {whole!r}.")
    return [part for part in parts if part.strip()]


def _parse_value(text: str, whole: str) -> Any:
    plain = {"true": True, "false": False, "none": None, "inf": float("inf")}
    if text.lower() in plain:
        return plain[text.lower()]
    call = re.fullmatch(r"([\w-]+)\((.*)\)", text)
    if call:
        return _make_part(call[1], _parse_parameters(call[2], whole))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser, about what is not a number then
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, int | float | str | tuple) else text


def _make_part(name: str, params: dict[str, Any]) -> Any:
    if name == "exponential":
        check_parameters("kernel 'exponential'", Exponential, params)
        return Exponential(**params)
    return make_selector(name, **params)
