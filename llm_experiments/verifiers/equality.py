r"""When numbers are equal. The comparison of `math-verify` rounds to six decimals, and drops small differences.

Exact numbers are equal to the last digit where they are fractions of whole numbers, else to 50 digits. Of a decimal and
another number six digits agree; of two decimals, or a decimal and a whole number, also six decimals. A percentage is
equal to the number before its sign as well.
"""

from math_verify import grader
from sympy import Basic, Float, Integer, MatrixBase, Rational, UnevaluatedExpr

_PERCENT = (UnevaluatedExpr(Rational(1, 100)),)
_of_matrices, _of_symbols = grader.sympy_numeric_eq, grader.sympy_symbolic_eq


def install() -> None:
    """Let `math-verify` compare numbers so, wherever they stand: alone, in sets, in intervals."""
    grader.sympy_numeric_eq, grader.sympy_symbolic_eq = _numeric, _symbolic


def _numeric(gold: Basic | MatrixBase, found: Basic | MatrixBase, *digits: int) -> bool:
    if gold.is_Matrix and found.is_Matrix:
        return _of_matrices(gold, found, *digits)
    decimal = gold.has(Float) or found.has(Float)
    return any(_same(one, other, decimal=decimal) for one in _readings(gold) for other in _readings(found))


def _symbolic(gold: Basic | MatrixBase, found: Basic | MatrixBase) -> bool:
    known = _value(gold) is not None and _value(found) is not None  # compared by `_numeric`
    return not known and _of_symbols(gold, found)


def _readings(number: Basic) -> tuple[Basic, ...]:
    exact = number.xreplace({each: Rational(str(each)) for each in number.atoms(Float)})
    return (exact,) if exact.args[1:] != _PERCENT else (exact.args[0], exact.args[0] * Rational(1, 100))


def _same(gold: Basic, found: Basic, *, decimal: bool) -> bool:
    one, other = _value(gold), _value(found)
    if one is None or other is None:
        return False
    difference, size = abs(one - other), max(abs(one), abs(other))
    if difference > size * (1e-6 + 1e-15 if decimal else Float("1e-50")):
        return False
    gold, found = gold.doit(), found.doit()
    if decimal:
        return not all((10**400 * each).is_Integer for each in (gold, found)) or bool(difference <= 1e-6)
    return bool(gold == found) or not (gold.is_Rational and found.is_Rational)


def _value(number: Basic) -> Basic | None:
    """The number to 60 digits; None if it is none, or may be 0: then rounding is all that is left of it."""
    value = number.evalf(60) if isinstance(number, Basic) and number.is_number else None
    return value if isinstance(value, Integer) or (isinstance(value, Float) and value._prec > 1) else None
