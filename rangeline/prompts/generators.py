"""Generate problems with reasoning-gym: seeded, distinct by normalised text, any of its generators by name.

A problem is named after its domain and a hash of its question. One whose answer is no number carries what its
generator's own scorer needs, unless it is unlabelled. One whose answer is a number is asked for that alone, or for a
worked solution: then it is a row of the suite of word problems, and its reference is a solution where the generator
tells the expression, such as `12 + 7 = 19` before `#### 19`.
"""

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Literal

from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.contract import parse_rows
from rangeline.prompts.duplicates import normalise_text
from rangeline.records import PromptRow
from rangeline.seeds import seed_of

GENERATOR_SHARES = ("train", "audit", "evaluation")
GENERATOR_FIELDS = ("name", "size", "options", "domain", "labelled", "share", "seed")
Reply = Literal["answer", "reasoning"]
_SUITES: Mapping[Reply, str] = MappingProxyType({"answer": "reasoning_gym", "reasoning": "grade_school_math"})
"""Suite of a problem whose answer is a number, by what is asked for."""
DRAWS_PER_PROBLEM = 20
"""Draws allowed for each distinct problem: past this a generator has little new to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generator:
    name: str
    size: int
    options: Mapping[str, Any]
    domain: str
    labelled: bool
    share: str
    seed: int


def _read_generator(spec: Mapping[str, Any], number: int) -> _Generator:
    where = f"generator {number}"
    for field in spec:
        if field not in GENERATOR_FIELDS:
            close = difflib.get_close_matches(field, GENERATOR_FIELDS, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else "Remove it."
            msg = f"'{field}' must be one of {', '.join(GENERATOR_FIELDS)}; got {spec[field]!r} ({where}). {hint}"
            raise ConfigError(msg)
    name = spec.get("name")
    one = _Generator(
        name=str(name),
        size=spec.get("size", 0),
        options=spec.get("options") or {},
        domain=spec.get("domain") or str(name),
        labelled=spec.get("labelled", True),
        share=spec.get("share", "train"),
        seed=spec.get("seed", 0),
    )
    for field, rule, ok in (
        ("name", "be the name of a reasoning-gym dataset", isinstance(name, str) and bool(name)),
        ("size", "be an integer >= 1", type(one.size) is int and one.size >= 1),
        ("share", f"be one of {', '.join(GENERATOR_SHARES)}", one.share in GENERATOR_SHARES),
        ("labelled", f"be true where 'share' is {one.share}", one.labelled or one.share == "train"),
    ):
        if not ok:
            msg = f"'{field}' must {rule}; got {spec.get(field)!r} ({where}). Correct the generator."
            raise ConfigError(msg)
    return one


@dataclass(frozen=True, slots=True)
class _Draw:
    question: str
    answer: str
    metadata: dict[str, Any]
    expression: str | None
    """What the answer is the value of; None where the generator does not say."""

    @property
    def is_number(self) -> bool:
        """True where the answer is a number."""
        return "answer_form" not in self.metadata

    def reference(self, reply: Reply) -> str:
        """Return the answer, or a worked solution that ends in it."""
        if reply == "answer" or not self.is_number or self.expression is None:
            return self.answer
        return f"{self.expression} = {self.answer}\n#### {self.answer}"


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip().replace(",", "")).is_finite()
    except InvalidOperation:
        return False


def _stored(problem: Mapping[str, Any], answer: str, problems: Any) -> dict[str, Any] | None:
    """Return a problem as JSON holds it; None where its scorer does not know it again."""
    try:
        stored = json.loads(json.dumps(problem))
        is_known = stored == problem or problems.score_answer(answer, stored) == 1.0
    except (TypeError, ValueError, LookupError, AttributeError):
        return None
    return stored if is_known else None


def _draw(generator: _Generator, seed: int) -> Iterator[_Draw]:
    """Yield the draws, a fixed sequence for a seed whatever the size.

    A problem whose answer is no number carries what its generator's own scorer needs: the problem itself, or, where
    JSON cannot hold it, the seed that makes it again.
    """
    try:
        # Imported here because it takes seconds, and only generated problems need it.
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        msg = f"'reasoning-gym' must be installed to generate '{generator.name}'. Install the extra 'demo'."
        raise ConfigError(msg) from error
    if generator.name not in DATASETS:
        close = difflib.get_close_matches(generator.name, DATASETS, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"There are {len(DATASETS)}, such as 'basic_arithmetic'."
        msg = f"'name' must be a reasoning-gym dataset; got '{generator.name}'. {hint}"
        raise ConfigError(msg)
    draws = generator.size * DRAWS_PER_PROBLEM + DRAWS_PER_PROBLEM
    # Some generators hand the seed to numpy, which takes 32 bits.
    start = seed_of(seed, "problems", generator.name, generator.seed) % 2**31
    try:
        problems = reasoning_gym.create_dataset(generator.name, size=draws, seed=start, **generator.options)
    except (TypeError, ValueError, AssertionError) as error:
        msg = f"'options' must suit '{generator.name}'; got {dict(generator.options)} ({error}). Correct the options."
        raise ConfigError(msg) from error
    for i in range(draws):
        problem = problems[i]
        answer = str(problem["answer"] or "")
        metadata: dict[str, Any] = {"generator": generator.name}
        if not _is_number(answer):
            scored = {"generator": generator.name, "options": dict(generator.options)}
            stored = _stored(problem, answer, problems)
            made = {"seed": start, "draws": draws, "index": i} if stored is None else {"entry": stored}
            metadata |= {"answer_form": "text", "problem": scored | made}
        expression = (problem.get("metadata") or {}).get("expression")
        yield _Draw(problem["question"].strip(), answer, metadata, expression if type(expression) is str else None)


def _generate(generator: _Generator, seed: int, seen: set[str], reply: Reply) -> Iterator[dict[str, Any]]:
    num_made = 0
    for draw in _draw(generator, seed):
        question = draw.question
        text = normalise_text(question)
        if text in seen:
            continue
        seen.add(text)
        num_made += 1
        if generator.labelled and not draw.answer.strip():
            msg = (
                f"'labelled' must be false for '{generator.name}'; got true, and it gives problems without an answer. "
                "Correct the generator."
            )
            raise DataContractError(msg)
        # What a scorer needs holds the answer, which unlabelled rows may not.
        hidden = () if generator.labelled else ("problem",)
        yield {
            "prompt_id": f"{generator.domain}-{hashlib.sha256(question.encode()).hexdigest()[:12]}",
            "prompt": question,
            "suite": _SUITES[reply if draw.is_number else "answer"],
            "domain": generator.domain,
            "reference": draw.reference(reply) if generator.labelled else None,
            "share": generator.share,
            "metadata": {name: value for name, value in draw.metadata.items() if name not in hidden},
        }
        if num_made == generator.size:
            return
    msg = (
        f"'size' must be within what '{generator.name}' can give; got {generator.size}, found {num_made} distinct "
        f"problems in {generator.size * DRAWS_PER_PROBLEM + DRAWS_PER_PROBLEM} draws (options "
        f"{dict(generator.options)}). Lower the size or widen the options."
    )
    raise DataContractError(msg)


def generate_problems(
    generators: Sequence[Mapping[str, Any]], seed: int, *, reply: Reply = "answer"
) -> tuple[PromptRow, ...]:
    """Generate distinct problems with reasoning-gym.

    Parameters
    ----------
    generators
        One mapping each: `name` (a reasoning-gym dataset), `size`, and optionally `options` (passed on), `domain`
        (default: the name), `labelled` (default true; false drops the reference), `share` (default train), `seed`
        (default 0; generators of one name need different seeds to give different problems).
    seed
        Seed of the run.
    reply
        What a problem whose answer is a number is asked for: its answer alone, or `reasoning` before it. Questions and
        answers are the same; suite and reference differ.

    Returns
    -------
    tuple of PromptRow
        `size` rows a generator, in order; a question that two generators give belongs to the first.

    Raises
    ------
    ConfigError
        If a generator has an unknown field, an unknown name, unusable options or a value out of range.
    DataContractError
        If a generator repeats itself before it has given `size` distinct problems, or an answer is blank.
    """
    seen: set[str] = set()
    raw: list[dict[str, Any]] = []
    for number, spec in enumerate(generators, start=1):
        raw += _generate(_read_generator(spec, number), seed, seen, reply)
    return parse_rows(raw, source="generators")
