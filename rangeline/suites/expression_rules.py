r"""Are two answers equal as wholes: lists, sets, pairs, intervals, equations and values. Runs in the worker only.

Structures are compared before values, so that an equation is never cut to one of its sides, a list never equals one of
its members, and brackets count. Allowed crossings: an interval and the inequality of one variable; `x = 5` and `5`;
a bare list and a pair in the same order; one value and the set of that value; `50%` and both 50 and 1/2. Equations are
equal where one is a multiple of the other. Nothing is divided; no partial credit for some members of a list.
"""

import re
from collections.abc import Callable, Sequence

import sympy

from rangeline.suites.answer_equivalence import parse_number
from rangeline.suites.expression_structure import MAX_ITEMS, Node
from rangeline.suites.expression_values import (
    UndecidedError,
    UnreadableError,
    is_complex,
    parse_value,
    ratio_is_constant,
    values_equal,
)

_VARIABLE = re.compile(r"\\?[a-zA-Z]+(?:_\{?[a-zA-Z0-9]+\}?)?(?:\s*\(\s*\\?[a-zA-Z]+(?:\s*,\s*\\?[a-zA-Z]+)*\s*\))?'?")
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "=": "=", "\\ne": "\\ne"}
_RAYS = {"<": ("()", False), "\\le": ("(]", False), ">": ("()", True), "\\ge": ("[)", True)}
_BOTH = "and"
"""Text of a union whose parts are conditions that may hold together."""
_INFINITE = (Node("value", "-\\infty"), Node("value", "\\infty"))


def is_variable(node: Node) -> bool:
    """Say whether a part is one variable, or a function of variables: what an answer may be assigned to."""
    return node.kind == "value" and _VARIABLE.fullmatch(node.text) is not None and not node.text.startswith("\\infty")


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _members(node: Node) -> tuple[Node, ...]:
    return node.parts if node.kind in ("list", "set") else (node,)


def assigned_value(node: Node) -> Node:
    """Return the value of `x = value`, and the last side of a calculation; any other part as it is."""
    if node.kind != "relation" or set(node.text.split()) != {"="}:
        return node
    left = node.parts[0]
    if is_variable(left) or (left.kind == "pair" and all(is_variable(part) for part in left.parts)):
        return node.parts[-1]
    if is_variable(node.parts[-1]) and len(node.parts) == 2:
        return left
    return node.parts[-1] if not any(_has_variable(part) for part in node.parts) else node


def _has_variable(node: Node) -> bool:
    if node.kind != "value":
        return True
    try:
        parsed = parse_value(node.text)
    except UnreadableError:
        return True
    return bool(getattr(parsed, "free_symbols", True))


def _interval(node: Node) -> tuple[str, Node] | None:
    """Return variable and interval of an inequality of one variable; None where it is anything else."""
    signs = node.text.split() if node.kind == "relation" else []
    variables = [part for part in node.parts if is_variable(part)]
    if len(variables) != 1 or any(sign not in {*_RAYS, "\\ne", "\\in"} for sign in signs):
        return None
    variable = _squeeze(variables[0].text)
    place = node.parts.index(variables[0])
    others = [part for part in node.parts if part is not variables[0]]
    if signs == ["\\in"]:
        return (variable, others[0]) if place == 0 else None
    if signs == ["\\ne"]:
        low, high = Node("pair", "()", (_INFINITE[0], others[0])), Node("pair", "()", (others[0], _INFINITE[1]))
        return variable, Node("union", "", (low, high))
    if len(signs) == 1:
        brackets, above = _RAYS[signs[0] if place == 0 else _FLIPPED[signs[0]]]
        ends = (others[0], _INFINITE[1]) if above else (_INFINITE[0], others[0])
        return variable, Node("pair", brackets, ends)
    if len(signs) != 2 or place != 1:
        return None
    rising = [sign in ("<", "\\le") for sign in signs]
    if rising[0] != rising[1]:
        return None
    first, last = signs if rising[0] else signs[::-1]
    brackets = ("[" if first in ("\\le", "\\ge") else "(") + ("]" if last in ("\\le", "\\ge") else ")")
    return variable, Node("pair", brackets, tuple(others if rising[0] else others[::-1]))


def _as_region(node: Node) -> Node:
    """Return inequalities of one variable as intervals, and several of them as one region."""
    if node.kind == "list" and node.parts and all(part.kind == "relation" for part in node.parts):
        found = [_interval(part) for part in node.parts]
        if all(one is not None for one in found) and len({one[0] for one in found if one}) == 1:
            is_either = re.search(r"(?<![a-zA-Z])or(?![a-zA-Z])", node.text) is not None
            return Node("union", "" if is_either else _BOTH, tuple(one[1] for one in found if one))
    one = _interval(node)
    return node if one is None else one[1]


def _matched(first: Sequence[Node], second: Sequence[Node], equal: Callable[[Node, Node], bool]) -> bool:
    """Say whether each member of one list equals some member of the other, both ways: no order, no repeats."""
    if max(len(first), len(second)) > MAX_ITEMS:
        raise UndecidedError
    return all(any(equal(a, b) for b in second) for a in first) and all(any(equal(a, b) for a in first) for b in second)


