r"""Take the outer structure of an answer apart: lists, sets, pairs and intervals, relations, percent signs, words.

A text is split at its outermost brackets, commas, conjunctions and relation signs; what is left are values, which alone
go to the parser of expressions. Of "exact = ... \\approx rounded" the exact part is kept. Nothing is compared here.
"""

import re
from dataclasses import dataclass
from typing import Literal

from rangeline.suites.expression_text import is_words, matching

MAX_ITEMS = 40
"""Members of the longest list that is compared member by member."""
_THOUSANDS = re.compile(r"(?<![0-9.,])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9,])")


@dataclass(frozen=True, slots=True)
class Node:
    """One part of an answer."""

    kind: Literal["value", "words", "percent", "list", "set", "pair", "union", "relation"]
    text: str
    """The part as tidied; for `pair` its two brackets, for `relation` its signs parted by spaces."""
    parts: tuple["Node", ...] = ()


_SIGNS = re.compile(r"\\(?:le|ge|ne|in|approx|equiv|to)(?![a-zA-Z])|[<>=]")
_SEPARATORS = re.compile(r"[,;]|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])")
_UNION = re.compile(r"\\cup(?![a-zA-Z])")
_REVERSED = re.compile(r"([\[\]])([^\[\]()]+[,;][^\[\]()]+)([\[\]])")


def _split(text: str, pattern: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Split at the matches outside all brackets; return the parts and what stood between them."""
    depth, start, parts, signs = 0, 0, [], []
    spots = {match.start(): match for match in pattern.finditer(text)}
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and i in spots and i >= start:
            parts.append(text[start:i].strip())
            signs.append(spots[i][0])
            start = spots[i].end()
    parts.append(text[start:].strip())
    return parts, signs


def _nodes(parts: list[str]) -> tuple[Node, ...]:
    return tuple(node for part in parts if part for node in _flat(read_structure(part)))


def _flat(node: Node) -> tuple[Node, ...]:
    r"""Return the two values of a sign `\pm` as members of the list around them."""
    return node.parts if node.kind == "list" and "\\pm" in node.text else (node,)


def _enclosed(text: str) -> tuple[str, str, str] | None:
    """Return opening, inside and closing of a text that one pair of brackets encloses."""
    if text.startswith("\\{") and text.endswith("\\}") and matching(text, 1) == len(text) - 1:
        return "{", text[2:-2], "}"
    if text[:1] == "{" and text[-1:] == "}" and matching(text, 0) == len(text) - 1:
        return "{", text[1:-1], "}"
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and matching(text, 0) == len(text) - 1:
        return text[0], text[1:-1], text[-1]
    match = _REVERSED.fullmatch(text)
    if match and (match[1], match[3]) != ("[", "]"):
        return "[" if match[1] == "[" else "(", match[2], "]" if match[3] == "]" else ")"
    return None


def _read_value(text: str) -> Node:
    if "\\pm" in text:
        return Node(
            "list", text, tuple(read_structure(text.replace("\\pm", s).replace("\\mp", m)) for s, m in ("+-", "-+"))
        )
    if text.endswith("%"):
        return Node("percent", text[:-1].strip())
    # The separators of thousands, where no bracket makes them separators of members.
    return Node("words" if is_words(text) else "value", text.removeprefix("+").strip())


def read_structure(text: str) -> Node:
    r"""Return the outer structure of a tidied answer.

    Parameters
    ----------
    text
        As `tidy_expression` gives it.

    Examples
    --------
    >>> read_structure(r"2 \le x < 5").kind, read_structure("[2,5)").text, read_structure("1, 2").kind
    ('relation', '[)', 'list')
    """
    text = text.strip()
    enclosed = _enclosed(text)
    if enclosed is None:
        text = _THOUSANDS.sub(lambda match: match[1].replace(",", ""), text) if not re.search(r"[(\[{]", text) else text
        parts, signs = _split(text, _SEPARATORS)
        if signs:
            return Node("list", text, _nodes(parts))
        parts, signs = _split(text, _SIGNS)
        if signs:
            return _read_relation(parts, signs)
        parts, signs = _split(text, _UNION)
        return Node("union", text, _nodes(parts)) if signs else _read_value(text)
    opening, inside, closing = enclosed
    parts, signs = _split(inside, re.compile(r"[,;]"))
    if opening == "{":
        return Node("set", text, _nodes(parts))
    return Node("pair", opening + closing, _nodes(parts)) if signs else _read_value(text)


def _read_relation(parts: list[str], signs: list[str]) -> Node:
    # Of "exact = ... \approx rounded" the exact part is the answer.
    if "\\approx" in signs:
        first = signs.index("\\approx")
        parts, signs = (parts[: first + 1], signs[:first]) if parts[first] else (parts[first + 1 :], signs[first + 1 :])
    sides = [(part, sign) for part, sign in zip(parts, ["", *signs], strict=True) if part]
    if len(sides) <= 1:
        return _read_value(sides[0][0] if sides else "")
    return Node("relation", " ".join(sign for _, sign in sides[1:]), tuple(read_structure(part) for part, _ in sides))
