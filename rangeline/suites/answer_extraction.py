r"""Read the final answer of a completion: a number or a letter; found, ambiguous or absent.

A marked answer (`#### 42`, `\boxed{42}`, `Answer: 42`) beats an unmarked one, and of several marked answers the last
counts, for models correct themselves. Differing candidates without a marker are ambiguous, not a guess. Nothing is
scored here; partial answers and symbolic expressions are not read.
"""

import re

from rangeline.suites.answer_equivalence import NUMBER, parse_number, plain_text
from rangeline.suites.base import ABSENT, AMBIGUOUS, Extraction, found

_BOXED_NUMBER = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}")
_OPEN_BOX = re.compile(r"\\boxed\{[^{}]*\Z")
_NUMBER_MARK = re.compile(
    rf"\b(?:answer|antwort|result)(?: is| ist| equals)?(?: ?[:=])?[ \n]?(?={NUMBER.pattern})", re.IGNORECASE
)
_NUMBER_STATED = re.compile(rf"(?:=|\b(?:is|equals)\b)[ \n]?(?={NUMBER.pattern})")
_CLAUSE_END = re.compile(r"[.!?;](?: |\Z)|\n")
_HEADING = re.compile(r"(?:step|part|case|example|method|solution|problem|question)\b", re.IGNORECASE)

_CHOICE_MARK = re.compile(
    r"(?:\b(?:answer|antwort|r[ée]ponse|respuesta|risposta)(?: is| ist| est| es| (?:would|must|should) be)?(?: ?[:=])?"
    r"|\b(?:correct|right|best) (?:option|choice)(?: is)?:?|\b(?:pick|choose|select)(?:ed)?:?)[ \n]?"
    r"(?:(?:definitely|clearly|probably|most likely|simply) )?(?:(?:option|choice|letter) )?"
    r"[(\[\"'{]?([A-Za-z])(?![\w'\u2019])",
    re.IGNORECASE,
)
_CHOICE_BOX = re.compile(r"\\boxed\{ ?(?:\\(?:text|mathrm)\{)?[( ]{0,2}([A-Za-z])[). ]{0,2}\}")
_CHOICE_NAMED = re.compile(r"\b(?:[Oo]ption|[Cc]hoice) \(?([A-Z])\)? is (?:the )?(?:correct|right|best)\b")
# "a" is an article and "I" a pronoun unless the sentence ends or turns after it; so is any small letter.
_STANDS_ALONE = re.compile(r"[)\].,;:!?}\"'*]|\n|\Z| ?[-(]| (?:because|since|as|which|based|due|given)\b| \Z")
_SECOND_CHOICE = re.compile(r"[)\]]?(?: or | and |/| or/and )[(\[]?[A-Z](?!\w)")
_BARE_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
_LETTERED_LINE = re.compile(r"[(\[]?([A-Z])[)\].:]{1,2} ?\S")
_LETTER_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")


def closed_part(completion: str) -> str:
    """Return a cut-off completion without its last word, which may be half of a longer one.

    Examples
    --------
    >>> closed_part("The total is 12")
    'The total is '
    """
    end = len(completion)
    while end and not completion[end - 1].isspace():
        end -= 1
    return completion[:end]


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
    plain = plain_text(completion)
    for part in reversed(plain.split("####")[1:]):
        line = part.lstrip(" \n:")
        if _HEADING.match(line):
            continue
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
    plain = _OPEN_BOX.sub("", plain_text(completion))
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


def _marked_choice(plain: str) -> re.Match[str] | None:
    marked = [*_CHOICE_BOX.finditer(plain), *_CHOICE_NAMED.finditer(plain)]
    for match in _CHOICE_MARK.finditer(plain):
        plain_capital = match[1].isupper() and match[1] not in "AI"
        if plain_capital or _STANDS_ALONE.match(plain, match.end()) or _SECOND_CHOICE.match(plain, match.end()):
            marked.append(match)
    return max(marked, key=lambda match: match.start(1), default=None)


def _one_choice(letters: list[str], allowed: str) -> Extraction:
    known = {letter.upper() for letter in letters if letter.upper() in allowed}
    if len(known) > 1:
        return AMBIGUOUS
    return found(known.pop()) if known else ABSENT


def extract_choice(completion: str, num_options: int) -> Extraction:
    r"""Return the letter that a completion chooses, in upper case.

    The last marked letter counts ("The answer is B", `\boxed{B}`, "I pick B"); one beyond the options is no answer.
    Else the first line where it is a bare letter; else the only letter that starts a line or stands in parentheses.

    Parameters
    ----------
    completion
        Text of the policy.
    num_options
        How many options exist, in [2, 10]: letters from A on.

    Returns
    -------
    Extraction
        Never the article "a" nor the pronoun "I"; ambiguous where two letters are offered.

    Examples
    --------
    >>> extract_choice("Is it A? No. The answer is (C).", 4).value, extract_choice("I cannot tell.", 10).status
    ('C', 'absent')
    """
    allowed = "ABCDEFGHIJ"[:num_options]
    plain = plain_text(completion)
    mark = _marked_choice(plain)
    if mark is not None:
        second = _SECOND_CHOICE.match(plain, mark.end())
        return AMBIGUOUS if second else _one_choice([mark[1]], allowed)
    lines = plain.split("\n")
    bare = [match[1] for line in lines if (match := _BARE_LETTER.fullmatch(line))]
    if bare and _BARE_LETTER.fullmatch(lines[0]):
        return _one_choice(bare[:1], allowed)
    lettered = [match[1] for line in lines if (match := _LETTERED_LINE.match(line))]
    if bare or lettered:
        return _one_choice(bare + lettered, allowed)
    return _one_choice(_LETTER_IN_PARENTHESES.findall(plain), allowed)
