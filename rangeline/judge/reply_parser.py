r"""Read what a judge wrote in free text: one of a few choices, or a score; a reply that says neither is missing.

A reply is taken as JSON, then by a marker (`Final Decision:`, `Verdict:`, `Score:`), then sentence by sentence. A word
counts only where it is asserted: alone, at the head of a sentence, or as what something `is`; a plain `not` before it
turns a pair of choices round. A sentence that asks, supposes, doubts, reports or hedges makes the reply ambiguous, as
two different readings do: missing is safe, a guess is not. A score is divided by its own scale (`4/5`, `8 out of 10`,
`80%`) and by nothing else. A number outside the scale, broken JSON and an empty reply are missing, each with its
reason, never 0. Only English is read as sentences; in any language, a bare choice, JSON and English markers are.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rangeline.judge.reply_clauses import (
    SHORT,
    is_given,
    is_of_a_part,
    is_open,
    is_reported,
    is_whole_verdict,
    turns_round,
    without_asides,
)
from rangeline.judge.reply_text import AMBIGUOUS, json_objects, said, unquoted

_LABEL = r"(?:final\s+)?(?:decision|verdict|judge?ment|answer|conclusion|result|rating|score|grade|choice)"
_MARKER = re.compile(rf"(?<!\w){_LABEL}\s*(?:is\s*)?[:=]\s*", re.IGNORECASE)
_FINAL = re.compile(r"final", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])(?<![0-9]\.)\s+|\n+")
_BEFORE = re.compile(
    r"(?:\A|[:,]\s*|\b(?:is|are|was|be|it's|as|seems|looks|verdict|answer|rate it|rate this|give it|give this|choose|"
    r"pick)\s+)"
    r"(?:(?:a|an|the|clearly|fully|entirely|completely|indeed|definitely|absolutely|at all)\s+)?[\[(<]?\s*\Z",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"(?:\A|\b(?:is|are|was)\s+|\b(?:is|was)(?=n't))(?:not|n't)\s+(?:an?\s+|at\s+all\s+)?\Z", re.IGNORECASE
)
_AFTER = re.compile(
    r"\s*(?:\Z|[.,:;!)\]>\n](?!\d)|-\s|\((?!or\b)|(?:and|because|since|as|so|for|given)\b)", re.IGNORECASE
)
_RIVAL = re.compile(r"\s*[\])>]?\s*(?:[/|]|or\b|and\b|to\b|-|versus\b|vs\b)\s*", re.IGNORECASE)
_BESIDE = re.compile(r"[^\S\n]*[,;]?[^\S\n]*")
_WRAPPED = re.compile(r"\A(?:\[([^\]\n]*)\]|\(([^)\n]*)\)|<([^>\n]*)>)")
_PLAIN = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_SCORE = re.compile(
    rf"(?<![\w.,/~<>])(?P<value>[-+]?{_PLAIN})(?:\s*(?:/|out of|of)\s*(?P<scale>{_PLAIN})|(?P<percent>\s*%))?"
    r"(?![\w/%]|[.,][0-9])"
)
_RANGE = re.compile(rf"\s*\(?\s*(?:or|to|and|-|\.\.+)\s*{_PLAIN}", re.IGNORECASE)
_UNFINISHED = re.compile(r"\s*(?:/|out(?:\s+of)?|of)?\s*\Z")
_KEYS = (
    *("final_decision", "decision", "verdict", "judgment", "judgement"),
    *("answer", "choice", "label", "result", "rating"),
)
_SCORE_KEYS = ("final_score", "score", "rating", "grade")


@dataclass(frozen=True, slots=True)
class ChoiceReply:
    """Which choice a reply names."""

    choice: str | None
    """None where the reply names none, or several."""
    reason: str
    """json, marker or text where there is a choice; otherwise why there is none."""


@dataclass(frozen=True, slots=True)
class ScoreReply:
    """Which score a reply gives."""

    score: float | None
    """In [0, 1]; None where the reply gives none."""
    reason: str


def parse_choice(reply: str | None, choices: Sequence[str], *, truncated: bool = False) -> ChoiceReply:
    """Return the one choice that a reply names.

    Parameters
    ----------
    reply
        What the judge wrote; None as a thinking model gives when its tokens ran out.
    choices
        At least two texts; case does not count.
    truncated
        Whether the reply was cut off; its last word is then not read.

    Examples
    --------
    >>> parse_choice("The answer is not correct", ["correct", "incorrect"]).choice
    'incorrect'
    >>> parse_choice("It may be correct, it may be incorrect.", ["correct", "incorrect"])
    ChoiceReply(choice=None, reason='ambiguous')
    """
    text, reason = said(reply, truncated=truncated)
    if reason:
        return ChoiceReply(None, reason)
    objects, is_json, rest = json_objects(text)
    if is_json:
        found = _json_choice(objects, choices)
        # A verdict that is taken back behind the JSON is two verdicts; words that leave it open do not take it back.
        others = {*_spoken_choices(rest, choices)[0]} - {None, "", found.choice}
        taken_back = found.choice is not None and (others or turns_round(unquoted(rest)))
        return ChoiceReply(None, AMBIGUOUS) if taken_back else found
    return _only(*_spoken_choices(text, choices))


def _spoken_choices(text: str, choices: Sequence[str]) -> tuple[list[str | None], str]:
    """Return the choices that a text names by markers, else by its sentences, and by which of them."""
    spoken = unquoted(text, said_after=_MARKER)
    marked = [_leading(part, choices) for part in _marked_parts(spoken)]
    readings = [reading for reading in marked if reading is not None]
    if readings:
        return [*readings], "marker"
    return [reading for part in _SENTENCE.split(spoken) for reading in _asserted(part, choices)], "text"


def parse_score(reply: str | None, *, truncated: bool = False) -> ScoreReply:
    """Return the score in [0, 1] that a reply gives.

    Parameters
    ----------
    reply
        What the judge wrote.
    truncated
        Whether the reply was cut off; a number at its very end is then not read.

    Examples
    --------
    >>> parse_score("I compared 1/2 of it. Score: 4/5").score
    0.8
    >>> parse_score('{"score": 7}')
    ScoreReply(score=None, reason='out of range')
    """
    text, reason = said(reply, truncated=truncated)
    if reason:
        return ScoreReply(None, reason)
    objects, is_json, rest = json_objects(text)
    if is_json:
        found, (_, others) = _json_score(objects), _marked_scores(unquoted(rest, said_after=_MARKER))
        again = _only_score(others, "marker", truncated=False) if others else found
        return ScoreReply(None, AMBIGUOUS) if found.score is not None and again.score != found.score else found
    spoken = unquoted(text, said_after=_MARKER)
    parts, marked = _marked_scores(spoken)
    if marked:
        return _only_score(marked[-1:] if _last_is_final(spoken) else marked, "marker", truncated=truncated)
    if parts:
        return ScoreReply(None, "no score given")
    given = [match for match in _SCORE.finditer(spoken) if is_given(spoken, *match.span())]
    return _only_score(given, "text", truncated=truncated)


def _marked_scores(spoken: str) -> tuple[list[str], list[re.Match[str]]]:
    """Return what follows each marker, and the numbers that stand right there."""
    parts = _marked_parts(spoken)
    return parts, [found for part in parts if (found := _SCORE.match(_WRAPPED.sub(r"\1\2\3", part))) is not None]


def _json_choice(objects: Sequence[dict[str, Any]], choices: Sequence[str]) -> ChoiceReply:
    by_name, readings = {choice.casefold(): choice for choice in choices}, []
    for named in objects:
        values = [named[key] for key in _KEYS if key in named] or (list(named.values()) if len(named) == 1 else [])
        texts = [str(value).strip(" \t\n.*!").casefold() for value in values if isinstance(value, str | int | float)]
        readings += [by_name[text] for text in texts if text in by_name]
    return _only(readings, "json") if readings else ChoiceReply(None, "JSON without a choice")


def _json_score(objects: Sequence[dict[str, Any]]) -> ScoreReply:
    replies = [_json_value(named) for named in objects]
    given = {reply for reply in replies if reply.reason != "JSON without a score"}
    if len(given) > 1:
        return ScoreReply(None, AMBIGUOUS)
    return next(iter(given), ScoreReply(None, "JSON without a score"))


def _json_value(named: dict[str, Any]) -> ScoreReply:
    value = next((named[key] for key in _SCORE_KEYS if key in named), None)
    if isinstance(value, str) and (match := _SCORE.fullmatch(value.strip())) is not None:
        return _only_score([match], "json", truncated=False)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ScoreReply(None, "JSON without a score")
    return _bounded(float(value), "json") if abs(value) < math.inf else ScoreReply(None, "not finite")


def _bounded(value: float, reason: str) -> ScoreReply:
    if not math.isfinite(value):
        return ScoreReply(None, "not finite")
    return ScoreReply(value, reason) if 0 <= value <= 1 else ScoreReply(None, "out of range")


def _marked_parts(text: str) -> list[str]:
    """Return what follows each marker, but for those that a sentence only reports or demands."""
    marks = [mark for mark in _MARKER.finditer(text) if not is_reported(text[: mark.start()])]
    return [text[mark.end() :].lstrip() for mark in marks]


def _last_is_final(text: str) -> bool:
    marks = list(_MARKER.finditer(text))
    return bool(marks) and _FINAL.match(marks[-1].group()) is not None


def _pattern(choices: Sequence[str]) -> re.Pattern[str]:
    longest = sorted(choices, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-]|[.,][0-9])", re.IGNORECASE)


def _leading(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice that a marked text begins with, "" where another follows at once, None where none does."""
    match = re.match(r"(?:the\s+)?[\[(<]?\s*(not\s+)?", text, re.IGNORECASE)
    rest = text[match.end() :] if match else text
    found = _pattern(choices).match(rest)
    if found is None:
        return None
    choice, after = _canonical(found.group(), choices), rest[found.end() :]
    beside = _BESIDE.sub("", after, count=1)
    follower = _pattern(choices).match(beside)
    if (
        follower is not None
        and _canonical(follower.group(), choices) != choice
        and _ends_a_clause(beside[follower.end() :])
    ):
        return ""
    if _has_rival(after, choices) or not is_whole_verdict(choice, after):
        return ""
    negated = match is not None and match.group(1) is not None
    read = _opposite(choice, choices) if negated else choice
    line = ("not " if negated else "") + without_asides(rest.split("\n", 1)[0])
    others = {said for part in _SENTENCE.split(line) for said in _asserted(part, choices)} - {"", read}
    return "" if others or turns_round(line) else read


