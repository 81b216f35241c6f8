r"""Read the final answer of a completion that is a number; found, ambiguous or absent.

A marked answer (`#### 42`, `\boxed{42}`, `Answer: 42`) beats an unmarked one, and of several marked answers the last
counts, for models correct themselves. Differing candidates without a marker are ambiguous, not a guess. Nothing is
scored here; thinking blocks, partial answers and symbolic expressions are not read.
"""

import re

from rangeline.suites.answer_equivalence import NUMBER, parse_number, plain_text
from rangeline.suites.base import ABSENT, AMBIGUOUS, Extraction, found
from rangeline.suites.final_text import ANSWER_WORDS, COPULAS, visible_text

_BOXED_NUMBER = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]{0,200}\}){0,400})\}")
_TEXT_MACRO = re.compile(r"\\(?:text|textbf|mathrm|mathbf) ?\{([^{}]*)\}")
_FRACTION = re.compile(r"([0-9] ?)?\\[dt]?frac\{(-?[0-9]+)\}\{([0-9]+)\}")
_OPEN_BOX = re.compile(r"\\boxed\{[^{}]*\Z")
_NUMBER_MARK = re.compile(
    rf"(?<![a-zA-Z])(?:{ANSWER_WORDS})(?![a-zA-Z])(?: ?(?:{COPULAS})(?![a-zA-Z]))?(?: ?[:=\uff1a])?[ \n]?"
    rf"(?={NUMBER.pattern})",
    re.IGNORECASE,
)
_NUMBER_STATED = re.compile(rf"(?:=|\b(?:is|equals)\b)[ \n]?(?={NUMBER.pattern})")
_SPACED_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?: [0-9]{3})+")
_CLAUSE_END = re.compile(r"[.!?;](?: |\Z)|\n")
_HEADING = re.compile(r"(?:step|part|case|example|method|solution|problem|question)\b", re.IGNORECASE)


def _clause(text: str) -> str:
    end = _CLAUSE_END.search(text)
    return text[: end.start()] if end else text


def _one_number(texts: list[str]) -> Extraction:
    values = {value: text for text in reversed(texts) if (value := parse_number(text)) is not None}
    if len(values) > 1:
        return AMBIGUOUS
    return found(next(iter(values.values()))) if values else ABSENT


def _number_in(clause: str) -> Extraction:
    """Return the number of a clause: the right side of its last equation; remarks in parentheses do not count."""
    clause = _TEXT_MACRO.sub(r" \1", clause)
    clause = _FRACTION.sub(lambda match: f"{(match[1] or '').strip()} {match[2]}/{match[3]}", clause)
    clause = re.sub(r"^\{([^{}]*)\}$", r"\1", re.sub(r"^- (?=[0-9])", "-", clause.strip()))
    if _SPACED_THOUSANDS.fullmatch(clause):
        clause = clause.replace(" ", "")
    for part in (clause.rpartition("=")[2], clause):
        for text in (re.sub(r"\([^()]*\)", "", part), part):
            numbers = NUMBER.findall(text)
            if numbers:
                return _one_number(numbers)
    return ABSENT


def _marked_number(plain: str) -> Extraction:
    marked = [*_BOXED_NUMBER.finditer(plain), *_NUMBER_MARK.finditer(plain)]
    last = max(marked, key=lambda match: match.start(), default=None)
    if last is None:
        return ABSENT
    return _number_in(last[1] if last.re is _BOXED_NUMBER else _clause(plain[last.end() :]))


def extract_hashed_number(completion: str) -> Extraction:
    r"""Return the number after the last `####`; else the last one that a box or the word "answer" marks.

    Parameters
    ----------
    completion
        Text of the policy; may go on after its answer.

    Returns
    -------
    Extraction
        Absent where nothing is marked, ambiguous where several numbers stand after the marker.

    Examples
    --------
    >>> extract_hashed_number("6 * 7 = 42\n#### 42.").value
    '42'
    """
    plain = plain_text(visible_text(completion))
    for part in reversed(plain.split("####")[1:]):
        line = part.lstrip(" \n:")
        if _HEADING.match(line):
            continue
        # A heading such as "#### Final answer:" speaks of the next line.
        line = re.sub(r"^[^\n0-9]*:\n", "", line)
        number = _number_in(_clause(line))
        if number.status != "absent":
            return number
    return _marked_number(plain)


def extract_bare_number(completion: str, *, truncated: bool = False) -> Extraction:
    r"""Return the number of a reply that was asked to hold nothing else.

    The first line that is a bare number counts; else the last marked number; else the number after the last `=` or
    "is"; else the only number of the reply, unless the reply was cut off.

    Parameters
    ----------
    completion
        Text of the policy.
    truncated
        True where the reply was cut off: a lone number then may be the start of a calculation.

    Returns
    -------
    Extraction
        Ambiguous where several differing numbers stand without a marker.

    Examples
    --------
    >>> extract_bare_number("12 + 7 = 19").value, extract_bare_number("12 or 19").status
    ('19', 'ambiguous')
    """
    plain = _OPEN_BOX.sub("", plain_text(visible_text(completion)))
    for line in plain.split("\n"):
        if parse_number(line) is not None:
            return found(line.rstrip(" ."))
    marked = _marked_number(plain)
    if marked.status != "absent":
        return marked
    stated = list(_NUMBER_STATED.finditer(plain))
    if stated:
        return _number_in(_clause(plain[stated[-1].end() :]))
    return ABSENT if truncated else _one_number(NUMBER.findall(plain))
