"""Typed answers by kind: truth in a sentence, rates with units, matrices as lists."""

import pytest

from rangeline.records import PromptRow
from rangeline.suites.registry import get_suite


@pytest.mark.parametrize(
    ("kind", "reference", "completion", "outcome"),
    [
        ("boolean", "True", r"\boxed{\text{The statement is true}}", "right"),
        ("boolean", "True", "The statement is false.", "wrong"),
        ("boolean", "False", r"\boxed{\text{not true}}", "right"),
        ("boolean", "True", "Whether the claim is true is open.", "missing"),
        ("boolean", "True", r"\boxed{\text{true or false}}", "wrong"),
        ("float", "2.5", r"\boxed{2.5 m/s}", "right"),
        ("float", "9.8", r"\boxed{9.8 m/s^2}", "right"),
        ("float", "2.5", r"\boxed{2.6 km/h}", "wrong"),
        ("expression", "2", r"\boxed{2 x/y}", "wrong"),
        ("matrix", "[[1,2],[3,4]]", r"\boxed{\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}}", "right"),
        ("matrix", "[[1,2],[3,4]]", r"\boxed{\begin{pmatrix}1 & 3 \\ 2 & 4\end{pmatrix}}", "wrong"),
        ("matrix", "[[1,2],[3,4]]", r"\boxed{[[1, 2], [3, 4]]}", "right"),
    ],
)
def test_typed_answer_is_judged_as_a_person_would(kind, reference, completion, outcome):
    """The type's rule sees through the usual writings of one answer, and through no other answer."""
    row = PromptRow(prompt_id="p", prompt="q", suite="free_form", reference=reference, metadata={"answer_type": kind})
    assert outcome == get_suite("free_form").verify(completion, row).outcome