def _set_of(node: Node) -> sympy.Set | None:
    """Return the set that a structure means; None where it is no set of numbers."""
    node = _as_region(node)
    if node.kind == "union":
        parts = [_set_of(part) for part in node.parts]
        if None in parts:
            return None
        both = sympy.Intersection(*parts) if node.text == _BOTH else sympy.S.EmptySet
        # "x < 1 and x > 2" is said of a union all the same: nobody states what never holds.
        return sympy.Union(*parts) if both is sympy.S.EmptySet else both
    if node.kind == "set":
        return sympy.FiniteSet(*(parse_value(part.text) for part in node.parts))
    if node.kind == "pair" and len(node.parts) == 2:
        low, high = (parse_value(part.text).doit() for part in node.parts)
        return sympy.Interval(low, high, node.text[0] == "(", node.text[1] == ")")
    if node.kind == "value":
        value = parse_value(node.text)
        return value if isinstance(value, sympy.Set) else None
    return None


def _values(first: Node, second: Node) -> bool:
    if _squeeze(first.text) == _squeeze(second.text):
        return True
    exact = parse_number(first.text), parse_number(second.text)
    if exact[0] is not None and exact[1] is not None:
        return exact[0] == exact[1]
    complex_numbers = is_complex(first.text) or is_complex(second.text)
    parsed = [parse_value(node.text) for node in (first, second)]
    if any(isinstance(value, sympy.Rel | sympy.logic.boolalg.Boolean) for value in parsed):
        return bool(parsed[0] == parsed[1])
    return values_equal(parsed[0], parsed[1], complex_numbers=complex_numbers)


def _percent(first: Node, second: Node) -> bool:
    """Compare where a percent sign stands on one side at least: a unit, or a hundredth where only one has it."""
    one, other = Node("value", first.text), Node("value", second.text)
    if nodes_equal(one, other):
        return True
    if first.kind == second.kind or "value" not in (first.kind, second.kind):
        return False
    share, plain = (one, other) if first.kind == "percent" else (other, one)
    return _values(Node("value", rf"\frac{{{share.text}}}{{100}}"), plain)


def _difference(node: Node) -> sympy.Expr:
    left, right = (parse_value(part.text) for part in node.parts)
    return left - right


def _relations(first: Node, second: Node) -> bool:
    regions = _interval(first), _interval(second)
    if regions[0] is not None and regions[1] is not None:
        return regions[0][0] == regions[1][0] and nodes_equal(regions[0][1], regions[1][1])
    if len(first.parts) != len(second.parts):
        return False
    if first.text == second.text and all(map(nodes_equal, first.parts, second.parts)):
        return True
    if len(first.parts) != 2 or any(part.kind != "value" for part in (*first.parts, *second.parts)):
        return False
    a, b = _difference(first), _difference(second)
    if first.text == second.text:
        return ratio_is_constant(a, b, positive=first.text not in ("=", "\\ne"))
    return _FLIPPED.get(first.text) == second.text and ratio_is_constant(a, -b, positive=True)


def _regions(first: Node, second: Node) -> bool | None:
    """Compare as sets where one side is a region; None where they are no regions."""
    kinds = {first.kind, second.kind}
    if first.kind == second.kind == "pair":
        if len(first.parts) != len(second.parts):
            return False
        return first.text == second.text and all(map(nodes_equal, first.parts, second.parts))
    if not kinds & {"union", "value"} or not kinds & {"union", "pair", "set"}:
        return None
    sets = _set_of(first), _set_of(second)
    if None in sets:
        return None if "union" not in kinds else False
    return values_equal(*sets, complex_numbers=False)


def nodes_equal(first: Node, second: Node) -> bool:
    """Say whether two structures are one answer; symmetric.

    Raises
    ------
    UnreadableError
        If a value is no expression.
    UndecidedError
        If neither equal nor unequal could be shown.
    """
    if "words" in (first.kind, second.kind):
        return _squeeze(first.text).casefold() == _squeeze(second.text).casefold()
    if "percent" in (first.kind, second.kind):
        return _percent(first, second)
    if first.kind == second.kind == "relation":
        return _relations(first, second)
    return _wholes_equal(_as_region(assigned_value(first)), _as_region(assigned_value(second)))


def _matrix_of(node: Node) -> sympy.Matrix | None:
    """Return the matrix that a list of equally long lists is; None where it is none."""
    rows = node.parts if node.kind == "pair" and node.text == "[]" else ()
    if not rows or any(row.kind != "pair" or row.text != "[]" for row in rows) or len({len(r.parts) for r in rows}) > 1:
        return None
    return sympy.Matrix([[parse_value(part.text) for part in row.parts] for row in rows])


def _wholes_equal(first: Node, second: Node) -> bool:
    """Compare what is left once words, percent signs, relations and assignments are dealt with."""
    kinds = (first.kind, second.kind)
    if kinds == ("value", "value"):
        return _values(first, second)
    if "relation" in kinds:
        return False
    for one, other in ((first, second), (second, first)):
        if one.kind == "list" and other.kind == "pair":
            same_length = len(one.parts) == len(other.parts)
            return same_length and all(map(nodes_equal, map(assigned_value, one.parts), other.parts))
        rows = _matrix_of(one) if other.kind == "value" else None
        if rows is not None:
            return values_equal(rows, parse_value(other.text), complex_numbers=False)
    regions = _regions(first, second)
    if regions is not None or "pair" in kinds or "union" in kinds:
        return regions is True
    members = _members(first), _members(second)
    if not all(part.kind == "relation" for side in members for part in side):
        members = tuple(map(assigned_value, members[0])), tuple(map(assigned_value, members[1]))
    return _matched(*members, nodes_equal)


def require_readable(node: Node) -> None:
    """Raise where some value of a structure is no expression.

    Raises
    ------
    UnreadableError
        With the text of that value.
    """
    if node.kind in ("value", "percent"):
        parse_value(node.text)
    for part in node.parts:
        require_readable(part)
