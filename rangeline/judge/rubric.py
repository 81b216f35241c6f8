"""Read a rubric: the file of questions a judge is asked about each rollout, as YAML.

Example::

    name: arithmetic
    system: You check answers.            # optional system turn of the judge
    coordinates:
      - name: correct
        kind: choice                      # the judge chooses one of the replies, by log-probability
        question: |
          Question: {prompt}
          Proposed answer:
          {completion}
          Is the proposed answer right?
        options: {no: "No", yes: "Yes"}   # level name: reply text; the first is level 0
        unknown: "Cannot tell"            # optional: a further reply, which means UNKNOWN
        unknown_margin: 0.1               # optional: best minus second log-probability below it is UNKNOWN
        prior_correction: true            # optional: subtract the log-probabilities for the completion "N/A"
        examples:                         # optional: judged before, shown as earlier turns
          - {prompt: "1 + 1?", completion: "2", reply: yes}   # reply: a level's name, or unknown
      - name: quality
        kind: score                       # the judge writes a number in [0, 1]
        question: "{prompt} {completion} How good is it, from 0 to 1?"
        cuts: [0.5, 0.8]                  # level = number of cuts the score reaches
      - name: agreement
        kind: agreement                   # share of the group's rollouts with the same extracted answer
        cuts: [0.25, 0.5, 0.75]           # level = number of cuts the share reaches; nothing extracted is UNKNOWN
      - name: majority
        kind: majority                    # yes: the group's most frequent answer; UNKNOWN where none leads
      - name: rank
        kind: rank                        # share of the group's others that the judge rates lower, equal ones half
        of: correct
        cuts: [0.5, 0.9]
      - name: well_formed
        kind: well_formed                 # yes: an answer was extracted and the completion ended by itself

A question holds `{completion}` once, and may hold `{prompt}`, `{options}` (the replies, then asked in both orders) and
`{group}` (the distinct answers of the rollout's group, with their counts). A `template:` beside `coordinates:` is laid
around every question, in the place of its `{question}`. How texts are closed off: `judge.coordinates`.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import yaml

from rangeline.errors import ModelLoadError
from rangeline.judge.coordinates import (
    AgreementCoordinate,
    ChoiceCoordinate,
    Coordinate,
    MajorityCoordinate,
    RankCoordinate,
    ScoreCoordinate,
    WellFormedCoordinate,
)
from rangeline.judge.rubric_reader import RubricReader, StrictLoader

_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Questions about a rollout, in the order of the judgment state."""

    name: str
    coordinates: tuple[Coordinate, ...]
    system: str
    """System turn of the judge; empty: none."""
    digest: str
    """sha256 of the content; comments and layout of the file do not count."""


def parse_rubric(text: str, *, source: str) -> Rubric:
    """Return the rubric that a YAML text describes.

    Parameters
    ----------
    text
        Content of a rubric file.
    source
        Its name, for messages.

    Raises
    ------
    ModelLoadError
        If the text is not YAML, or a field is missing, unknown or out of range; names file, coordinate and rule.
    """
    try:
        data = yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        msg = f"'rubric' must be YAML; got '{' '.join(str(error).split())}' ({source}). Correct the file."
        raise ModelLoadError(msg) from error
    reader = RubricReader(source)
    fields = reader.fields(data, required=("name", "coordinates"), optional=("system", "template"))
    reader.template = reader.template_of(fields)
    if not isinstance(fields["coordinates"], list) or not fields["coordinates"]:
        reader.refuse("coordinates", "be a list of at least one question", fields["coordinates"])
    coordinates = tuple(_coordinate(reader, item, i) for i, item in enumerate(fields["coordinates"]))
    names = [coordinate.name for coordinate in coordinates]
    for name in names:
        if names.count(name) > 1:
            reader.refuse("coordinates", "have distinct names", name)
    reader.at = "rubric"
    _check_ranks(reader, coordinates)
    name = reader.text(fields, "name")
    system = reader.text(fields, "system") if "system" in fields else ""
    content = repr((_FORMAT, name, system, coordinates)) + _additions(coordinates)
    return Rubric(
        name=name,
        coordinates=coordinates,
        system=system,
        digest=hashlib.sha256(content.encode()).hexdigest(),
    )


