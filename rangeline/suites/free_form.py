r"""Open questions with a short checkable answer of a stated type: WebInstruct-verified, TheoremQA.

The reward is 1 where the last stated answer equals the reference by the rule of its type, else 0; nothing is divided.
Types are `integer`, `float`, `percentage`, `fraction`, `expression`, `matrix`, `list`, `boolean`, `option`, `string`;
`float`, `percentage` and lists of decimals take the relative tolerance that the row states (`metadata.tolerance`, 0
where none is), all others none. TheoremQA's own tolerance is 0.04; a model as verifier is left out. An answer out of
noise is found in up to 6 of 100 texts of printed characters, and a boolean one is then right in one of two.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from rangeline.errors import DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.answer_equivalence import canonical_number, parse_number, plain_text
from rangeline.suites.base import Comparison, Extraction, Verdict, found, render_chat, require_reference, verdict_of
from rangeline.suites.choice_extraction import LETTERS, extract_choice
from rangeline.suites.expression_extraction import extract_expression
from rangeline.suites.expression_structure import read_structure
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.final_text import closed_part, visible_text
from rangeline.suites.symbolic import compare_expressions, evaluate_expression, reference_is_readable

ANSWER_TYPES = (
    "integer", "float", "percentage", "fraction", "expression", "matrix", "list", "boolean", "option", "string",
)  # fmt: skip
SYSTEM_PROMPT = r"Reason step by step, and put your final answer within \boxed{}."
_YES = frozenset({"true", "yes", "correct"})
_NO = frozenset({"false", "no", "incorrect"})
_STATED_TRUTH = re.compile(
    r"\b(?:statement|claim|assertion|conjecture) is ((?:not )?(?:true|false))\W*\Z", re.IGNORECASE
)
_FILLERS = frozenset({"a", "an", "the"})


def type_of(row: PromptRow) -> str:
    """Return the answer type of a row; `expression` where none is stated.

    Raises
    ------
    DataContractError
        If the type is not known.
    """
    kind = row.metadata.get("answer_type", "expression")
    if kind not in ANSWER_TYPES:
        msg = (
            f"'metadata.answer_type' must be one of {', '.join(ANSWER_TYPES)}; got {str(kind)[:40]!r} (prompt "
            f"'{row.prompt_id}'). Correct the row."
        )
        raise DataContractError(msg)
    return str(kind)


def tolerance_of(row: PromptRow) -> Fraction:
    """Return the relative tolerance that a row states, 0 where it states none.

    Raises
    ------
    DataContractError
        If it is no number in [0, 0.5].
    """
    given = row.metadata.get("tolerance", 0)
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= 0.5:
        msg = (
            f"'metadata.tolerance' must be a number in [0, 0.5]; got {str(given)[:40]!r} (prompt '{row.prompt_id}'). "
            "Correct the row."
        )
        raise DataContractError(msg)
    return Fraction(str(given))


def _words(text: str) -> tuple[str, ...]:
    words = re.findall(r"[^\W_]+", re.sub(r"\\[a-zA-Z]+", " ", text).casefold())
    return tuple(word for word in words if word not in _FILLERS)


def _same_words(answer: str, reference: str, _: Fraction) -> Comparison:
    return Comparison(_words(answer) == _words(reference) and bool(_words(reference)))


def _truth(text: str) -> bool | None:
    words = set(_words(text))
    said = {value for value, known in ((True, _YES), (False, _NO)) if words & known}
    if len(said) != 1:
        return None
    return said.pop() != bool(words & {"not"})


def _same_truth(answer: str, reference: str, _: Fraction) -> Comparison:
    wanted = _truth(reference)
    return Comparison(None, "unreadable reference") if wanted is None else Comparison(_truth(answer) == wanted)


def _exactly(answer: str, reference: str, _: Fraction) -> Comparison:
    return compare_expressions(answer, reference)


def _nearly(answer: str, reference: str, tolerance: Fraction) -> Comparison:
    exact = compare_expressions(answer, reference)
    if exact.equal or not tolerance:
        return exact
    wanted, given = evaluate_expression(reference), evaluate_expression(answer)
    if wanted is None:
        return exact
    return Comparison(given is not None and abs(given - wanted) <= tolerance * abs(wanted))


def _listed(answer: str, reference: str, tolerance: Fraction) -> Comparison:
    """Compare member by member in order, where a tolerance is stated; else as lists."""
    exact = compare_expressions(answer, reference)
    if exact.equal or not tolerance:
        return exact
    sides = [read_structure(tidy_expression(text)).parts for text in (answer, reference)]
    if len(sides[0]) != len(sides[1]) or not sides[1]:
        return exact
    said = [_nearly(given.text, wanted.text, tolerance) for given, wanted in zip(*sides, strict=True)]
    return (
        Comparison(None, "undecided")
        if any(one.equal is None for one in said)
        else Comparison(all(s.equal for s in said))
    )


def _same_letter(answer: str, reference: str, _: Fraction) -> Comparison:
    return Comparison(answer == reference_letter(reference))


def reference_letter(reference: str) -> str:
    """Return the letter of a reference such as `(b)`."""
    return plain_text(reference).strip("(). ").upper()


_Rule = Callable[[str, str, Fraction], Comparison]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "boolean": _same_truth,
        "float": _nearly,
        "list": _listed,
        "option": _same_letter,
        "percentage": _nearly,
        "string": _same_words,
    }
)


class FreeForm:
    """Suite of questions with a short answer of a stated type."""

    name = "free_form"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        r"""Return the question under an instruction to reason and to end in a box."""
        return render_chat(row, SYSTEM_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        """Return the reference in a box."""
        return rf"\boxed{{{require_reference(row)}}}"

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the last stated answer, a letter where the type is `option`."""
        text = closed_part(completion) if truncated else completion
        if type_of(row) == "option":
            return extract_choice(text, len(LETTERS))
        extraction = extract_expression(text)
        if type_of(row) == "boolean" and extraction.status == "absent":
            stated = _STATED_TRUTH.search(visible_text(text))
            return extraction if stated is None else found(stated[1])
        return extraction

    def canonical(self, answer: str) -> str:
        """Return the number in one writing, or the expression in the writing of the parser."""
        return (
            canonical_number(answer) if parse_number(answer) is not None else tidy_expression(answer).replace(" ", "")
        )

    def reads_reference(self, row: PromptRow) -> bool:
        """Say whether other writings of a row's reference could be recognised."""
        if type_of(row) in ("boolean", "option", "string"):
            return True
        return reference_is_readable(require_reference(row))

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the stated answer equals the reference by the rule of its type.

        Raises
        ------
        BadInputError
            If the row has no reference, or its type or tolerance is unusable.
        """
        reference, tolerance = require_reference(row), tolerance_of(row)
        rule = _RULES.get(type_of(row), _exactly)

        def compare(answer: str) -> Comparison:
            return rule(answer, reference, tolerance)

        return verdict_of(self.extract(completion, row, truncated=truncated), compare, truncated=truncated)
