"""Our verdicts beside those of lm-evaluation-harness: equal wherever both find an answer, but for explained kinds."""

import json
from pathlib import Path

import pytest
from peer_verdicts import peer_verdicts, questions

from rangeline.suites.registry import get_suite

LETTERS = "ABCDEFGHIJ"
STORED = Path(__file__).with_name("peer_completions.jsonl")
"""Greedy completions of SmolLM2-135M-Instruct on packaged questions."""

SAME = {
    "gsm8k": (
        "#### {x}",
        "So 2 + 2 = 4.\n#### {x}",
        "The answer is {x}.",
        "The final answer is ${x}.",
        "**Answer: {x}**",
        "The answer is \\boxed{{{x}}}.",
        "#### {x}%",
        "#### {x} dollars",
        "First I guessed #### 1234567. Then: #### {x}",
    ),
    "mmlu": (
        "The answer is ({x}).",
        "Answer: {x}",
        "**Answer: {x}**",
        "({x}) {t}",
        "The correct option is: {x}",
        "Not ({y}). The answer is ({x}).",
        "Answer: {x}. Because of this.",
    ),
}
"""Phrasings in which both find one answer and agree on it, right or wrong."""

AN_OPTION_IS_A_LETTER = "mmlu_packaged-fc1760652bbc"
"""Its option D reads "c": the peer takes the letter of "Answer: C" for that text, and so for D."""

KINDS = [
    ("gsm8k", "#### {x}.0", 1.0, 0.0),  # the peer compares writings, not numbers
    ("gsm8k", "#### 0{x}", 1.0, 0.0),
    ("gsm8k", "The answer is {x}...", 1.0, 0.0),  # its number takes the dots along
    ("gsm8k", "#### {x}\nIt took 3 steps.", 1.0, 0.0),  # it takes the last number, whatever was marked
    ("gsm8k", "#### \u2212{x}", 0.0, 1.0),  # it does not know the typographic minus
    ("mmlu", "I choose ({x}), not ({y}).", 1.0, 0.0),  # it takes the last letter in parentheses
    ("mmlu", "Answer: {x}\n\nNote: Both are close.", 1.0, 0.0),  # it reads the B of "Both" after a colon
]
"""Kinds of differences where both find an answer: a right one in our reading, and what each makes of it."""

STORED_DIFFERENCES = {
    # "A. True, False": the peer finds the text of another option that repeats it, and we the letter.
    "mmlu_packaged-888e96af188e": (0.0, 1.0),
    "mmlu_packaged-5615dd71aa33": (1.0, 0.0),
    # Options recited, then "The correct answer is: C. ..." over two lines: the peer takes the option text that is last.
    "mmlu_packaged-e898c037877b": (0.0, 1.0),
    # "C. ... of glycogen to glucose-1-phosphate.": the letter of one option and the text of another.
    "mmlu_packaged-1b12ec5ba146": (1.0, 0.0),
}
"""Stored completions on which the two differ: our verdict, the peer's."""


def phrased(form, row, answer):
    """Return a completion that gives an answer in a phrasing."""
    if "options" not in row.metadata:
        return form.format(x=answer)
    letters = LETTERS[: len(row.metadata["options"])]
    place = letters.index(answer)
    other = letters[(place + 2) % len(letters)]
    return form.format(x=answer, y=other, t=row.metadata["options"][place])


def wrong_answer(row):
    """Return an answer that is not the reference."""
    if "options" not in row.metadata:
        return str(int(row.reference.replace(",", "")) + 1)
    letters = LETTERS[: len(row.metadata["options"])]
    return letters[(letters.index(row.reference) + 1) % len(letters)]


def verdict(row, completion, *, finish="stop"):
    """Return our verdict."""
    return get_suite(row.suite).verify(completion, row, truncated=finish == "length")


@pytest.mark.parametrize("name", ["gsm8k", "mmlu"])
def test_phrased_answers_are_judged_alike(name):
    """On every packaged question, right and wrong answers in each common phrasing have the peer's verdict."""
    rows = list(questions(name).values())
    assert len(rows) == {"gsm8k": 100, "mmlu": 281}[name]
    asked = [
        (row, phrased(form, row, answer))
        for form in SAME[name]
        for row in rows
        for answer in (row.reference, wrong_answer(row))
    ]
    peers = peer_verdicts(name, [row for row, _ in asked], [text for _, text in asked])
    differing = [
        (row.prompt_id, text)
        for (row, text), (_, theirs) in zip(asked, peers, strict=True)
        if theirs is None or verdict(row, text).reward != theirs
    ]
    assert {row.prompt_id for row, _ in asked} >= {AN_OPTION_IS_A_LETTER} or name == "gsm8k"
    assert set() == {prompt_id for prompt_id, _ in differing} - {AN_OPTION_IS_A_LETTER}


@pytest.mark.parametrize(("name", "form", "ours", "theirs"), KINDS)
def test_each_kind_of_difference_is_as_explained(name, form, ours, theirs):
    """On the reference in this phrasing the two differ as the documentation says, on every question."""
    # A reference of B is what the peer reads out of "Both", by chance rightly.
    rows = [row for row in questions(name).values() if row.reference != "B"][:20]
    texts = [phrased(form, row, row.reference) for row in rows]
    assert {ours} == {verdict(row, text).reward for row, text in zip(rows, texts, strict=True)}
    assert {theirs} == {score for _, score in peer_verdicts(name, rows, texts)}


@pytest.mark.parametrize(("name", "num_both"), [("gsm8k", 4), ("mmlu", 12)])
def test_stored_completions_are_judged_alike_but_for_a_list(name, num_both):
    """Where both find an answer in a real completion, verdicts are equal except for those on the list."""
    stored = [item for item in map(json.loads, STORED.read_text().splitlines()) if item["benchmark"] == name]
    rows = [questions(name)[item["prompt_id"]] for item in stored]
    peers = peer_verdicts(name, rows, [item["completion"] for item in stored])
    both, differing = 0, {}
    for item, row, (answer, theirs) in zip(stored, rows, peers, strict=True):
        ours = verdict(row, item["completion"], finish=item["finish"])
        if ours.extracted is not None and answer is not None:
            both += 1
            if ours.reward != theirs:
                differing[item["prompt_id"]] = (ours.reward, theirs)
    assert num_both == both
    assert {key: pair for key, pair in STORED_DIFFERENCES.items() if key.startswith(name)} == differing
