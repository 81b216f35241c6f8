r"""Are two values equal as mathematics: parsed with latex2sympy, compared exactly. Runs in the worker process only.

Constants are equal where 60 digits agree relative to their size, so that two tiny numbers are not both zero;
expressions with variables are equal where they agree at fixed points at which both are real. Nothing is rounded: 33.3
is not 100/3. The sample of points is ours; math-verify compares absolutely and rounds, which its false positives come
from. Left out: proofs; two expressions that agree at every point of the sample and differ elsewhere count as equal.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse
from sympy.core.evalf import PrecisionExhausted

DIGITS = 60
_AGREEMENT = sympy.Float(10) ** (20 - DIGITS)
_NEGLIGIBLE = sympy.Float(10) ** -30
_EXACT_LIMIT = sympy.Float(10) ** 20_000
"""Numbers beyond it are not written out."""
MAX_DIGITS = 1000
_POINTS = 9
_MIN_POINTS = 2
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
_IMAGINARY = re.compile(r"(?<![a-zA-Z\\])i(?![a-zA-Z])|\\(?:imath|mathbb\{C\})")
_INDEX = re.compile(r"_\s*\{?\s*i(?![a-zA-Z])")
_IMAGINARY_FACTOR = re.compile(r"(?<=[0-9])\s*i(?![a-zA-Z])")
_APART = re.compile(r"[0-9.] +[0-9.]")
"""Two numbers side by side, which the grammar would multiply."""
_BASE = re.compile(r"^(-?[0-9A-Fa-f]+)_\{?(?:[0-9]+|\\?[a-z]+)\}?$")


_AS_IT_IS = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        basic_latex=False, units=False, malformed_operators=False, nits=False, boxed="none", equations=False
    )
)


class UndecidedError(Exception):
    """Neither equal nor unequal could be shown."""


class UnreadableError(Exception):
    """A text is no expression."""


def is_complex(text: str) -> bool:
    """Say whether `i` stands for the imaginary unit in a text."""
    return _IMAGINARY.search(text) is not None and _INDEX.search(text) is None


@lru_cache(maxsize=512)
def parse_value(text: str) -> Any:
    """Return the sympy object of a tidied value, its decimals exact and its variables without assumptions.

    Raises
    ------
    UnreadableError
        If the text is no expression as a whole.
    """
    if _APART.search(text):
        raise UnreadableError(text)
    # math-verify reads LaTeX between dollar signs only; in this mode it takes the whole of it or nothing.
    whole = _IMAGINARY_FACTOR.sub(" i", _BASE.sub(r"\1", text))
    found = parse(
        f"${whole}$", [_AS_IT_IS], fallback_mode="no_fallback", extraction_mode="first_match", parsing_timeout=None
    )
    parsed = found[0] if found else None
    if not isinstance(parsed, sympy.Basic | sympy.MatrixBase):
        raise UnreadableError(text)
    # One text's x is the other's, whatever was assumed of it; and i is a variable only where it counts.
    unit = {"i": sympy.I} if is_complex(text) else {}
    names = {symbol: symbol.name for symbol in parsed.free_symbols}
    parsed = parsed.xreplace({symbol: unit.get(name, sympy.Symbol(name)) for symbol, name in names.items()})
    return parsed.replace(lambda part: part.is_Float, lambda part: sympy.Rational(str(part)))


def _is_evaluated(number: Any) -> bool:
    real, imaginary = number.as_real_imag()
    return bool(real.is_Float or real.is_Rational) and bool(imaginary.is_Float or imaginary.is_Rational)


def _numeric(value: Any) -> Any:
    number = sympy.N(value, DIGITS)
    is_done = number in (sympy.nan, sympy.zoo) or number.is_infinite or _is_evaluated(number)
    return number if is_done else sympy.N(value.doit(), DIGITS)


def real_value(value: Any) -> str | None:
    """Return a real constant in decimals of 30 digits; None where the value is none."""
    if not isinstance(value, sympy.Expr) or value.free_symbols:
        return None
    number = _numeric(value)
    return str(sympy.N(number, 30)) if _is_evaluated(number) and number.is_real else None


def _differ_exactly(first: Any, second: Any) -> bool:
    """Say whether two numbers that agree in 60 digits differ all the same: 100! and 100! + 1."""
    difference = first.doit() - second.doit()
    if difference.is_Rational:
        return bool(difference != 0)
    try:
        return bool(difference.evalf(15, maxn=MAX_DIGITS, strict=True) != 0)
    except PrecisionExhausted:
        return False


def constants_equal(first: Any, second: Any, *, exact: bool = True) -> bool:
    """Say whether two expressions without variables are one number.

    Parameters
    ----------
    first, second
        Expressions.
    exact
        True looks beyond 60 digits, where the two agree so far.

    Raises
    ------
    UndecidedError
        If one of them could not be evaluated.
    """
    if first == second:
        return first is not sympy.nan
    if first.is_Rational and second.is_Rational:
        return False
    a, b = _numeric(first), _numeric(second)
    if a in (sympy.nan, sympy.zoo) or b in (sympy.nan, sympy.zoo):
        return False
    if a.is_infinite or b.is_infinite:
        return bool(a == b)
    if not (_is_evaluated(a) and _is_evaluated(b)):
        raise UndecidedError
    size = max(sympy.Abs(a), sympy.Abs(b))
    if sympy.Abs(a - b) > _AGREEMENT * size and size > _NEGLIGIBLE:
        return False
    if not exact and size > _NEGLIGIBLE:
        return True
    if size > _EXACT_LIMIT:
        raise UndecidedError
    return not _differ_exactly(first, second)


def _sample(first: Any, second: Any) -> Iterator[dict[Any, Any]]:
    """Yield points with other values for each variable: positive and negative fractions, then whole numbers.

    Sums and products over an index have whole numbers as bounds, so there all values are whole and positive.
    """
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    counts = first.has(sympy.Sum, sympy.Product) or second.has(sympy.Sum, sympy.Product)
    for j in range(_POINTS):
        point = {}
        for k, symbol in enumerate(symbols):
            above, below = _PRIMES[(3 * j + 2 * k + 4) % 16], _PRIMES[(5 * j + k + 1) % 16]
            value = sympy.Rational(above, below if above != below else 59)
            whole = sympy.Integer(1 + j + 2 * k)
            point[symbol] = whole if counts or j >= _POINTS - 2 else (-value if j % 3 == 2 else value)
        yield point


def _at(value: Any, point: dict[Any, Any]) -> Any:
    number = value.subs(point)
    return number.doit() if number.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Derivative) else number


def _is_real(number: Any) -> bool:
    numeric = _numeric(number)
    return bool(numeric.is_number and abs(sympy.im(numeric)) <= _NEGLIGIBLE * (1 + abs(numeric)))


def expressions_equal(first: Any, second: Any, *, complex_numbers: bool) -> bool:
    """Say whether two expressions agree wherever both are real (everywhere, where they hold the imaginary unit).

    Raises
    ------
    UndecidedError
        If too few points could be compared and no simplification decides.
    """
    if first == second:
        return True
    if not (first.free_symbols or second.free_symbols):
        return constants_equal(first, second)
    num_agreed = 0
    for point in _sample(first, second):
        a, b = _at(first, point), _at(second, point)
        if a.has(sympy.nan, sympy.zoo) or b.has(sympy.nan, sympy.zoo):
            continue
        if not complex_numbers and not (_is_real(a) and _is_real(b)):
            continue
        # Whole numbers are quick to look at exactly; one such point is enough.
        if not constants_equal(a, b, exact=all(value.is_Integer for value in point.values())):
            return False
        num_agreed += 1
    if num_agreed >= _MIN_POINTS:
        return True
    if sympy.simplify(first - second) == 0:
        return True
    raise UndecidedError


def ratio_is_constant(first: Any, second: Any, *, positive: bool) -> bool:
    """Say whether one expression is a constant multiple of the other, so that both vanish at the same places."""
    if not first.free_symbols or not second.free_symbols:
        return False
    ratio = None
    for point in _sample(first, second):
        a, b = _at(first, point), _at(second, point)
        if constants_equal(b, sympy.S.Zero) or constants_equal(a, sympy.S.Zero):
            if constants_equal(a, b):
                continue
            return False
        ratio = a / b if ratio is None else ratio
        if not constants_equal(a / b, ratio):
            return False
    return ratio is not None and (not positive or _numeric(ratio) > 0)


def values_equal(first: Any, second: Any, *, complex_numbers: bool) -> bool:
    """Say whether two parsed values are equal: numbers, expressions, matrices or sets."""
    if isinstance(first, sympy.MatrixBase) or isinstance(second, sympy.MatrixBase):
        if not (isinstance(first, sympy.MatrixBase) and isinstance(second, sympy.MatrixBase)):
            return False
        return first.shape == second.shape and all(
            values_equal(a, b, complex_numbers=complex_numbers) for a, b in zip(first, second, strict=True)
        )
    if isinstance(first, sympy.Set) or isinstance(second, sympy.Set):
        if not (isinstance(first, sympy.Set) and isinstance(second, sympy.Set)):
            return False
        return first == second or first.symmetric_difference(second) is sympy.S.EmptySet
    if not (isinstance(first, sympy.Expr) and isinstance(second, sympy.Expr)):
        return bool(first == second)
    return expressions_equal(first, second, complex_numbers=complex_numbers)
