r"""Read the final answer of a completion as a text of mathematics: found or absent.

The last mark counts: `\boxed{...}` (nested, several side by side are one list), `Answer: ...`, "the answer is ...",
`<answer>...</answer>`, `#### ...`; a box that never closes is no answer. Without a mark, a reply that is one expression
counts, then what the last sentence states ("So x = 5.", "The value is $4$."). What is said in words of doubt is no
answer. Nothing is compared here.
"""

import re

from rangeline.suites.base import ABSENT, Extraction, found
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.final_text import ANSWER_WORDS, COPULAS, visible_text

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?:\{|(?P<bare>-?[0-9]+(?:\.[0-9]+)?|[a-zA-Z](?![a-zA-Z])))")
_BETWEEN_BOXES = re.compile(
    r"[\s$,;.]*(?:\\(?:text|mathrm)\{\s*)?(?:and|or|,|;|\\quad|\\qquad|\\)?\s*\}?[\s$,;]*(?:and|or)?[\s$]*"
)
_TAGGED = re.compile(r"<answer>(.{0,2000}?)</answer>", re.IGNORECASE | re.DOTALL)
_HASHES = re.compile(r"####+\s*:?\s*(\S[^\n]*)")
_STATED = re.compile(
    rf"(?<![a-zA-Z])(?:{ANSWER_WORDS})(?![a-zA-Z{{])[*_\s]*(?:(?:to|for|of|zu|de|à)\s[^.\n:=$]{{1,60}}?\s(?=(?:{COPULAS})\b))?"
    rf"(?:(?:{COPULAS})(?![a-zA-Z])\s*)?[:\uff1a=]?[*_\s]*(?:(?:therefore|thus|then|simply|just|clearly|also)[,\s]+)?(?P<rest>\S)",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    rf"(?:{COPULAS})\s*[:\uff1a]?[*_\s]*(?:[a-z]+[,\s]+)?$|[:\uff1a=][*_\s]*$|[\n*_]\s*$", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"(?<![0-9A-Z])[.!?](?:\s|$)|(?<=[0-9A-Z])[.!?](?:\s|$)|[。\uff01\uff1f]|\n")
_TAIL = re.compile(
    r"[,;]?\s+(?:because|since|which|where|so that|as (?:the|we|it|required|desired)|hence|thus|therefore|for all|"
    r"when|if|but|by|\(which|\(since|\(because|\(where)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_DOUBT = re.compile(
    r"(?:not|un(?:clear|known|certain|sure|determined)|cannot|can't|can not|could|may|might|impossible to|hard to|I\b|"
    r"we\b|you\b|that\b|to be\b|going\b|probably not)",
    re.IGNORECASE,
)
_ADMITTED = re.compile(
    r"\b(?:cannot|can't|can not|could not|do(?:es)? not|don't|unsure|unclear|unknown|not sure|no idea|impossible|"
    r"(?:could|may|might)(?: well)? be|perhaps|maybe|possibly)\b",
    re.IGNORECASE,
)
_MATHEMATICS = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$([^$\n]+)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_STATEMENT = re.compile(
    r".*(?:\b(?:is|are|equals|be|becomes|gives|get|obtain|yields|have)\b:?|[:\uff1a])\s+(.+)$", re.DOTALL
)
_TOKENS = re.compile(
    r"[-+]? ?[0-9a-zA-Z(\[{|\\](?:\\[a-zA-Z]+|\\[{}|%]|[0-9]+(?:[.,][0-9]+)*%?|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|and|"
    r"or|[-+*/^_=<>|(){}\[\],;: !'])*"
)
_ANNOUNCING_TEXT = re.compile(r"^\s*\\text\s*\{[^{}]*(?:\bis|[:=])\s*\}\s*(?=\S)")
_SAID_AFTER = re.compile(r"\s*(?:です|である|となります|입니다|이다|है)$")
_LONGEST_UNMARKED = 120
_LONGEST, _LONGEST_SENTENCE = 400, 600
"""Characters of the longest answer, and of the text that is looked at for one."""


def _boxes(text: str) -> list[tuple[int, int, str]] | None:
    """Return start, end and content of each box; None where the last one never closes."""
    boxes, place = [], 0
    while (match := _BOX.search(text, place)) is not None:
        if match["bare"]:
            boxes.append((match.start(), match.end(), match["bare"]))
            place = match.end()
            continue
        depth, i = 1, match.end()
        while i < len(text) and depth:
            if text[i] == "\\":
                i += 1
            else:
                depth += (text[i] == "{") - (text[i] == "}")
            i += 1
        if depth:
            return None
        boxes.append((match.start(), i, text[match.end() : i - 1]))
        place = i
    return boxes


def _last_box(boxes: list[tuple[int, int, str]], text: str) -> tuple[int, str] | None:
    """Return place and content of the last box; boxes with nothing but a conjunction between are one list."""
    if not boxes:
        return None
    contents = [_ANNOUNCING_TEXT.sub("", boxes[-1][2]).strip()]
    for before, after in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        gap = text[before[1] : after[0]]
        if _BETWEEN_BOXES.fullmatch(gap) is None or "\n" in gap or "." in gap:
            break
        contents.insert(0, _ANNOUNCING_TEXT.sub("", before[2]).strip())
    return boxes[-1][0], " , ".join(dict.fromkeys(contents))


def _clean(text: str) -> str:
    text = _TAIL.sub("", text.strip().replace("**", "").replace("__", "").strip("*_ \n"))
    return _SAID_AFTER.sub("", text.strip().rstrip(".,;:!?。").strip())


