"""Condition files: which serves a prompt, what each placeholder becomes, and that the shipped ones are usable."""

from pathlib import Path

import pytest

from rangeline.errors import AnchorError
from rangeline.prompts.condition_prompts import condition_prompt
from rangeline.prompts.conditions import STRATA, conditions_for, parse_conditions
from rangeline.records import ChatMessage, PromptRow

SHIPPED = sorted((Path(__file__).resolve().parents[3] / "conditions").glob("*.yaml"))
FILE = """
suite: s
with_reference:
  positive:
    - {name: a, message: "{prompt} ~ {masked}"}
    - {name: b, message: "{prompt} ... {partial}", system: "Be kind."}
  negative:
    - {name: c, message: "{corrupted} {prompt}"}
without_reference:
  positive:
    - {name: d, message: "{prompt}", examples: [{prompt: "1 {prompt}", completion: "2"}]}
  negative:
    - {name: e, message: "{misread}"}
"""
CHAT = (ChatMessage("system", "S"), ChatMessage("user", "Q 1"))


def _row(reference="12 and 34", prompt_id="p", **more):
    return PromptRow(prompt_id=prompt_id, prompt="Q 1", suite="s", reference=reference, **more)


def _put(row, stratum, number=0, *, text=FILE, **more):
    conditions = parse_conditions(text, source="f")
    return condition_prompt(conditions, row, CHAT, stratum=stratum, number=number, seed=1, **more)


def test_anchor_numbers_go_through_the_templates_and_again_from_the_first():
    """Anchor k takes template k modulo their number, and anchors of one template are asked alike."""
    texts = [_put(_row(), "positive", k)[-1].content for k in range(4)]
    assert (texts[0], texts[1]) == (texts[2], texts[3])
    assert "Q 1 ~ " == texts[0][:6]
    assert "Q 1 ... 12 and ..." == texts[1]


def test_system_text_is_added_to_the_suites_own():
    """The suite's instruction stays in front."""
    assert ChatMessage("system", "S\nBe kind.") == _put(_row(), "positive", 1)[0]


def test_system_text_makes_a_turn_where_there_was_none():
    """A chat without a system turn gets one."""
    conditions = parse_conditions(FILE, source="f")
    turns = condition_prompt(conditions, _row(), CHAT[1:], stratum="positive", number=1, seed=1)
    assert ["system", "user"] == [turn.role for turn in turns]


def test_examples_are_turns_before_the_prompt_and_mean_nothing_else():
    """Braces in an example stay as they are."""
    assert (*CHAT[:1], ChatMessage("user", "1 {prompt}"), ChatMessage("assistant", "2"), CHAT[1]) == _put(
        _row(reference=None), "positive"
    )


def test_a_misread_prompt_asks_something_else():
    """The question's number is another one."""
    asked = _put(_row(reference=None), "negative")[-1].content
    assert asked.startswith("Q ")
    assert asked != "Q 1"


def test_labelled_prompts_can_be_put_as_if_unlabelled():
    """`use_reference=False` takes the conditions without a reference."""
    assert _put(_row(reference=None), "positive") == _put(_row(), "positive", use_reference=False)


def test_draws_are_keyed_by_seed_prompt_and_side():
    """The same prompt is always spoilt alike, and another prompt otherwise."""
    reference = "11 22 33 44 55 66"
    first = _put(_row(reference), "negative")[-1].content
    assert first == _put(_row(reference), "negative")[-1].content
    assert first != _put(_row(reference, prompt_id="q"), "negative")[-1].content


def test_placeholders_inside_data_mean_nothing():
    """A prompt or reference that holds a placeholder is written as it is."""
    chat = (ChatMessage("user", "say {corrupted}"),)
    conditions = parse_conditions(FILE, source="f")
    row = _row("{prompt} {reference}")
    put = condition_prompt(conditions, row, chat, stratum="positive", number=1, seed=1)
    assert "say {corrupted} ... {prompt} ..." == put[-1].content


def test_a_row_without_reference_needs_conditions_for_it():
    """A file for labelled prompts only is refused for others, with the prompt's id."""
    text = FILE[: FILE.index("without_reference")]
    with pytest.raises(AnchorError, match=r"must have 'without_reference' .* \(prompt 'p'\)"):
        _put(_row(reference=None), "positive", text=text)


def test_a_reference_that_cannot_be_spoilt_names_its_prompt():
    """The error of a placeholder says which prompt it was."""
    with pytest.raises(AnchorError, match=r"to spoil; got 'yes'.*prompt 'p', suite 's'"):
        _put(_row("yes"), "negative")


def test_the_domains_file_goes_before_the_suites():
    """A file that names a row's domain serves it; the suite's general file serves the others."""
    general, special = (
        parse_conditions(text, source="f") for text in (FILE, FILE.replace("suite: s", "suite: s\ndomains: [d]"))
    )
    assert special is conditions_for(_row(domain="d"), (general, special))
    assert general is conditions_for(_row(), (general, special))
    for files in ((), (general, general), (special,)):
        with pytest.raises(AnchorError, match="One condition file must serve suite 's' and domain 'default'"):
            conditions_for(_row(), files)


def test_digest_follows_content_and_not_layout():
    """Comments change nothing, a word changes the digest."""
    digest = parse_conditions(FILE, source="f").digest
    assert digest == parse_conditions("# note\n" + FILE, source="g").digest
    assert digest != parse_conditions(FILE.replace("kind", "brief"), source="f").digest


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("reference", ["Take 3 from 12, then add 40. #### 49", None])
def test_shipped_conditions_put_prompts(path, reference):
    """Every shipped file puts labelled and unlabelled prompts on both sides, and the sides differ."""
    conditions = parse_conditions(path.read_text(), source=path.name)
    row = PromptRow(prompt_id="p", prompt="Q 1", suite=conditions.suite, reference=reference)
    put = {
        stratum: {condition_prompt(conditions, row, CHAT, stratum=stratum, number=k, seed=0)[-2:] for k in range(4)}
        for stratum in STRATA
    }
    assert not put["positive"] & put["negative"]