def _has_rival(after: str, choices: Sequence[str]) -> bool:
    """Tell whether another choice stands right behind, as in `yes/no` or `3 or 4`; `4/5` of a scale of 5 is none."""
    rival = _RIVAL.match(after)
    if rival is None or _pattern(choices).match(after[rival.end() :]) is None:
        return False
    return not ("/" in rival.group() and choices[-1].isdigit() and after[rival.end() :].startswith(choices[-1]))


def _asserted(sentence: str, choices: Sequence[str]) -> Iterator[str]:
    """Give each choice that a sentence asserts, and "" for one that it leaves open."""
    taken = False
    for match in _pattern(choices).finditer(sentence):
        before, after, word = sentence[: match.start()], sentence[match.end() :], match.group()
        if word.isdigit() and _numbers_something_else(before, after):
            continue
        if _has_rival(after, choices):
            yield ""
            continue
        negation = _NOT.search(before)
        head = before if negation is None else before[: negation.start()]
        if not _ends_a_clause(after) or (len(word) > SHORT and is_of_a_part(head)):
            continue
        negated, asserted = negation is not None, _BEFORE.search(before) is not None
        if taken and len(word) <= SHORT:
            yield _canonical(word, choices)  # what comes behind the first is said too: "Yes, but no."
        elif is_open(before, head, after, is_long=len(word) > SHORT):
            yield ""
        elif negated:
            yield _opposite(_canonical(word, choices), choices) or ""
        elif asserted:
            yield _canonical(word, choices)
        elif len(word) > SHORT:
            yield ""
        taken = True


