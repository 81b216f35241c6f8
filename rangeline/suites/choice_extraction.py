r"""Read which option a completion chooses: found, ambiguous or absent; never a guess.

The last mark counts, be it a letter ("The answer is B", `\boxed{B}`, "I pick B") or the text of an option; a letter
beyond the options, and one that is denied or only supposed ("I would not pick B"), is no answer. Without
a mark counts the first line that is a bare letter, then the only letter that starts a line or stands in parentheses,
then the only option whose text the answer repeats. The article "a" and the pronoun "I" are letters only where the
sentence ends or turns after them. Nothing is scored here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rangeline.suites.answer_equivalence import plain_text
from rangeline.suites.base import ABSENT, AMBIGUOUS, Extraction, found
from rangeline.suites.final_text import ANSWER_WORDS, COPULAS, visible_text

LETTERS = "ABCDEFGHIJ"
"""Labels of options in the order in which they are shown."""

_ADVERB = (
    r"(?:(?:definitely|clearly|obviously|probably|most likely|simply|just|indeed|actually|still|certainly|"
    r"in fact|therefore|thus|then|hence|also|donc|I think|I believe),? |"
    r"not (?:option )?\(?[A-Z]\)?,? (?:but|rather|instead)(?: rather)? )?"
)
_NOUN = (
    r"(?:(?:(?:the|la|die|das|(?<=é )a|a(?= op)) )?(?:option|choice|letter|answer|opción|opção|opzione|wahl|"
    r"buchstabe) |(?:la|die|(?<=é )a) )?"
)
_ADJECTIVE = (
    r"(?: (?:correct[ae]?|corretta|correta|exacte|juste|giusta|corect|final|finale|sahihi|"
    r"الصحيحة|الصحيح|đúng|yang benar|benar)|ที่ถูกต้อง)?"
)
# Scripts without spaces between words may stand right before and after a letter.
_UNSPACED = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_COPULA = (
    rf"(?: ?(?:(?:would|must|should|will|has to) be|to(?= [A-Z]\b)|(?:{COPULAS})(?![a-zA-Z]|(?<=[a-zA-Z])[A-Z])|"
    rf"(?:este|on|je|ni|היא|είναι(?: η)?)(?= \(?[A-Z]\b)|(?:{COPULAS})(?<={_UNSPACED})))?"
)
_ASIDE = (
    r"(?: (?:to|for|of) [^.\n:]{1,80}?(?= is\b)|, [^.,:\n]{1,40},|,? (?:I|we|that|which) [^.,\n:]{1,60}?(?= is\b))?"
)
_ANNOUNCEMENT = (
    rf"(?:(?<![a-zA-Z])(?:{ANSWER_WORDS}|ans\.?)(?![a-zA-Z]|(?<={_UNSPACED})(?!{_UNSPACED})\B(?![A-Z]))"
    rf"[\"']?{_ADJECTIVE}{_ASIDE}{_COPULA}(?: ?(?:[:=\uff1a]|[-=]+>|→|[-\u2014](?= )))*"
    r"|\b(?:correct|right|best|true) (?:option|choice|letter|one|statement)(?: is)?:?"
    r"|\b(?:(?:selected|chosen) |corresponds to |matches |matching |that fits |meaning )"
    r"(?:the )?(?:option|choice|letter|one)?(?: is|:)?"
    r"|\b(?:opción|opcion|opção|opzione|alternativa) (?:correcta|correta|corretta|giusta)(?: es| é| è)?:?"
    r"|\brichtig ist"
    r"|(?:正解|选择|應選|应选|选|選)(?:は|是|为)?[:\uff1a]?"
    r"|\boption (?:that|which) [^.,\n:]{1,60}? is"
    r"|\b(?:pick|choose|choosing|select|chose|go with|going with|went with|opt for|vote for)(?:ed|ing)?:?)[ \n]?"
)
_LETTER_MARK = r"[(\[\"'{<]{0,2} ?([A-Za-z])(?!['\u2019]?(?=[^\W]|_)(?!" + _UNSPACED + r"))"
_CHOICE_MARK = re.compile(rf"{_ANNOUNCEMENT}{_ADVERB}{_NOUN}{_LETTER_MARK}", re.IGNORECASE)
_IT_IS = re.compile(
    r"\b(?:(?:it|this|that)(?:'s| is| must be| has to be| should be)|"
    r"(?:I|we|I'd|I would|we would) (?:think|guess|say|believe)"
    rf"|guess(?: is|:)) {_ADVERB}{_NOUN}{_LETTER_MARK}",
    re.IGNORECASE,
)
_TEXT_MARK = re.compile(rf"{_ANNOUNCEMENT}{_ADVERB}(?=(?P<rest>\S[^\n]{{0,400}}))", re.IGNORECASE)
_IN_BOX = r"\\boxed\{ ?(?:\\(?:text|mathrm|textbf|mathbf)\{ ?)?"
_CHOICE_BOX = re.compile(
    _IN_BOX + r"(?:(?i:option|choice|answer):? ?)?[( ]{0,2}([A-Za-z])(?:[). ]{0,2}|[).:]{1,2} ?[^{}]*)\}{1,2}"
)
_TEXT_BOX = re.compile(_IN_BOX + r"([^{}]*)\}")
_TAGGED = re.compile(r"<answer>\W{0,3}(?:(?:option|choice|answer) ?:? ?)?\W?([A-Za-z])\W{0,3}</answer>", re.IGNORECASE)
_TAGGED_TEXT = re.compile(r"<answer>([^<\n]{1,400})</answer>", re.IGNORECASE)
_BETWEEN_BOXES = re.compile(r"[ $,;]*(?:and|or|/|&)?[ $]*")
# A bare I before "is true" is the number of a statement.
_CHOICE_NAMED = re.compile(
    r"(?:(?:\b[Oo]ption |\b[Cc]hoice |\b[Aa]nswer )(?:\(([A-Z])\)|([A-Z]))|\(([A-Z])\)|"
    r"(?:(?<=[a-z] )|(?<=[a-z], )|(?<![^\n]))"
    r"(?<!tatement )([A-HJ-Z])) (?:is|must be|has to be|would be|seems|looks) (?:the |my |therefore |clearly )?"
    r"(?:correct|right|best|true|answer)\b"
)
# "a" is an article and "I" a pronoun unless the sentence ends or turns after it; so is any small letter.
_STANDS_ALONE = re.compile(
    r"[)\].,;:!?}\"'*>]|\n|\Z| ?[-(]| (?:because|since|as|which|based|due|given)\b| \Z", re.IGNORECASE
)
_SECOND_CHOICE = re.compile(
    r"[)\]]?(?:,? or (?:possibly |perhaps |maybe |even )?|,? and |/| or/and |, |; | ?& )[(\[]?([A-Z])(?![\w'\u2019])"
    r"(?! (?:am|think|will|believe|would|did|chose|is)\b)"
)
_BARE_LETTER = re.compile(r"(?:(?i:option|choice) )?[(\[\"'$]{0,2}([A-Za-z])[)\].:\"'$]{0,3}")
_LETTERED_LINE = re.compile(
    r"[(\[]?([A-Z])(?:[)\].:]{1,2} ?(?![A-Z]\Z)\S|(?<!I),? (?:because|since)\b|(?<!I) [-\u2014] )"
)
_BULLET = re.compile(r"^(?:#{1,6}|[->*•]) +(?=\S)", re.MULTILINE)
_LISTED_LINE = re.compile(rf"[(\[]?([A-Z]){_SECOND_CHOICE.pattern}")
_LETTER_IN_PARENTHESES = re.compile(r"\(([A-Z])\)")
_DENIED = re.compile(r"(?:not|never|n't)\b", re.IGNORECASE)
# What denies a pick stands right before it, with words of opinion between at most; "x is not 0" denies nothing.
_DENYING = re.compile(
    r"(?:(?:\b(?:not|never|neither|nor|cannot|could|might|unlikely|refuse|no way)\b|n't\b)"
    r"(?: (?:think|believe|feel|say|agree|sure|certain|convinced|want|that|the|to|be|correct|right|true|best|final|"
    r"case|with|going|actually|really|necessarily|possible|likely|it|option|choice))*"
    r"|\b(?:if|unless|suppose|assume|assuming|whether)(?: that)?(?: the)?(?: correct)?"
    r"|\b(?:wrong|incorrect)|\brule out) ?\Z",
    re.IGNORECASE,
)
_TURN = re.compile(r"\b(?:so|but|therefore|hence|thus|then|because|since|and|which means|means)\b|,", re.IGNORECASE)
_EMPHASIS = re.compile(r"(?<!\w)[*_]+(?=\S)|(?<=\S)[*_]+(?!\w)")
_QUOTES = str.maketrans(
    {**dict.fromkeys("\u201c\u201d\u00ab\u00bb\u300c\u300d", '"'), **dict.fromkeys("\u2018\u2019", "'"),
     **{chr(0xFF21 + i): chr(0x41 + i) for i in range(26)}, "\uff08": "(", "\uff09": ")"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Mark:
    """A letter that a completion names."""

    start: int
    end: int
    letter: str
    is_denied: bool = False


def _is_denied(plain: str, start: int) -> bool:
    """Say whether the clause before a mark denies it or only supposes it: "I would not pick B", "If B is correct"."""
    return _DENYING.search(_TURN.split(plain[max(0, start - 80) : start])[-1]) is not None


def _marks(plain: str) -> list[_Mark]:
    """Return the marks in order."""
    marks = [_Mark(match.start(), match.end(), match[1]) for match in _CHOICE_BOX.finditer(plain)]
    marks += [_Mark(match.start(), match.end(), match[1]) for match in _TAGGED.finditer(plain)]
    for match in _CHOICE_NAMED.finditer(plain):
        letter = next(filter(None, match.groups()))
        marks.append(_Mark(match.start(), match.end(), letter, _is_denied(plain, match.start())))
    for pattern in (_CHOICE_MARK, _IT_IS):
        for match in pattern.finditer(plain):
            is_capital = pattern is _CHOICE_MARK and match[1].isupper() and match[1] not in "AI"
            if is_capital or _STANDS_ALONE.match(plain, match.end()) or _SECOND_CHOICE.match(plain, match.end()):
                marks.append(_Mark(match.start(), match.end(), match[1], _is_denied(plain, match.start())))
    return sorted(marks, key=lambda mark: (mark.end, mark.start))


def _last_choice(marks: list[_Mark], plain: str, allowed: str) -> Extraction:
    """Return the letter of the last mark, unless a second one stands beside it or it is taken back."""
    last = max(i for i, mark in enumerate(marks) if not mark.is_denied)
    if _SECOND_CHOICE.match(plain, marks[last].end):
        return AMBIGUOUS
    letter = marks[last].letter.upper()
    if any(mark.letter.upper() == letter for mark in marks[last + 1 :]):
        return ABSENT
    beside = marks[last - 1] if last else None
    are_boxes = beside is not None and all(plain.startswith("\\boxed", mark.start) for mark in (beside, marks[last]))
    if beside is not None and are_boxes and beside.letter.upper() != letter:
        between = plain[beside.end : marks[last].start]
        return AMBIGUOUS if _BETWEEN_BOXES.fullmatch(between) else _one_choice([letter], allowed)
    return _one_choice([letter], allowed)


def _one_choice(letters: list[str], allowed: str) -> Extraction:
    known = {letter.upper() for letter in letters if letter.upper() in allowed}
    if len(known) > 1:
        return AMBIGUOUS
    return found(known.pop()) if known else ABSENT


def _words(text: str) -> str:
    text = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text)
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


def _is_longer(letter: str | None, options: Sequence[str]) -> bool:
    """Say whether the text of an option is more than one letter."""
    return letter is not None and len(_words(options[LETTERS.index(letter)])) > 1


def _text_choice(plain: str, options: Sequence[str]) -> tuple[int, Extraction]:
    """Return the option whose text stands where a letter was asked for, and the place of that mark."""
    marked = [(match.start(), match[1]) for match in _TEXT_BOX.finditer(plain)]
    marked += [(match.end(), match[1]) for match in _TAGGED_TEXT.finditer(plain)]
    marked += [(match.start(), match["rest"]) for match in _TEXT_MARK.finditer(plain)]
    if marked:
        place, said = max(marked)
        is_denied = _DENIED.match(said) or _is_denied(plain, place)
        return place, ABSENT if is_denied else _by_text(said, options)
    lines = [line for line in plain.split("\n") if line.strip()]
    exact = {LETTERS[i] for i, option in enumerate(options) for line in lines[-1:] if _words(line) == _words(option)}
    return -1, _one_choice(sorted(exact), LETTERS)


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
    plain = _BULLET.sub("", _EMPHASIS.sub("", plain_text(visible_text(completion)).translate(_QUOTES)))
    place, by_text = _text_choice(plain, options) if options else (-1, ABSENT)
    marks = _marks(plain)
    chosen = [mark for mark in marks if not mark.is_denied]
    # The later mark counts; in one mark "E. coli" is the option of that name, and not option E.
    is_text = by_text.status == "found" and place >= 0 and (not chosen or place >= chosen[-1].start)
    if chosen and not (
        is_text
        and (place > chosen[-1].end or chosen[-1].letter.upper() not in allowed or _is_longer(by_text.value, options))
    ):
        return _last_choice(marks, plain, allowed)
    if by_text.status != "absent":
        return by_text
    lines = plain.split("\n")
    bare = [match[1] for line in lines if (match := _BARE_LETTER.fullmatch(line))]
    if bare and _BARE_LETTER.fullmatch(lines[0]):
        return _one_choice(bare[:1], allowed)
    lettered = [match[1] for line in lines if (match := _LETTERED_LINE.match(line))]
    lettered += [letter for line in lines if (match := _LISTED_LINE.match(line)) for letter in match.groups()]
    if bare or lettered:
        return _one_choice(bare + lettered, allowed)
    named = [match[1] for match in _LETTER_IN_PARENTHESES.finditer(plain) if not _is_denied(plain, match.start())]
    return _one_choice(named, allowed)
