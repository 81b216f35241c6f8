r"""Bring an answer's mathematics into one writing; no algebra is done here.

Answers come as LaTeX, as plain text (`pi/2`, `exp(16)`, `sqrt(2)`) and as mixtures; `tidy_expression` writes all of
them as the LaTeX that the parser reads, by rules about kinds of tokens, never about single answers. Units and currency
of a whole answer are dropped: they are not factors.
"""

import re

MAX_EXPRESSION_LENGTH = 1000
"""Characters of the longest answer that is read as mathematics; longer ones are noise."""

_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63\uff0d", "-"),
        **dict.fromkeys("\u00a0\u202f\u2009\u3000", " "),
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
        "~": " ",
        "π": r"\pi ", "∞": r"\infty ", "\u00d7": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "√": r"\sqrt ",
        "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∈": r"\in ",
        "\u222a": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "±": r"\pm ", "∓": r"\mp ", "θ": r"\theta ",
        "\u211d": r"\mathbb{R}", "°": r"^\circ ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
        "²": "^{2}", "³": "^{3}", "\uff08": "(", "\uff09": ")", "\uff0c": ",", "\uff1b": ";", "\uff1d": "=", "`": "",
    }
)  # fmt: skip
_SAME = (
    (re.compile(r"\\(?:left|right|m?big|Big|bigg|Bigg)(?:[lr](?![a-z]))?(?![a-zA-Z])\s*\.?"), ""),
    (
        re.compile(
            r"(?<!\\)\\(?:displaystyle|textstyle|limits|boldsymbol|mathbf|bf|,|!|;|:| |quad|qquad|hspace\{[^{}]*\})"
        ),
        " ",
    ),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\[dt]binom(?![a-zA-Z])"), r"\\binom"),
    (re.compile(r"\\(?:leq|leqslant|leqq)(?![a-zA-Z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant|geqq)(?![a-zA-Z])"), r"\\ge "),
    (re.compile(r"\\neq(?![a-zA-Z])"), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"<=|=<"), r"\\le "),
    (re.compile(r">="), r"\\ge "),
    (re.compile(r"!="), r"\\ne "),
    (re.compile(r"\\varnothing(?![a-zA-Z])|\\{\s*\\}"), r"\\emptyset "),
    (re.compile(r"\\operatorname\*?\{([a-zA-Z]+)\}"), r"\\\1 "),
    (re.compile(r"\\(?:mathrm|text|textrm)\{\s*(pi|e|i)\s*\}"), r"\1 "),
    (re.compile(r"\\(?:mathrm|text)\{\s*(and|or)\s*\}"), r" \1 "),
    (re.compile(r"\\(?:land|wedge)(?![a-zA-Z])"), " and "),
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])"), " or "),
    (re.compile(r"\\mathbb\s*([A-Z])(?![a-zA-Z])"), r"\\mathbb{\1}"),
    # "_2 8" is an index and an argument, not two numbers side by side.
    (re.compile(r"_\s*([0-9])(?=\s)"), r"_{\1}"),
    (re.compile(r"(?<![a-zA-Z\\])\\?a(?:rc)?(sin|cos|tan)(?=\s*[({0-9])"), r"\\arc\1 "),
    (re.compile(r"(?<![a-zA-Z\\])cbrt(?=\s*[({0-9])"), r"\\sqrt[3]"),
    (re.compile(r"\\(?:lbrace|\{)"), r"\\{"),
    (re.compile(r"\\(?:rbrace|\})"), r"\\}"),
    (re.compile(r"\\(?:lvert|rvert|vert)(?![a-zA-Z])"), "|"),
    (re.compile(r"\\langle(?![a-zA-Z])"), "("),
    (re.compile(r"\\rangle(?![a-zA-Z])"), ")"),
    (re.compile(r"\\colon(?![a-zA-Z])"), ":"),
    (re.compile(r"\*\*"), "^"),
)
_UNIT_BOX = r"\\(?:text|mathrm|textrm|mbox|textbf|rm)\s*\{[^{}]*\}(?:\s*\^\s*\{?\s*-?[0-9]\s*\}?)?"
_DEGREE = r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])"
_ANGLE_FUNCTION = re.compile(r"(?:sin|cos|tan|sec|csc|cot)(?![a-z])")
_DEGREES = re.compile(rf"([0-9]+(?:\.[0-9]+)?)\s*(?:{_DEGREE})")
_TRAILING_UNIT = re.compile(rf"(?<=[0-9}})\]a-z!.])\s*(?:{_UNIT_BOX}|{_DEGREE})\s*$")
_PLAIN_UNIT = re.compile(r"^(.*[0-9})])\s+(?:[a-zA-Z]{2,}\.?(?:\^[0-9]|\^\{[0-9]\})?(?:\s+|/|$))+$")
# Only units that are common: "2 x/y" is a quotient.
_RATE_UNIT = re.compile(
    r"^(.*[0-9})])\s*(?:km|cm|mm|m|ft|mi|miles|kg|g|mol|J|N|L)/(?:sec|s|hr|h|min|kg|m|cm|mol|K|L)(?:\^\{?[23]\}?)?$"
)
_LEADING_CURRENCY = re.compile(r"^(-?)\s*(?:\\\$|\$|€|£|\\(?:text|mathrm)\{\s*(?:\\?\$|USD|Rs\.?)\s*\})\s*(?=-?[0-9.])")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|textbf|mathit|mbox|textit|mathsf|mathtt)\s*\{([^{}]*)\}")
_SPACED_THOUSANDS = re.compile(r"(?<![0-9.,] )(?<![0-9.,])[0-9]{1,3}(?: [0-9]{3})+(?![0-9]| [0-9])")
_SCIENTIFIC = re.compile(r"(?<![a-zA-Z0-9.])([0-9]+(?:\.[0-9]+)?)[eE]([+-]?[0-9]{1,4})(?![0-9a-zA-Z.])")
_REPEATING = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]*)\\overline\{([0-9]+)\}")
_FUNCTIONS = (
    "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot|ln|log|exp|sqrt|frac|binom|gcd|lcm|max|min|det"
)
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|upsilon|phi|chi|psi|"
    "omega"
)
_NAMED = re.compile(
    rf"(?<![a-zA-Z\\])(?:(?P<function>{_FUNCTIONS})(?=\s*[\\({{_^0-9a-zA-Z]?)|(?P<greek>{_GREEK}))(?![a-z])"
)
_INFINITY = re.compile(r"(?<![a-zA-Z\\])(?:infinity|inf|oo)(?![a-zA-Z])", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Za-z][A-Za-z' -]*")
_LONG_WORD = re.compile(r"[A-Za-z]{4,}")


def matching(text: str, start: int) -> int | None:
    """Return the place of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return None


def _argument(text: str, start: int, *, digits: bool) -> tuple[str, int] | None:
    """Return one macro argument from `start` on, and where it ends: a group, a command, or one character."""
    while start < len(text) and text[start] == " ":
        start += 1
    if start >= len(text):
        return None
    if text[start] in "{(":
        end = matching(text, start)
        return None if end is None else (text[start + 1 : end], end + 1)
    pattern = r"\\[a-zA-Z]+|[0-9]+(?:\.[0-9]+)?|[a-zA-Z]" if digits else r"\\[a-zA-Z]+|[0-9a-zA-Z]"
    match = re.compile(pattern).match(text, start)
    if match is None:
        return None
    end = match.end()
    # A macro as an argument brings its own: \\frac{1}\\frac23, \\frac1\\sqrt2.
    for _ in range({"\\frac": 2, "\\binom": 2, "\\sqrt": 1}.get(match[0], 0)):
        inner = _argument(text, end, digits=match[0] == "\\sqrt")
        if inner is None:
            return None
        end = inner[1]
    return text[start:end], end


def _brace_macros(text: str) -> str:
    r"""Give `\frac`, `\sqrt`, `\binom` and powers their braces: `\frac43`, `\sqrt2`, `\sqrt(2)`, `x^10`, `e^(16)`."""
    pattern = re.compile(r"\\(?P<two>frac|binom)(?![a-zA-Z])|\\(?P<one>sqrt)(?![a-zA-Z])|(?P<power>\^)")
    parts, place = [], 0
    while (match := pattern.search(text, place)) is not None:
        parts.append(text[place : match.start()])
        place = match.end()
        head = match[0]
        if match["one"] and text[place : place + 1] == "[":
            end = matching(text, place)
            head, place = (head, place) if end is None else (head + text[place : end + 1], end + 1)
        sign = ""
        if match["power"] and (signed := re.compile(r" ?([+-])(?=[0-9a-zA-Z\\])").match(text, place)):
            sign, place = signed[1], signed.end()
        arguments = ""
        for _ in range(2 if match["two"] else 1):
            # A root or a power takes all digits; a fraction's numerator and denominator take one character each.
            found = _argument(text, place, digits=not match["two"])
            if found is None:
                break
            arguments += "{" + sign + _brace_macros(found[0]) + "}"
            place = found[1]
        parts.append(head + arguments)
    return "".join(parts) + text[place:]


def _repeating(match: re.Match[str]) -> str:
    """Return a repeating decimal as a fraction."""
    whole, fixed, period = match.groups()
    before = whole + fixed
    above = int(before + period) - int(before or "0")
    return rf"\frac{{{above}}}{{{10 ** len(fixed) * (10 ** len(period) - 1)}}}"


def _strip_delimiters(text: str) -> str:
    text = re.sub(r"\\\[|\\\]|\\\(|\\\)|\$\$", " ", text.replace("**", "") if text.startswith("**") else text)
    text = _LEADING_CURRENCY.sub(r"\1", text.strip())
    return re.sub(r"(?<!\\)\$", " ", text).replace("\\$", "").strip()


def _strip_units(text: str) -> str:
    if _ANGLE_FUNCTION.search(text):
        return _DEGREES.sub(r"(\1 \\cdot \\frac{\\pi}{180})", text)
    while (shorter := _TRAILING_UNIT.sub("", text)) != text:
        text = shorter
    match = _PLAIN_UNIT.match(text) or _RATE_UNIT.match(text)
    return (match[1] if match else text).strip()


def tidy_expression(text: str) -> str:
    r"""Return one LaTeX writing for the usual writings of an expression.

    Parameters
    ----------
    text
        An answer as written; delimiters, units, currency and words for symbols are dealt with.

    Examples
    --------
    >>> tidy_expression(r"$\frac43$"), tidy_expression("exp(16)"), tidy_expression("4 sqrt(2)")
    ('\\frac{4}{3}', '\\exp(16)', '4 \\sqrt{2}')
    """
    # A backslash before each line of a matrix is no space.
    text = _strip_delimiters(text.translate(_CHARACTERS).replace("{,}", ","))
    for pattern, writing in _SAME:
        text = pattern.sub(writing, text)
    text = re.sub(r"\s+", " ", text).strip().rstrip(".,;:").strip()
    text = _strip_units(_SPACED_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text))
    text = _TEXT.sub(lambda match: f" {match[1].strip()} ", text).strip()
    text = _strip_units(text.replace("\\%", "%"))
    if is_words(text) and _INFINITY.fullmatch(text) is None:
        return re.sub(r"\s+", " ", text)
    text = _INFINITY.sub(r"\\infty ", text)
    text = _NAMED.sub(lambda match: "\\" + match[0] + ("" if match["function"] else " "), text)
    text = re.sub(r"(?<=[0-9a-zA-Z)}])\s*\*\s*", r" \\cdot ", text)
    text = _SCIENTIFIC.sub(r"\1 \\cdot 10^{\2}", _REPEATING.sub(_repeating, text))
    text = re.sub(r"(?<![0-9.])([0-9]+) ([0-9]+)\s*/\s*([0-9]+)(?![0-9])", r"(\1+\\frac{\2}{\3})", text)
    text = re.sub(r"(?<![0-9.])([0-9]+)\s*(?=\\frac\s*\{?\s*[0-9])", r"\1", text)
    return re.sub(r"\s+", " ", _brace_macros(text)).strip()


def is_words(text: str) -> bool:
    """Say whether a text is words of a language, not a product of variables."""
    return _LETTERS.fullmatch(text) is not None and _LONG_WORD.search(text) is not None
