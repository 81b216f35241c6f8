"""Bring prompts in: generate problems, check that references score right against themselves, find duplicates.

Generated problems are seeded, distinct by normalised text, and named after their domain and a hash of the question.
The reference check (a canary) puts each rendered reference through its suite's own verification; its pass share is
right verdicts over labelled rows. Duplicates and clusters come from `rangeline.prompts.duplicates`.
"""

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rangeline.errors import BadInputError, ConfigError, DataContractError, ReferenceCheckError
from rangeline.prompts.contract import parse_rows
from rangeline.prompts.duplicates import find_duplicates, near_duplicate_clusters, normalise_text
from rangeline.records import PromptRow
from rangeline.seeds import seed_of

__all__ = [
    "ReferenceReport",
    "RejectedReference",
    "check_references",
    "find_duplicates",
    "generate_problems",
    "near_duplicate_clusters",
]

GENERATOR_FIELDS = ("name", "size", "options", "domain", "labelled", "share", "seed")
GENERATOR_SHARES = ("train", "audit", "evaluation")
GENERATED_SUITE = "reasoning_gym"
DRAWS_PER_PROBLEM = 20
"""Draws allowed for each distinct problem: past this a generator has little new to say."""
SHOWN_ROWS = 10


class _Verdict(Protocol):
    @property
    def reward(self) -> float | None: ...

    @property
    def reason(self) -> str: ...


class ReferenceVerifier(Protocol):
    """What the reference check needs of a suite."""

    def render_reference(self, row: PromptRow) -> str:
        """Return the completion that would be right."""

    def verify(self, completion: str, row: PromptRow) -> _Verdict:
        """Return the verdict on a completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedReference:
    """A reference that does not score right against itself."""

    prompt_id: str
    suite: str
    reference: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReport:
    """Outcome of the reference check."""

    num_checked: int
    """Labelled rows."""
    num_passed: int
    passed_share: float | None
    """num_passed over num_checked; None where no row is labelled."""
    rejected: tuple[RejectedReference, ...]
    """Rows that must not be used: few enough to pass the floor."""


def _rejection(row: PromptRow, suite: ReferenceVerifier) -> str | None:
    try:
        verdict = suite.verify(suite.render_reference(row), row)
    except BadInputError as error:
        # A reference its suite cannot read is a finding of this check, not its failure.
        return str(error)
    return None if verdict.reward == 1.0 else verdict.reason


def check_references(
    rows: Sequence[PromptRow], suites: Mapping[str, ReferenceVerifier], floor: float = 0.995
) -> ReferenceReport:
    """Verify the rendered reference of every labelled row through the real suite.

    Parameters
    ----------
    rows
        Prompt rows; unlabelled ones are left out.
    suites
        Suite of each name that occurs in labelled rows.
    floor
        Smallest share of references that must score right, in [0, 1].

    Returns
    -------
    ReferenceReport
        With the rows that failed although the share reached the floor.

    Raises
    ------
    ReferenceCheckError
        If the share of right references is below the floor; the first ten failing rows are listed.
    ConfigError
        If a labelled row's suite is not among the suites.
    """
    labelled = [row for row in rows if row.reference is not None]
    rejected = []
    for row in labelled:
        if row.suite not in suites:
            msg = (
                f"'suite' must be one of {', '.join(sorted(suites))}; got '{row.suite}' (prompt '{row.prompt_id}'). "
                "Correct the row."
            )
            raise ConfigError(msg)
        reason = _rejection(row, suites[row.suite])
        if reason is not None:
            rejected.append(
                RejectedReference(
                    prompt_id=row.prompt_id, suite=row.suite, reference=row.reference or "", reason=reason
                )
            )
    num_passed = len(labelled) - len(rejected)
    share = num_passed / len(labelled) if labelled else None
    if share is not None and share < floor:
        shown = "; ".join(
            f"'{item.prompt_id}': {item.reference[:40]!r}, {item.reason}" for item in rejected[:SHOWN_ROWS]
        )
        msg = (
            f"'references' must score right against themselves in at least {floor:.1%} of rows; got {share:.1%}, "
            f"{len(rejected)} of {len(labelled)} wrong ({shown}). Correct these rows or choose another suite."
        )
        raise ReferenceCheckError(msg)
    return ReferenceReport(
        num_checked=len(labelled), num_passed=num_passed, passed_share=share, rejected=tuple(rejected)
    )


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


def _draw(generator: _Generator, seed: int) -> Iterator[tuple[str, str]]:
    """Yield question and answer of each draw, a fixed sequence for a seed whatever the size."""
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
        yield problem["question"].strip(), problem["answer"] or ""


def _generate(generator: _Generator, seed: int, seen: set[str]) -> Iterator[dict[str, Any]]:
    num_made = 0
    for question, answer in _draw(generator, seed):
        text = normalise_text(question)
        if text in seen:
            continue
        seen.add(text)
        num_made += 1
        yield {
            "prompt_id": f"{generator.domain}-{hashlib.sha256(question.encode()).hexdigest()[:12]}",
            "prompt": question,
            "suite": GENERATED_SUITE,
            "domain": generator.domain,
            "reference": answer if generator.labelled else None,
            "share": generator.share,
            "metadata": {"generator": generator.name},
        }
        if num_made == generator.size:
            return
    msg = (
        f"'size' must be within what '{generator.name}' can give; got {generator.size}, found {num_made} distinct "
        f"problems in {generator.size * DRAWS_PER_PROBLEM + DRAWS_PER_PROBLEM} draws (options "
        f"{dict(generator.options)}). Lower the size or widen the options."
    )
    raise DataContractError(msg)


def generate_problems(generators: Sequence[Mapping[str, Any]], seed: int) -> tuple[PromptRow, ...]:
    """Generate distinct problems with reasoning-gym.

    Parameters
    ----------
    generators
        One mapping each: `name` (a reasoning-gym dataset), `size`, and optionally `options` (passed on), `domain`
        (default: the name), `labelled` (default true; false drops the reference), `share` (default train), `seed`
        (default 0; generators of one name need different seeds to give different problems).
    seed
        Seed of the run.

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
        raw += _generate(_read_generator(spec, number), seed, seen)
    return parse_rows(raw, source="generators")
