r"""Read which option a completion chooses: found, ambiguous or absent; never a guess.

The last marked letter counts ("The answer is B", `\boxed{B}`, "I pick B"); one beyond the options is no answer. Without
a mark counts the first line that is a bare letter, then the only letter that starts a line or stands in parentheses,
then the only option whose text the answer repeats. The article "a" and the pronoun "I" are letters only where the
sentence ends or turns after them. Nothing is scored here.
"""

import re
from collections.abc import Sequence

from rangeline.suites.answer_equivalence import plain_text
from rangeline.suites.base import ABSENT, AMBIGUOUS, Extraction, found
from rangeline.suites.final_text import ANSWER_WORDS, COPULAS, visible_text

LETTERS = "ABCDEFGHIJ"
"""Labels of options in the order in which they are shown."""

_ADVERB = r"(?:(?:definitely|clearly|probably|most likely|simply|therefore|thus|then|hence|also) )?"
_NOUN = r"(?:(?:option|choice|letter|answer|opción|opção|option|wahl|buchstabe) )?"
_ANNOUNCEMENT = (
    rf"(?:(?<![a-zA-Z])(?:{ANSWER_WORDS})(?![a-zA-Z])(?: to [^.\n:]{{1,80}}?(?= is\b))?"
    rf"(?: ?(?:(?:would|must|should|will) be|(?:{COPULAS})(?![a-zA-Z])))?(?: ?[-:=\uff1a])?"
    r"|\b(?:correct|right|best|true) (?:option|choice|letter|one|statement)(?: is)?:?"
    r"|\b(?:pick|choose|select|chose|go with|going with|went with|opt for|vote for)(?:ed|ing)?:?)[ \n]?"
)
_OPENING = r"[(\[\"'\u201c\u2018\u00ab\u300c{<]{0,2}"
_CHOICE_MARK = re.compile(rf"{_ANNOUNCEMENT}{_ADVERB}{_NOUN}{_OPENING}([A-Za-z])(?![\w'\u2019])", re.IGNORECASE)
_INSTEAD_MARK = re.compile(
    rf"{_ANNOUNCEMENT}not {_NOUN}{_OPENING}[A-Za-z]\W{{1,3}}but (?:rather |instead )?"
    rf"{_NOUN}{_OPENING}([A-Za-z])(?![\w'\u2019])",
    re.IGNORECASE,
)
_TEXT_MARK = re.compile(rf"{_ANNOUNCEMENT}{_ADVERB}(?P<rest>\S[^\n]*)", re.IGNORECASE)
_CHOICE_BOX = re.compile(r"\\boxed\{ ?(?:\\(?:text|mathrm|textbf|mathbf)\{)?[( ]{0,2}([A-Za-z])[). ]{0,2}\}")
_TEXT_BOX = re.compile(r"\\boxed\{ ?(?:\\(?:text|mathrm|textbf|mathbf)\{)?([^{}]*)\}")
_TAGGED = re.compile(r"<answer>\W{0,3}([A-Za-z])\W{0,3}</answer>", re.IGNORECASE)
_CHOICE_NAMED = re.compile(
    r"(?:\b[Oo]ption |\b[Cc]hoice |\b[Aa]nswer )?(?:\(([A-Z])\)|(?:(?<=[a-z,;] )|(?<![^\n]))([A-Z])) "
    r"(?:is|must be|has to be) (?:the |therefore |clearly )?(?:correct|right|best|true|answer)\b"
)
# "a" is an article and "I" a pronoun unless the sentence ends or turns after it; so is any small letter.
_STANDS_ALONE = re.compile(
    r"[)\].,;:!?}\"'\u201d\u2019\u00bb\u300d*>]|\n|\Z| ?[-(]| (?:because|since|as|which|based|due|given)\b| \Z",
    re.IGNORECASE,
)
_SECOND_CHOICE = re.compile(r"[)\]]?(?:,? or |,? and |/| or/and |, )[(\[]?[A-Z](?![\w'\u2019])(?! (?:am|think|will)\b)")
_BARE_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
_LETTERED_LINE = re.compile(r"[(\[]?([A-Z])[)\].:]{1,2} ?\S")
_EXPLAINED_LINE = re.compile(r"[(\[]?([A-HJ-Z])[)\]]?(?:,? (?:because|since)\b| - \S)")
_LISTED_LINE = re.compile(rf"[(\[]?([A-Z]){_SECOND_CHOICE.pattern}")
_LETTER_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_DENIED = re.compile(r"(?:not|never|n't)\b", re.IGNORECASE)


