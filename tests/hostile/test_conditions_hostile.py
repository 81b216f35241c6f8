"""Condition files that are not usable are refused by file, field and rule, and never run anything."""

import pytest

from rangeline.errors import AnchorError
from rangeline.prompts.conditions import parse_conditions

SIDE = "negative: [{name: n, message: '{prompt} no'}]"


def _file(positive="[{name: p, message: '{prompt} yes'}]", *, block="with_reference", head="suite: s"):
    return f"{head}\n{block}:\n  positive: {positive}\n  {SIDE}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "Conditions must be YAML"),
        ("suite: !!python/object/apply:os.system ['true']", "Conditions must be YAML"),
        ("suite: s\nsuite: t", "key 'suite' occurs twice"),
        ("? [a]\n: b", "Conditions must be YAML"),
        ("", "'conditions' is not valid"),
        ("- suite", "'conditions' is not valid"),
        ("suite: s", "'with_reference' or 'without_reference' must be given"),
        (_file(head="suite: s\nsecret: 1"), "'secret' is not valid: Extra inputs are not permitted"),
        (_file(head="suite: ''"), "'suite' is not valid"),
        (_file(head="suite: 7"), "'suite' is not valid: Input should be a valid string"),
        (_file("[]"), "'with_reference.positive' is not valid"),
        (_file("[{name: p, message: 'no prompt'}]"), r"must hold \{prompt\} or \{misread\}, exactly once"),
        (_file("[{name: p, message: '{prompt}{prompt}'}]"), "exactly once"),
        (_file("[{name: p, message: '{prompt}{misread}'}]"), "exactly once"),
        (_file("[{name: p, message: '{prompt} {answer}'}]"), "'{answer}' is no placeholder"),
        (_file("[{name: p, message: '{prompt}', system: '{0.__class__} {}'}]"), "'{}' is no placeholder"),
        (_file("[{name: p, message: '{prompt} no'}]"), "a template stands on both sides"),
        (_file("[{name: p, message: '{prompt} {masked}'}]", block="without_reference"), "template 'p'"),
        (_file(head="suite: s\nshares: {mask: 1}"), "'shares.mask' is not valid: Input should be less than 1"),
        (_file(head="suite: s\nshares: {corrupt: .nan}"), "'shares.corrupt' is not valid"),
    ],
)
def test_unusable_file_is_refused(text, message):
    """The message names the file and what is wrong in it."""
    with pytest.raises(AnchorError, match=message) as caught:
        parse_conditions(text, source="conditions/x.yaml")
    assert "conditions/x.yaml" in str(caught.value)
