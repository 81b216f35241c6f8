r"""Read conditions: files that say how a suite's prompts are put so that better, or worse, completions come out.

Example (`conditions/<suite>.yaml`)::

    suite: grade_school_math
    domains: [shop, travel]        # optional: only these; a file without it serves every other domain of the suite
    shares: {keep: 0.5, mask: 0.5, corrupt: 1.0}     # optional
    with_reference:                # prompts that have a reference; may use all placeholders
      positive:
        - {name: outline, message: "{prompt}\n\nAn outline with gaps: {masked}"}
      negative:
        - {name: slips, message: "{prompt}\n\nA worked solution: {corrupted}", system: "Follow the given solution."}
    without_reference:             # prompts without one; may use {prompt} and {misread} alone
      positive:
        - {name: shown, message: "{prompt}", examples: [{prompt: "2 + 2", completion: "4"}]}
      negative:
        - {name: misread, message: "{misread}"}

A template is the user turn of the conditioned prompt; `system` is added to the suite's own instruction, and `examples`
are turns before it. Anchor k of a stratum takes template k, and again from the first. Placeholders are filled in one
pass: what looks like one inside a prompt or a reference means nothing. Conditions only lead sampling; no rollout is
scored by them (RRPO 3.1).

`{prompt}` is the question, `{misread}` the same with other numbers (or words in other places), `{reference}` the whole
reference, `{partial}`, `{masked}` and `{corrupted}` its worked part cut short, with gaps, or with wrong numbers, by
streams keyed by seed, prompt id, side and template.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rangeline.errors import AnchorError
from rangeline.lineage import digest_json
from rangeline.records import PromptRow

Stratum = Literal["positive", "negative"]
STRATA: tuple[Stratum, ...] = ("positive", "negative")

_FORMAT = 1
PLACEHOLDER = re.compile(r"\{(prompt|misread|reference|partial|masked|corrupted)\}")
"""What a template may hold."""
_QUESTIONS = frozenset({"prompt", "misread"})
_BRACED = re.compile(r"\{([A-Za-z_]*)\}")
Text = Annotated[str, Field(strict=True, min_length=1, pattern=r"\S")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Example(_Part):
    """A turn pair that is shown before the prompt, as it stands: braces in it mean nothing."""

    prompt: Text
    completion: Text


class Template(_Part):
    """One way to put a prompt."""

    name: Text
    message: Text
    """User turn; holds {prompt} or {misread}, exactly once."""
    examples: tuple[Example, ...] = ()
    """Turns before it."""
    system: Annotated[str, Field(strict=True)] = ""
    """Added to the suite's instruction; empty adds nothing."""

    @model_validator(mode="after")
    def _placeholders(self) -> "Template":
        if sum(self.message.count(f"{{{name}}}") for name in _QUESTIONS) != 1:
            msg = "'message' must hold {prompt} or {misread}, exactly once"
            raise ValueError(msg)
        for text in (self.message, self.system):
            for name in _BRACED.findall(text):
                if not PLACEHOLDER.fullmatch(f"{{{name}}}"):
                    msg = (
                        f"'{{{name}}}' is no placeholder; use prompt, misread, reference, partial, masked or corrupted"
                    )
                    raise ValueError(msg)
        return self

    @property
    def needs_reference(self) -> bool:
        """Whether a prompt without a reference cannot be put this way."""
        return any(name not in _QUESTIONS for name in PLACEHOLDER.findall(self.message + self.system))


class Strata(_Part):
    """Templates of the desirable and of the undesirable side."""

    positive: Annotated[tuple[Template, ...], Field(min_length=1)]
    negative: Annotated[tuple[Template, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _sides_differ(self) -> "Strata":
        sides = [{(t.message, t.system, t.examples) for t in side} for side in (self.positive, self.negative)]
        if sides[0] & sides[1]:
            msg = "a template stands on both sides, so nothing would set them apart"
            raise ValueError(msg)
        return self


class Shares(_Part):
    """How much of a reference is kept, hidden or spoilt."""

    keep: Annotated[float, Field(gt=0, lt=1)] = 0.5
    mask: Annotated[float, Field(gt=0, lt=1)] = 0.5
    corrupt: Annotated[float, Field(gt=0, le=1)] = 1.0


class Conditions(_Part):
    """All conditions of one file."""

    suite: Text
    domains: tuple[Text, ...] = ()
    """Domains it serves; empty: every domain that no other file of the suite names."""
    shares: Shares = Shares()
    with_reference: Strata | None = None
    without_reference: Strata | None = None

    @model_validator(mode="after")
    def _usable(self) -> "Conditions":
        if self.with_reference is None and self.without_reference is None:
            msg = "'with_reference' or 'without_reference' must be given"
            raise ValueError(msg)
        bare = self.without_reference
        for item in (*bare.positive, *bare.negative) if bare else ():
            if item.needs_reference:
                msg = f"template '{item.name}' of 'without_reference' must use {{prompt}} and {{misread}} alone"
                raise ValueError(msg)
        return self

    @property
    def digest(self) -> str:
        """sha256 of the content; comments and layout of the file do not count."""
        return digest_json([_FORMAT, self.model_dump(mode="json")])

    def strata_of(self, row: PromptRow, *, use_reference: bool = True) -> Strata:
        """Return the templates for a row.

        Raises
        ------
        AnchorError
            When the row has no reference and the file has no conditions for such prompts.
        """
        if row.reference is not None and use_reference and self.with_reference is not None:
            return self.with_reference
        if self.without_reference is None:
            msg = (
                f"Conditions of suite '{self.suite}' must have 'without_reference' for a prompt without one; got none "
                f"(prompt '{row.prompt_id}'). Add templates that use {{prompt}} alone."
            )
            raise AnchorError(msg)
        return self.without_reference


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, which also refuses repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                problem = f"key '{key}' occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_mapping(node, deep=deep)


def parse_conditions(text: str, *, source: str) -> Conditions:
    """Return the conditions that a YAML text describes.

    Parameters
    ----------
    text
        Content of a condition file.
    source
        Its name, for messages.

    Raises
    ------
    AnchorError
        If the text is not YAML, or a field is missing, unknown or out of range; names file, field and rule.
    """
    try:
        data = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, TypeError) as error:
        msg = f"Conditions must be YAML; got '{' '.join(str(error).split())}' ({source}). Correct the file."
        raise AnchorError(msg) from error
    try:
        return Conditions.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "conditions"
        rule = first["msg"].removeprefix("Value error, ")
        msg = f"'{name}' is not valid: {rule}; got {first['input']!r:.80} ({source}). Correct the condition file."
        raise AnchorError(msg) from error


def conditions_for(row: PromptRow, files: Sequence[Conditions]) -> Conditions:
    """Return the conditions that serve a row: those that name its domain, else those of its whole suite.

    Raises
    ------
    AnchorError
        When no file serves it, or two do.
    """
    mine = [item for item in files if item.suite == row.suite]
    found = [item for item in mine if row.domain in item.domains] or [item for item in mine if not item.domains]
    if len(found) != 1:
        msg = (
            f"One condition file must serve suite '{row.suite}' and domain '{row.domain}'; got {len(found)} (prompt "
            f"'{row.prompt_id}'). Write conditions/{row.suite}.yaml, or correct the 'domains' of the files."
        )
        raise AnchorError(msg)
    return found[0]