def _marks(plain: str) -> list[tuple[int, int, str]]:
    """Return place, end and letter of each mark, in order."""
    marks = [(match.start(1), match.end(), match[1]) for match in _CHOICE_BOX.finditer(plain)]
    marks += [(match.start(1), match.end(), match[1]) for match in _TAGGED.finditer(plain)]
    marks += [(match.start(), match.end(), match[1] or match[2]) for match in _CHOICE_NAMED.finditer(plain)]
    marks += [(match.start(1), match.end(), match[1]) for match in _INSTEAD_MARK.finditer(plain)]
    for match in _CHOICE_MARK.finditer(plain):
        plain_capital = match[1].isupper() and match[1] not in "AI"
        if plain_capital or _STANDS_ALONE.match(plain, match.end()) or _SECOND_CHOICE.match(plain, match.end()):
            marks.append((match.start(1), match.end(), match[1]))
    return sorted(marks)


def _one_choice(letters: list[str], allowed: str) -> Extraction:
    known = {letter.upper() for letter in letters if letter.upper() in allowed}
    if len(known) > 1:
        return AMBIGUOUS
    return found(known.pop()) if known else ABSENT


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+|[^\w\s.,;:!?'\"()\[\]{}$\\]", text.casefold()))


def _by_text(said: str, options: Sequence[str]) -> Extraction:
    """Return the option that a statement repeats: the whole of it, or its beginning up to a turn of the sentence.

    An option that is part of a longer one is not meant where the longer one stands.
    """
    words = _words(said)
    meant = [
        (len(text), LETTERS[i])
        for i, option in enumerate(options)
        if (text := _words(option)) and (words == text or (words.startswith(text + " ") and len(text) > 1))
    ]
    if not meant:
        return ABSENT
    longest = max(length for length, _ in meant)
    return _one_choice([letter for length, letter in meant if length == longest], LETTERS)


def _text_choice(plain: str, options: Sequence[str]) -> Extraction:
    """Return the option whose text stands where a letter was asked for."""
    marked = [(match.start(), match[1]) for match in _TEXT_BOX.finditer(plain)]
    marked += [(match.start(), match["rest"]) for match in _TEXT_MARK.finditer(plain)]
    if marked:
        said = max(marked)[1]
        return ABSENT if _DENIED.match(said) else _by_text(said, options)
    lines = [line for line in plain.split("\n") if line.strip()]
    exact = {LETTERS[i] for i, option in enumerate(options) for line in lines[-1:] if _words(line) == _words(option)}
    return _one_choice(sorted(exact), LETTERS)


def extract_choice(completion: str, num_options: int, options: Sequence[str] = ()) -> Extraction:
    r"""Return the letter that a completion chooses, in upper case.

    Parameters
    ----------
    completion
        Text of the policy.
    num_options
        How many options exist, in [2, 10]: letters from A on.
    options
        Texts of the options, for answers that repeat one in place of its letter; empty reads letters only.

    Returns
    -------
    Extraction
        Never the article "a" nor the pronoun "I"; ambiguous where two letters are offered.

    Examples
    --------
    >>> extract_choice("Is it A? No. The answer is (C).", 4).value, extract_choice("I cannot tell.", 10).status
    ('C', 'absent')
    >>> extract_choice("The answer is Paris.", 2, ["London", "Paris"]).value
    'B'
    """
    allowed = LETTERS[:num_options]
    plain = plain_text(visible_text(completion))
    by_text = _text_choice(plain, options) if options else ABSENT
    marks = _marks(plain)
    if marks:
        _, end, letter = marks[-1]
        if _SECOND_CHOICE.match(plain, end):
            return AMBIGUOUS
        return _one_choice([letter], allowed)
    if by_text.status != "absent":
        return by_text
    lines = plain.split("\n")
    bare = [match[1] for line in lines if (match := _BARE_LETTER.fullmatch(line))]
    if bare and _BARE_LETTER.fullmatch(lines[0]):
        return _one_choice(bare[:1], allowed)
    lettered = [match[1] for line in lines if (match := _LETTERED_LINE.match(line))]
    lettered += [match[1] for line in lines if (match := _EXPLAINED_LINE.match(line))]
    lettered += [letter for line in lines if (match := _LISTED_LINE.match(line)) for letter in (match[1], match[0][-1])]
    if bare or lettered:
        return _one_choice(bare + lettered, allowed)
    return _one_choice(_LETTER_IN_PARENTHESES.findall(plain), allowed)
