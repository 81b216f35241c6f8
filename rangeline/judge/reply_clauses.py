r"""Whether a clause of a judge's text says what it seems to say of the whole answer.

A clause ends at a comma, a colon or a connective. A word in a clause that denies (`no way that`, `it is not true that`,
`too vague to be`), reports or demands is not asserted there; one whose clause is about a part of an answer (`step 2 is
correct`) says nothing of the answer. A number counts as a score where it stands alone or is given as one, not where it
counts errors, numbers steps or is the answer itself.
"""

import re

_CLAUSE = re.compile(
    r"[,;:]|(?<!\w)-(?!\w)|\b(?:so|because|since|therefore|hence|thus|and|but|as|for|given)\b", re.IGNORECASE
)
_OPEN = re.compile(
    r"\?|\b(?:if|whether|unless|were|would|could|might|may|maybe|should|unclear|unsure|doubt\w*|false|wrong|say\w*|said|"
    r"claim\w*|state\w*|think|thought|believe\w*|suppose\w*|assum\w*|perhaps|possibly|part(?:ial)?ly|mostly|almost|nearly|"
    r"half|neither|nor|hardly|barely|scarcely|far from|anything but|cannot|unlikely|likely|reply|respond|either|never|"
    r"nicht|kein\w*|pas|jamais|no es|no son|nunca|não|non|niet|inte|ikke)\b|n't\b(?<!isn't)(?<!wasn't)"
    r"|\b\u043d\u0435\b|不|非|ない",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:no|not|nothing|none|nobody|fail\w*|refus\w*|den(?:y|ies|ied)|lacks?|too|opposite|less|must|needs?|needed|"
    r"ha[sd] to|have to)\b|n't\b|\bto be\b(?<!seems to be)(?<!appears to be)(?<!found to be)",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:steps?|parts?|lines?|units?|format\w*|methods?|approach|reasoning|logic|set-?up|formulas?|equations?|"
    r"explanation|derivation|notation|spelling|grammar|first|second|third|intermediate|key)\b",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:if|unless|tells?|told|ask(?:s|ed)?|instruct\w*|reads|says?|said|wrote|writes|outputs?|reply|respond|claim\w*|"
    r"ignor\w*|demand\w*|order(?:s|ed)|request\w*|pretend\w*|insist\w*|assert\w*|disagree\w*|hop(?:e|ed|ing)|wish\w*)\b",
    re.IGNORECASE,
)
SHORT = 3
"""Words of up to so many letters (no, yes, A) are other things too, so they count only before a mark or the end."""
_ENDS = re.compile(r"[^\S\n]*(?:\Z|\n|[^\w\s?]|(?:and|because|since|as|so|for|given)\b)", re.IGNORECASE)
_ENDS_SHORT = re.compile(rf"{_ENDS.pattern}|\s+(?:it|this|that|the|they|both|all)\b", re.IGNORECASE)
_OF_SCALE = re.compile(r"\s*(?:/|out\s+of|of)\s*[0-9]")
_ASIDE = re.compile(r"\(\s*not\b[^)\n]*\)", re.IGNORECASE)
_TURNED = re.compile(
    r"\b(?:wait|actually|on reflection|(?:on )?second thoughts?|scratch that|guess|not sure|unsure|or not)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?;](?=\s)|\n")
_GIVEN = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|giv(?:e|es|ing)|deserv\w*|award\w*|assign\w*|"
    r"worth|verdict|decision|judge?ment|mark(?:s|ed)?|overall|total|(?:i'd|i would) say|between|from)\b",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"[.)]\s+\S")
_STANDS = re.compile(
    r"\s*(?:\Z|[.,:;!)\]>}\n$](?!\d)|-\s|\(|(?:stars?|points?|overall|to|or|and|because|since|as|so|for|given)\b)"
)


def is_open(before: str, head: str, after: str, *, is_long: bool) -> bool:
    """Tell whether a sentence leaves its word open; what stands behind a short one is of something else."""
    return _OPEN.search(before) is not None or (is_long and (_is_denied(head) or _OPEN.search(after) is not None))


def is_of_a_part(before: str) -> bool:
    """Tell whether the clause that a word ends is about a part of an answer only."""
    return _PART.search(_last_clause(before)) is not None


def is_reported(before: str) -> bool:
    """Tell whether a marker stands in a sentence that reports, demands or supposes it."""
    return _REPORTED.search(_SENTENCE_END.split(before)[-1]) is not None


def is_whole_verdict(choice: str, after: str) -> bool:
    """Tell whether a marked choice is the whole verdict: `correct answer is 12`, `No idea` and `Yes?` are none."""
    ends = _ENDS_SHORT if len(choice) <= SHORT else _ENDS
    return ends.match(after) is not None or (choice.isdigit() and _OF_SCALE.match(after) is not None)


def turns_round(line: str) -> bool:
    """Tell whether a marked line takes its verdict back or doubts it."""
    return _TURNED.search(line) is not None


def without_asides(line: str) -> str:
    """Return a line without what it says in brackets that it does not mean: `Yes (not no)`."""
    return _ASIDE.sub("", line)


def is_given(text: str, start: int, end: int) -> bool:
    """Tell whether the number at text[start:end] is given as a score, in its own line or sentence."""
    before, after = _SENTENCE_END.split(text[:start])[-1], text[end:]
    if not _STANDS.match(after):
        return False
    numbers_a_list = text[start:end].isdigit() and _NUMBERING.match(after) is not None
    if not before.strip() and numbers_a_list:
        return False
    return not before.strip(" \t([<{$*-") or (_GIVEN.search(before) is not None and not _PART.search(before))


def _is_denied(before: str) -> bool:
    return _DENIED.search(_last_clause(before)) is not None or _REPORTED.search(before) is not None


def _last_clause(before: str) -> str:
    return _CLAUSE.split(before)[-1]