def _additions(coordinates: tuple[Coordinate, ...]) -> str:
    """Return what the digest needs beyond the plain form, so that a rubric without any keeps its digest."""
    added = [
        (item.name, item.unknown_reply, item.examples)
        for item in coordinates
        if isinstance(item, ChoiceCoordinate) and (item.unknown_reply or item.examples)
    ]
    return repr(added) if added else ""


def _check_ranks(reader: RubricReader, coordinates: tuple[Coordinate, ...]) -> None:
    judged = [item.name for item in coordinates if isinstance(item, ChoiceCoordinate | ScoreCoordinate)]
    for item in coordinates:
        if isinstance(item, RankCoordinate) and item.of not in judged:
            reader.refuse("of", f"name a choice or score coordinate, one of {judged}", item.of)


def _coordinate(reader: RubricReader, item: Any, i: int) -> Coordinate:
    reader.at = f"coordinate {i}"
    if not isinstance(item, dict) or "name" not in item or "kind" not in item:
        reader.refuse(reader.at, "be a mapping with 'name' and 'kind'", item)
    name = reader.text(item, "name")
    reader.at = f"coordinate '{name}'"
    readers = {
        "choice": _choice,
        "score": _score,
        "agreement": _agreement,
        "majority": _majority,
        "rank": _rank,
        "well_formed": _well_formed,
    }
    if item["kind"] not in readers:
        reader.refuse("kind", f"be one of {list(readers)}", item["kind"])
    return readers[item["kind"]](reader, item, name)


def _choice(reader: RubricReader, item: Any, name: str) -> Coordinate:
    optional = ("unknown_margin", "prior_correction", "unknown", "examples")
    fields = reader.fields(item, required=("name", "kind", "question", "options"), optional=optional)
    question, options = reader.question(fields), fields["options"]
    if not isinstance(options, dict) or len(options) < 2:
        reader.refuse("options", "map at least two levels to reply texts", options)
    replies = tuple(reader.text(options, level) for level in options)
    unknown = reader.text(fields, "unknown") if "unknown" in fields else ""
    texts = (*replies, unknown) if unknown else replies
    for a, first in enumerate(texts):
        for b, second in enumerate(texts):
            if a != b and second.startswith(first):
                reader.refuse("options", "be replies of which none begins with another", list(texts))
    prior = fields.get("prior_correction", "false")
    if prior not in ("true", "false"):
        reader.refuse("prior_correction", "be true or false", prior)
    margin = fields.get("unknown_margin", "0")
    reply_of = {**dict(zip(options, replies, strict=True)), **({"unknown": unknown} if unknown else {})}
    return ChoiceCoordinate(
        name=name,
        question=question,
        levels=tuple(options),
        replies=replies,
        unknown_margin=reader.number("unknown_margin", margin, low=0, high=float("inf"), rule="lie in [0, inf)"),
        prior_correction=prior == "true",
        unknown_reply=unknown,
        examples=reader.examples(fields, reply_of.get),
    )


def _score(reader: RubricReader, item: Any, name: str) -> Coordinate:
    fields = reader.fields(item, required=("name", "kind", "question", "cuts"), optional=("examples",))

    def reply_of(text: str) -> str:
        return f"{reader.number('reply', text, low=0, high=1, rule='be a score in [0, 1]'):g}"

    question = reader.question(fields)
    if "{options}" in question:
        reader.refuse("question", "hold no {options}, since a score has none", question)
    examples = reader.examples(fields, reply_of)
    return ScoreCoordinate(name=name, question=question, cuts=reader.cuts(fields["cuts"]), examples=examples)


def _agreement(reader: RubricReader, item: Any, name: str) -> Coordinate:
    fields = reader.fields(item, required=("name", "kind", "cuts"))
    return AgreementCoordinate(name=name, cuts=reader.cuts(fields["cuts"]))


def _majority(reader: RubricReader, item: Any, name: str) -> Coordinate:
    reader.fields(item, required=("name", "kind"))
    return MajorityCoordinate(name=name)


def _rank(reader: RubricReader, item: Any, name: str) -> Coordinate:
    fields = reader.fields(item, required=("name", "kind", "of", "cuts"))
    return RankCoordinate(name=name, of=reader.text(fields, "of"), cuts=reader.cuts(fields["cuts"]))


def _well_formed(reader: RubricReader, item: Any, name: str) -> Coordinate:
    reader.fields(item, required=("name", "kind"))
    return WellFormedCoordinate(name=name)
