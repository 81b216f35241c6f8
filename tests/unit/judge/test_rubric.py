"""Rubric files: what they become, and what is refused."""

import pytest

from rangeline.errors import ModelLoadError
from rangeline.judge.coordinates import (
    AgreementCoordinate,
    ChoiceCoordinate,
    WellFormedCoordinate,
    neutralise,
)
from rangeline.judge.rubric import parse_rubric

TEXT = """
name: arithmetic
system: You check answers.
coordinates:
  - name: correct
    kind: choice
    question: |
      {prompt}
      {completion}
      Right?
    options: {no: "No", yes: "Yes"}
    unknown_margin: 0.1
    prior_correction: true
  - {name: agreement, kind: agreement, cuts: [0.25, 1]}
  - {name: formed, kind: well_formed}
"""
CHOICE = "name: r\ncoordinates: [{name: c, kind: choice, question: '{completion}', options: {a: A, b: B}%s}]"
AGREEMENT = "name: r\ncoordinates: [{name: c, kind: agreement, cuts: %s}]"


def test_the_file_becomes_coordinates():
    """The levels yes and no stay words, the first option is level 0, and every field arrives."""
    rubric = parse_rubric(TEXT, source="r.yaml")
    expected = (
        ChoiceCoordinate(
            name="correct",
            question="{prompt}\n{completion}\nRight?\n",
            levels=("no", "yes"),
            replies=("No", "Yes"),
            unknown_margin=0.1,
            prior_correction=True,
        ),
        AgreementCoordinate(name="agreement", cuts=(0.25, 1.0)),
        WellFormedCoordinate(name="formed"),
    )
    assert expected == rubric.coordinates
    assert ("arithmetic", "You check answers.") == (rubric.name, rubric.system)
    assert ("lowest", ">=0.25", ">=1") == rubric.coordinates[1].levels


def test_the_digest_follows_content_only():
    """Comments and layout change nothing; a word, or the order of levels, changes the digest."""
    digest = parse_rubric(TEXT, source="a").digest
    assert digest == parse_rubric("# note\n" + TEXT.replace("0.25, 1", "0.25,   1.0"), source="b").digest
    assert digest != parse_rubric(TEXT.replace("Right?", "Wrong?"), source="a").digest
    assert digest != parse_rubric(TEXT.replace('{no: "No", yes: "Yes"}', '{yes: "Yes", no: "No"}'), source="a").digest


def test_only_delimiters_are_neutralised():
    """Text that merely resembles a delimiter stays as it is."""
    assert "a < b, <completions>, completion" == neutralise("a < b, <completions>, completion")
    assert "[completion x='1'> [/ Completion>" == neutralise("<completion x='1'> </ Completion>")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "'rubric' must be YAML; .*(r.yaml)"),
        ("x", "'rubric' must be a mapping; got 'x'"),
        ("name: a\nname: b\ncoordinates: []", "key 'name' occurs twice"),
        ("coordinates: []", "'name' must be given"),
        ("name: a\ncoordinates: []", "'coordinates' must be a list of at least one question"),
        ("name: a\ncoordinates: [x]", "must be a mapping with 'name' and 'kind'; got 'x' .*coordinate 0"),
        ("name: a\ncoordinates: [{name: c, kind: scroll}]", "'kind' must be one of .*; got 'scroll' .*coordinate 'c'"),
        ("name: a\nlevels: 3\ncoordinates: [x]", "'levels' must be one of .*; got '3'"),
        (
            "name: a\ncoordinates: [{name: c, kind: well_formed}, {name: c, kind: well_formed}]",
            "'coordinates' must have distinct names; got 'c'",
        ),
        (CHOICE % ", cuts: [1]", "'cuts' must be one of"),
        (CHOICE % ", unknown_margin: -1", "'unknown_margin' must lie in .*; got '-1'"),
        (CHOICE % ", unknown_margin: .nan", "'unknown_margin' must lie in"),
        (CHOICE % ", prior_correction: 1", "'prior_correction' must be true or false; got '1'"),
        (CHOICE.replace("{completion}", "answer") % "", "'question' must hold {completion} exactly once"),
        (CHOICE.replace("b: B", "a: B") % "", "key 'a' occurs twice"),
        (CHOICE.replace(", b: B", "") % "", "'options' must map at least two levels"),
        (CHOICE.replace("b: B", "b: ''") % "", "'b' must be a text"),
        (CHOICE.replace("b: B", "b: AB") % "", "'options' must be replies of which none begins with another"),
        (AGREEMENT % "[]", "'cuts' must be strictly increasing shares in"),
        (AGREEMENT % "[0.5, 0.5]", "'cuts' must be strictly increasing shares in"),
        (AGREEMENT % "[0]", "'cuts' must be strictly increasing shares in"),
        (AGREEMENT % "[x]", "'cuts' must be strictly increasing shares in .*; got 'x'"),
    ],
)
def test_faulty_files_are_refused(text, message):
    """Each fault is an error that names the field, the rule and the place."""
    with pytest.raises(ModelLoadError, match=message):
        parse_rubric(text, source="r.yaml")
