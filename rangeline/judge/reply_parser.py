r"""Read what a judge wrote in free text: one of a few choices, or a score; a reply that says neither is missing.

A reply is taken as JSON, then by a marker (`Final Decision:`, `Verdict:`, `Score:`), then as it stands. Thinking blocks
and quoted text are dropped first: what a judge quotes it does not say. Two readings that differ are ambiguous, never a
guess; a score is divided by its own scale (`4/5`, `8 out of 10`, `80%`) and by nothing else. A number outside the
scale, a broken JSON object and an empty reply are missing, each with its reason, never 0.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_CLOSING_ONLY = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|\u201c[^\u201d\n]*\u201d|\u00ab[^\u00bb\n]*\u00bb|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)")
_FENCE = re.compile(r"```[a-z]*\n?|```", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*+|(?<!\w)_+|_+(?!\w)")
_LABEL = r"(?:final\s+)?(?:decision|verdict|judge?ment|answer|conclusion|result|rating|score|grade)"
_MARKER = re.compile(rf"(?<!\w){_LABEL}\s*(?:is\s*)?[:=\uff1a]\s*", re.IGNORECASE)
_FINAL = re.compile(r"final", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:not|never|(?:is|was|does|would)n['\u2019]t)(?:\s+be)?\s+(?:an?\s+|at\s+all\s+)?\Z", re.IGNORECASE
)
_HEDGE = re.compile(
    r"\b(?:partially|partly|mostly|almost|nearly|half|neither|maybe|perhaps|possibly)\s+\Z", re.IGNORECASE
)
_PLAIN = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_SCORE = re.compile(
    rf"(?<![\w.,/])(?P<value>[-\u2212+]?{_PLAIN})(?:\s*(?:/|out of|of)\s*(?P<scale>{_PLAIN})|(?P<percent>\s*%))?"
    r"(?![\w/%]|[.,]\d)"
)
_KEYS = ("final_decision", "decision", "verdict", "judgment", "judgement", "answer", "choice", "label", "result")


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
    text, reason = _said(reply, truncated=truncated)
    if reason:
        return ChoiceReply(None, reason)
    found, is_json = _json_object(text)
    if is_json:
        return _json_choice(found, choices)
    spoken = text[1:-1] if _QUOTED.fullmatch(text) else _QUOTED.sub(" ", text)
    marked = _marked_parts(spoken)
    readings = [reading for part in marked if (reading := _leading(part, choices)) is not None]
    if readings:
        return _only(readings, "marker")
    return _only(_mentions(spoken, choices), "text")


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
    text, reason = _said(reply, truncated=truncated)
    if reason:
        return ScoreReply(None, reason)
    found, is_json = _json_object(text)
    if is_json:
        return _json_score(found)
    spoken = _QUOTED.sub(" ", text)
    marked = [match for part in _marked_parts(spoken) if (match := _SCORE.match(part)) is not None]
    if marked:
        return _only_score(marked[-1:] if _last_is_final(spoken) else marked, "marker")
    return _only_score(list(_SCORE.finditer(spoken)), "text")


def _said(reply: str | None, *, truncated: bool) -> tuple[str, str]:
    """Return what the judge says outside its thinking, and why that is nothing."""
    if reply is None:
        return "", "no content"
    text = _CLOSING_ONLY.sub("", _THINKING.sub(" ", reply)) if "<" in reply else reply
    text = text.strip()
    if not text:
        return "", "inside thinking" if reply.strip() else "empty"
    if truncated and not text.endswith(("}", "!", "?")):
        text = re.sub(r"\S+\Z", "", text).strip()
        if not text:
            return "", "cut off"
    return text, ""


def _json_object(text: str) -> tuple[dict[str, Any], bool]:
    """Return the last JSON object of a text; an unreadable one gives an empty object, which is still JSON."""
    body = _FENCE.sub(" ", text)
    decoder, found, start, opened = json.JSONDecoder(), None, body.find("{"), False
    while start >= 0:
        try:
            value, end = decoder.raw_decode(body, start)
        except (json.JSONDecodeError, RecursionError):
            opened = opened or bool(re.match(r"\{\s*[\"']", body[start:]))
            start = body.find("{", start + 1)
            continue
        if isinstance(value, dict):
            found = value
        start = body.find("{", end)
    return (found or {}), found is not None or opened


def _json_choice(found: dict[str, Any], choices: Sequence[str]) -> ChoiceReply:
    by_name = {choice.casefold(): choice for choice in choices}
    named = {str(key).casefold().replace(" ", "_"): value for key, value in found.items()}
    values = [named[key] for key in _KEYS if key in named] or (list(named.values()) if len(named) == 1 else [])
    readings = [by_name[value.strip().casefold()] for value in values if isinstance(value, str) and _is(value, by_name)]
    return _only(readings, "json") if readings else ChoiceReply(None, "JSON without a choice")


def _is(value: str, by_name: dict[str, str]) -> bool:
    return value.strip().casefold() in by_name


def _json_score(found: dict[str, Any]) -> ScoreReply:
    named = {str(key).casefold(): value for key, value in found.items()}
    keys = [key for key in ("final_score", "score", "rating", "grade") if key in named]
    value = named[keys[0]] if keys else None
    if isinstance(value, str) and (match := _SCORE.fullmatch(value.strip())) is not None:
        return _only_score([match], "json")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ScoreReply(None, "JSON without a score")
    return _bounded(float(value), "json")


def _bounded(value: float, reason: str) -> ScoreReply:
    if not math.isfinite(value):
        return ScoreReply(None, "not finite")
    return ScoreReply(value, reason) if 0 <= value <= 1 else ScoreReply(None, "out of range")


def _marked_parts(text: str) -> list[str]:
    return [_EMPHASIS.sub("", text[match.end() :]).lstrip() for match in _MARKER.finditer(_EMPHASIS.sub("", text))]


def _last_is_final(text: str) -> bool:
    marks = list(_MARKER.finditer(_EMPHASIS.sub("", text)))
    return bool(marks) and _FINAL.match(marks[-1].group()) is not None


def _pattern(choices: Sequence[str]) -> re.Pattern[str]:
    longest = sorted(choices, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])", re.IGNORECASE)


def _leading(text: str, choices: Sequence[str]) -> str | None:
    match = re.match(r"(?:the\s+)?(?:\(|\[)?\s*", text, re.IGNORECASE)
    rest = text[match.end() :] if match else text
    negation = re.match(r"not\s+", rest, re.IGNORECASE)
    found = _pattern(choices).match(rest[negation.end() :] if negation else rest)
    if found is None:
        return None
    choice = _canonical(found.group(), choices)
    return _opposite(choice, choices) if negation else choice


def _mentions(text: str, choices: Sequence[str]) -> list[str]:
    """Return each choice that a text asserts, "" for one it leaves open.

    Words of up to three letters, such as yes and no, count only where a sentence begins.
    """
    plain, readings = _EMPHASIS.sub("", text), []
    for match in _pattern(choices).finditer(plain):
        before = plain[: match.start()]
        if len(match.group()) <= 3 and re.search(r"(?:\A|[.!?:;\n])\s*[\[(]?\Z", before) is None:
            continue
        choice = _canonical(match.group(), choices)
        reading = _opposite(choice, choices) if _NEGATION.search(before) else choice
        readings.append("" if reading is None or _HEDGE.search(before) else reading)
    return readings


def _canonical(text: str, choices: Sequence[str]) -> str:
    return next(choice for choice in choices if choice.casefold() == text.casefold())


def _opposite(choice: str, choices: Sequence[str]) -> str | None:
    others = [other for other in choices if other != choice]
    return others[0] if len(others) == 1 else None


def _only(readings: Sequence[str], reason: str) -> ChoiceReply:
    distinct = set(readings)
    if not distinct:
        return ChoiceReply(None, "no choice named")
    if len(distinct) > 1 or "" in distinct:
        return ChoiceReply(None, "ambiguous")
    return ChoiceReply(readings[0], reason)


def _values(matches: Sequence[re.Match[str]]) -> Iterator[float]:
    for match in matches:
        value = float(match["value"].replace("\u2212", "-"))
        scale = 100.0 if match["percent"] else float(match["scale"] or 1)
        yield value / scale if scale > 0 else math.nan


def _only_score(matches: Sequence[re.Match[str]], reason: str) -> ScoreReply:
    values = list(_values(matches))
    if not values:
        return ScoreReply(None, "no score given")
    if any(not math.isfinite(value) for value in values):
        return ScoreReply(None, "not finite")
    if max(values) - min(values) > 1e-12:
        return ScoreReply(None, "ambiguous")
    return _bounded(values[0], reason)