def _one_sentence(text: str) -> str:
    """Return what an announcement says: a whole formula where it opens with one, else up to the end of the sentence."""
    text = text.lstrip("*_ \n")
    match = _MATHEMATICS.match(text)
    if match is not None:
        end = match.end()
        # "$1$ and $2$", "$5$ cm" belong together.
        while (more := re.compile(r"\s*(?:,|and|or)\s*").match(text, end)) and _MATHEMATICS.match(text, more.end()):
            end = _MATHEMATICS.match(text, more.end()).end()  # type: ignore[union-attr]
        return text[:end]
    end_of_sentence = _SENTENCE_END.search(text)
    return text[: end_of_sentence.start()] if end_of_sentence else text


def _marked(text: str, boxes: list[tuple[int, int, str]]) -> tuple[int, str] | None:
    """Return place and text of the last mark outside the boxes that says something."""
    marks: list[tuple[int, str]] = [(match.start(), match[1]) for match in _TAGGED.finditer(text)]
    marks += [(match.start(), _one_sentence(match[1][:_LONGEST_SENTENCE])) for match in _HASHES.finditer(text)]
    for match in _STATED.finditer(text):
        announcement = text[match.start() : match.start("rest")]
        if _ANNOUNCED.search(announcement) is None:
            continue
        said = _one_sentence(text[match.start("rest") : match.start("rest") + _LONGEST_SENTENCE])
        if _DOUBT.match(said) is None and _BOX.search(said) is None:
            marks.append((match.start(), said))
    # What a box announces ("\\boxed{\\text{Answer: } 5}") is that box's content.
    marks = [
        (place, said)
        for place, said in marks
        if _clean(said) and not any(start < place < end for start, end, _ in boxes)
    ]
    return max(marks, default=None)


def _is_balanced(text: str) -> bool:
    return all(text.count(opening) <= text.count(closing) for opening, closing in ("{}", "()")) and text.count(
        "{"
    ) == text.count("}")


def _is_mathematics(text: str) -> bool:
    """Say whether a text is an expression and not prose or noise: tokens of mathematics only, and a unit at most."""
    text = tidy_expression(text) if len(text) <= _LONGEST_UNMARKED else ""
    if not text or not _is_balanced(text) or _TOKENS.fullmatch(text) is None:
        return False
    # "a 4 x" is not how a product is written; "3 and 5" is a list.
    joined = re.sub(r"(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])", ",", text)
    if re.search(r"(?<![\\a-zA-Z])[0-9a-zA-Z.]+ +[0-9a-zA-Z]", re.sub(r"\\[a-zA-Z]+ *", r"\\;", joined)):
        return False
    return re.search(r"[0-9]|\\(?:pi|infty|emptyset|sqrt|frac)|^-?[a-zA-Z]$|=", text) is not None


def _unmarked(text: str) -> Extraction:
    lines = [line.strip() for line in text.strip().split("\n") if line.strip()]
    if not lines:
        return ABSENT
    sentences = [
        part for part in re.split(r"(?<=[^0-9A-Z\s][.!?])\s+|(?<=[0-9$)}\]][.!?])\s+", lines[-1]) if part.strip()
    ]
    last = sentences[-1] if sentences else lines[-1]
    if _ADMITTED.search(last):
        return ABSENT
    statement = _STATEMENT.match(last)
    if statement and _is_mathematics(_clean(statement[1])) and not _DOUBT.match(statement[1]):
        return found(_clean(statement[1]))
    whole = _clean(text) if len(lines) == 1 or _MATHEMATICS.fullmatch(text.strip()) else ""
    if whole and _is_mathematics(whole):
        return found(whole)
    formulas = [next(filter(None, groups)) for groups in _MATHEMATICS.findall(last)]
    if len(formulas) == 1 and _is_mathematics(formulas[0]):
        return found(_clean(formulas[0]))
    ends = re.search(r"=\s*([^=]+)$", _clean(last))
    return found(_clean(ends[1])) if ends and _is_mathematics(_clean(ends[1])) else ABSENT


def extract_tagged(completion: str) -> Extraction:
    """Return what the last pair of `<answer>` tags outside the thinking holds."""
    tagged = _TAGGED.findall(visible_text(completion))
    return found(tagged[-1].strip()) if tagged and tagged[-1].strip() else ABSENT


def extract_expression(completion: str) -> Extraction:
    r"""Return the final answer of a completion as its text.

    Parameters
    ----------
    completion
        Text of the policy.

    Returns
    -------
    Extraction
        Absent where nothing is stated, and where the last box never closes.

    Examples
    --------
    >>> extract_expression(r"First \boxed{12}, then \boxed{\frac{8}{2}}.").value
    '\\frac{8}{2}'
    >>> extract_expression("I do not know.").status, extract_expression(r"It is \boxed{42").status
    ('absent', 'absent')
    """
    text = re.sub(r"\n+", "\n", re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", visible_text(completion))))
    boxes = _boxes(text)
    if boxes is None:
        return ABSENT
    box, mark = _last_box(boxes, text), _marked(text, boxes)
    # A sentence that announces its box is the same mark.
    if box is not None and (mark is None or box[0] > mark[0]):
        return found(box[1]) if box[1] else ABSENT
    if mark is not None:
        said = _clean(mark[1])
        return found(said) if len(said) <= _LONGEST else ABSENT
    return _unmarked(text[-4 * _LONGEST :])
