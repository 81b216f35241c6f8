"""Choices by kind, through the suite that trains: denied, supposed, taken back, named by text, in many languages."""

import pytest

from rangeline.records import PromptRow
from rangeline.suites.registry import get_suite

BLIND = [f"zyx{i} qwv{i}" for i in range(10)]
NAMED = ["Paris", "London", "New York", "1000", "E. coli", "C major"]
KINDS = {
    "denied": [
        ("I don't think the answer is B.", None), ("I do not choose B.", None), ("I would not pick B.", None),
        ("The wrong answer is B.", None), ("The answer is not (B).", None),
        ("It is unlikely that the answer is B.", None),
        ("No doubt the answer is B.", "B"), ("Since 5 is not prime the answer is B.", "B"),
        ("I refuse to choose B.", None), ("The answer is B. No, I don't think the answer is B.", None),
        ("I am not sure, but the answer is B.", "B"), ("The answer is not A, it is B.", "B"),
        ("The correct answer is not B but C.", "C"), ("The answer is B, not A.", "B"),
    ],
    "supposed or asked": [
        ("If B is correct, then 1 = 2.", None), ("Suppose the answer is B.", None), ("Could the answer be C?", None),
        ("Let's assume A is correct. That fails. So B is correct.", "B"), ("If we add them, the answer is B.", "B"),
    ],
    "two at once": [
        ("Answer: B & C", None), ("Answer: B; C", None), ("Answer: B or possibly C", None), ("A or B", None),
        (r"\boxed{B} or \boxed{C}", None), (r"\boxed{A}\boxed{B}", None), (r"\boxed{A}. Wait, \boxed{C}", "C"),
    ],
    "marks of other makes": [
        ("Option B", "B"), (r"\boxed{\text{Option B}}", "B"), (r"\boxed{\textbf{(B) }5}", "B"), ("Answer -> B", "B"),
        ("It is B.", "B"), ("So, B is the answer.", "B"), ("The answer, I think, is B.", "B"), ("#### B", "B"),
        ("The answer is \u201cB\u201d", "B"), ("The answer is *B*", "B"), ('{"answer": "B"}', "B"), ("Ans: B", "B"),
        ("Answer: \uff22", "B"), ("This corresponds to option B.", "B"), ("B, because it fits", "B"),
    ],
    "numbers of statements": [("I - as a model - cannot say", None),
        ("I is true and II is false.", None), ("Statement I is true.", None)],
    "other languages": [
        (text, "C")
        for text in (
            "答案是C", "正确答案是C", "答えはCです", "정답은 C입니다", 
            "La respuesta correcta es C.", "故选:C", "正解: C",
            "La risposta corretta è C", "A resposta correta é a C", "La opción correcta es la C", "Ответ \u2014 C",
            "Prawidłowa odpowiedź to C", "Đáp án đúng là C", "الإجابة الصحيحة هي C", "Răspunsul corect este C",
            "\u0397 σωστή απάντηση είναι C", "คำตอบที่ถูกต้องคือ C", "Oikea vastaus on C", "התשובה היא C",
        )
    ],
}  # fmt: skip
TEXTS = [
    ("I pick B. The answer is Paris.", "A"), ("The answer is E. coli.", "E"), ("Answer: C major", "F"),
    ("<answer>London</answer>", "B"), ("The answer is 1,000.", "D"), ("I don't think the answer is Paris.", None),
    ("The answer is Paris. So B? No. Answer: C", "C"), ("Answer: C. New York", "C"),
    ("The answer is London, not Paris.", "B"),
]  # fmt: skip


def _letter(completion, options):
    row = PromptRow(prompt_id="p", prompt="q", suite="multiple_choice", reference="A", metadata={"options": options})
    return get_suite("multiple_choice").extract(completion, row).value


@pytest.mark.parametrize(
    ("completion", "letter"),
    [pytest.param(*case, id=f"{kind}: {case[0]:.40}") for kind in KINDS for case in KINDS[kind]],
)
def test_letter_is_read_as_meant(completion, letter):
    """What is denied, supposed, asked or offered beside another is no choice; what is chosen is, in any language."""
    assert letter == _letter(completion, BLIND)


@pytest.mark.parametrize(("completion", "letter"), TEXTS)
def test_later_mark_counts_be_it_letter_or_text(completion, letter):
    """The last mark decides, and a name that begins with a letter is the option of that name."""
    assert letter == _letter(completion, NAMED)


@pytest.mark.parametrize("verb", ["choose", "pick", "select", "go with", "vote for"])
@pytest.mark.parametrize("denial", ["do not", "don't", "would not", "never", "could not"])
def test_any_denied_pick_is_no_pick(verb, denial):
    """Every verb of choosing under every denial chooses nothing, and without it chooses."""
    assert _letter(f"I {denial} {verb} B.", BLIND) is None
    assert "B" == _letter(f"I {verb} B.", BLIND)
