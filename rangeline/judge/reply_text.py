r"""What a judge says in a reply once its thinking, its quotations and the characters that hide text are gone.

Nothing is guessed here: a reply that is absent, empty, all thinking, or cut off inside its thinking says nothing, and
the reason is told. JSON objects are read strictly: a key that stands twice with two values contradicts itself.
"""

import json
import re
import unicodedata
from typing import Any

_THINKING = re.compile(r"(?:<(think|thinking|reasoning|analysis)>|◁think▷).*?(?:</\1>|◁/think▷|\Z)", re.DOTALL | re.I)
_CLOSING_ONLY = re.compile(r"\A.*(?:</(?:think|thinking|reasoning|analysis)>|◁/think▷)", re.DOTALL | re.IGNORECASE)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)\s*<\|message\|>(.*?)(?=<\|(?:end|return|start|channel)\|>|\Z)", re.DOTALL)
_QUOTED = re.compile(r"\"[^\"\n]*\"|«[^»\n]*»|「[^」\n]*」|`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)")
_FENCE = re.compile(r"```[a-z]*\n?|```", re.IGNORECASE)
_EMPHASIS = re.compile(r"\*+|(?<!\w)_+|_+(?!\w)|^#+\s*", re.MULTILINE)
_BOXED = re.compile(r"\\(?:boxed|text|textbf|mathrm)\{([^{}]*)\}")
_REFUSAL = re.compile(
    r"\b(?:can(?:no|')t|can not|won't|will not|(?:am|'m) (?:not able|unable)|unable|decline|refuse)(?: to)? "
    r"(?:\w+ )?(?:help|assist|judge|evaluate|grade|rate|assess|answer|comply|provide|determine|do that|fulfil)",
    re.IGNORECASE,
)
_TYPED = str.maketrans(
    {
        "\u2044": "/",
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2212": "-",
        "\u2013": " - ",
        "\u2014": " - ",
    }
)
"""Slashes, quotation marks and dashes as a keyboard writes them."""
AMBIGUOUS = "ambiguous"
"""Reason of a reply that can be read in two ways."""


def said(reply: str | None, *, truncated: bool) -> tuple[str, str]:
    """Return what a reply says outside its thinking, and why that is nothing.

    Parameters
    ----------
    reply
        What came; None as a thinking model gives whose tokens ran out.
    truncated
        Whether it was cut off; its last word is then dropped unless it closes a bracket or a sentence of its own.

    Examples
    --------
    >>> said("<think>yes, or no</think> No", truncated=False)
    ('No', '')
    >>> said("<think>yes, or", truncated=True)
    ('', 'inside thinking')
    """
    if reply is None:
        return "", "no content"
    if not reply.strip():
        return "", "empty"
    text = _visible(_outside_thinking(reply)).strip()
    if not text:
        return "", "inside thinking" if _visible(reply).strip() else "empty"
    if truncated and not text.endswith(("}", "!", "?")):
        text = re.sub(r"\S+\Z", "", text).strip()
        if not text:
            return "", "cut off"
    if _REFUSAL.search(unquoted(text)):
        return "", "refused"
    return text, ""


def unquoted(text: str, *, said_after: re.Pattern[str] | None = None) -> str:
    """Return a text without what it quotes and without emphasis; a text that is one quotation is that quotation.

    Parameters
    ----------
    text
        What was said.
    said_after
        A quotation right behind this is said, not quoted: `Final Decision: "No"`.
    """
    body = _FENCE.sub(" ", text).strip()
    plain = _BOXED.sub(r"\1", _BOXED.sub(r"\1", _EMPHASIS.sub("", body)))

    def without(quote: re.Match[str]) -> str:
        marks = [] if said_after is None else [mark.end() for mark in said_after.finditer(plain, 0, quote.start())]
        return quote.group()[1:-1] if quote.start() in marks else " "

    return plain[1:-1].strip() if _QUOTED.fullmatch(plain) else _QUOTED.sub(without, plain).strip()


def json_objects(text: str) -> tuple[list[dict[str, Any]], bool, str]:
    """Return the JSON objects of a text, outermost only, whether it looks like JSON at all, and what follows the last.

    An object that is broken, or has a key twice with different values, is left out, but still makes it JSON.
    """
    body, found, is_json, last = _FENCE.sub(" ", text), [], False, 0
    decoder = json.JSONDecoder(object_pairs_hook=_without_contradiction)
    start = body.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(body, start)
        except (ValueError, RecursionError):
            is_json = is_json or bool(re.match(r"\{\s*(?:[\"']|\Z)", body[start:]))
            start = body.find("{", start + 1)
            continue
        found.append({str(key).casefold().replace(" ", "_"): item for key, item in value.items()})
        is_json, last = True, end
        start = body.find("{", end)
    return found, is_json, body[last:]


def _without_contradiction(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values and values[key] != value:
            msg = "key with two values"
            raise ValueError(msg)
        values[key] = value
    return values


def _outside_thinking(reply: str) -> str:
    channels = _CHANNEL.findall(reply)
    if channels:
        return " ".join(text for name, text in channels if name == "final")
    return _CLOSING_ONLY.sub("", _THINKING.sub(" ", reply))


def _visible(text: str) -> str:
    """Return a text with wide letters made plain, and without controls, joiners and marks of direction."""
    plain = unicodedata.normalize("NFKC", text).translate(_TYPED)
    return "".join(char for char in plain if char in "\n\t " or unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