def _ends_a_clause(after: str) -> bool:
    return _AFTER.match(after) is not None or re.match(r"\s*(?:/|out of)\s*[0-9]", after) is not None


def _numbers_something_else(before: str, after: str) -> bool:
    """Tell whether a digit is the scale of another (`4/5`), or numbers a list (`1. The steps are`)."""
    is_scale = re.search(r"[0-9]\s*(?:/|out of)\s*\Z", before) is not None
    return is_scale or (not before.strip() and re.match(r"[.)]\s+\S", after) is not None)


def _canonical(text: str, choices: Sequence[str]) -> str:
    return next(choice for choice in choices if choice.casefold() == text.casefold())


def _opposite(choice: str, choices: Sequence[str]) -> str | None:
    others = [other for other in choices if other != choice]
    return others[0] if len(others) == 1 else None


def _only(readings: Sequence[str | None], reason: str) -> ChoiceReply:
    distinct = set(readings)
    if not distinct:
        return ChoiceReply(None, "no choice named")
    if len(distinct) > 1 or "" in distinct or None in distinct:
        return ChoiceReply(None, AMBIGUOUS)
    return ChoiceReply(readings[0], reason)


def _only_score(matches: Sequence[re.Match[str]], reason: str, *, truncated: bool) -> ScoreReply:
    if truncated and matches and _UNFINISHED.match(matches[-1].string, matches[-1].end()):
        return ScoreReply(None, "cut off")
    if any(_RANGE.match(match.string, match.end()) for match in matches):
        return ScoreReply(None, AMBIGUOUS)
    values = []
    for match in matches:
        scale = 100.0 if match["percent"] else float(match["scale"] or 1)
        values.append(float(match["value"]) / scale if scale > 0 else math.nan)
    if not values:
        return ScoreReply(None, "no score given")
    if any(not math.isfinite(value) for value in values):
        return ScoreReply(None, "not finite")
    if max(values) - min(values) > 1e-12:
        return ScoreReply(None, AMBIGUOUS)
    return _bounded(values[0], reason)
