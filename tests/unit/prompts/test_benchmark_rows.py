"""Benchmarks by name: every column layout of the registry becomes rows that score right against themselves."""

import json

import pytest

from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.benchmarks import LETTERS, benchmark_rows, make_benchmark, read_registry, worked_choices
from rangeline.suites.registry import get_suite

REGISTRY = read_registry()
ENDINGS = ["walks", "runs", "sleeps", "eats"]
# One record of each source's columns, and the reference that it must come to.
RECORDS = {
    "gsm8k": ({"question": "2+3?", "answer": "2+3 = <<2+3=5>>5\n#### 5"}, "2+3 = <<2+3=5>>5\n#### 5"),
    "gsm8k_packaged": ({"id": "g1", "prompt": "2+3?", "expected": "5", "upstream_answer": "#### 5"}, "5"),
    "math_500": ({"unique_id": "t/1", "problem": "Half of 1?", "answer": r"\frac12", "level": 2}, r"\frac12"),
    "openr1_math": ({"uuid": "u", "problem": "Half of 1?", "answer": r"\frac{1}{2}", "solution": "s"}, r"\frac{1}{2}"),
    "aime_2024": ({"id": 60, "problem": "How many?", "answer": "204", "year": "2024"}, "204"),
    "aime_2025": ({"id": "0", "problem": "How many?", "answer": "70"}, "70"),
    "aime_2025_packaged": ({"id": "a", "question": "How many?", "answer": "70", "source": "AIME2025"}, "70"),
    "amc": ({"id": 0, "problem": "How many?", "answer": 142.0, "url": "u"}, "142"),
    "minerva": ({"question": "Mass?", "answer": r"2.5 \times 10^{3}"}, r"2.5 \times 10^{3}"),
    "olympiad_bench": ({"id": 1, "question": "Solve.", "final_answer": ["1", "2"], "unit": None}, "1, 2"),
    "mmlu_pro": (
        {"question_id": 7, "question": "Who?", "options": [*ENDINGS, "N/A", "N/A"], "answer": "C", "answer_index": 2},
        "C",
    ),
    "mmlu": ({"question": "Who?", "choices": ENDINGS, "answer": 3, "subject": "s"}, "D"),
    "mmlu_packaged": ({"question": "Who?", "options": ENDINGS, "answer": "B"}, "B"),
    "arc_challenge": (
        {"id": "M", "question": "Who?", "choices": {"text": ENDINGS, "label": ["1", "2", "3", "4"]}, "answerKey": "3"},
        "C",
    ),
    "hellaswag_packaged": ({"id": "h", "ctx": "He", "endings": ENDINGS, "expected_index": 0}, "A"),
    "theoremqa": (
        {"Question": "Rate?", "Answer": "0.25", "Answer_type": "float", "Picture": None},
        "0.25",
    ),
    "webinstruct_verified": ({"id": 1, "question": "Is it?", "answer": "True", "answer_type": "Boolean"}, "True"),
    "samsum": ({"id": "1", "dialogue": "A: hi\nB: hi", "summary": "They greet."}, "They greet."),
    "eli5": ({"q_id": "e", "title": "Why?", "answers": {"text": ["Because so.", "No."]}}, "Because so."),
    "aclsum_packaged": (
        {"id": "x", "summary": {"approach": "They count."}, "sentences": {"abstract": ["We count .", "It works ."]}},
        "They count.",
    ),
}  # fmt: skip
SHUFFLED = {
    "gpqa_diamond": {
        "Record ID": "r", "Question": "Which?", "Correct Answer": "right one\n",
        "Incorrect Answer 1": "wrong 1", "Incorrect Answer 2": "wrong 2", "Incorrect Answer 3": "wrong 3",
    },
    "truthfulqa_packaged": {
        "id": "t", "question": "Which?", "choices": ["right one", "wrong 1", "wrong 2"], "expected_index": 0,
    },
}  # fmt: skip


def _right(row):
    suite = get_suite(row.suite)
    return suite.verify(suite.render_reference(row), row).reward == 1.0


def test_every_benchmark_of_the_registry_has_a_test():
    """No layout of columns is untried."""
    assert set(REGISTRY) == set(RECORDS) | set(SHUFFLED)


@pytest.mark.parametrize("name", RECORDS)
def test_columns_become_a_row_that_scores_right(name):
    """A record of the source's columns becomes a row whose reference the suite verifies as right."""
    record, reference = RECORDS[name]
    (row,) = benchmark_rows(REGISTRY[name], [record]).rows
    assert (reference, "evaluation", name) == (row.reference, row.share, row.domain)
    assert row.suite == REGISTRY[name].suite
    assert _right(row)


@pytest.mark.parametrize("name", SHUFFLED)
def test_shuffled_options_depend_on_the_question_alone(name):
    """The right option is found again after the shuffle, which is the same in every run and not for every question."""
    record = SHUFFLED[name]
    (row,) = benchmark_rows(REGISTRY[name], [record]).rows
    assert "right one" == row.metadata["options"][LETTERS.index(row.reference)]
    assert _right(row)
    question = REGISTRY[name].columns["question"]
    many = [record | {question: f"Which, in case {i}?"} for i in range(20)]
    rows = benchmark_rows(REGISTRY[name], many).rows
    assert rows == benchmark_rows(REGISTRY[name], many[::-1]).rows[::-1]
    assert 1 < len({row.reference for row in rows})


def test_private_rows_say_so():
    """Rows whose text may not be shown carry the mark."""
    (row,) = benchmark_rows(REGISTRY["gpqa_diamond"], [SHUFFLED["gpqa_diamond"]]).rows
    assert row.metadata["private"]


def test_padding_is_no_option():
    """Padding is dropped wherever it stands, and the letters follow."""
    record = RECORDS["mmlu_pro"][0] | {"options": ["N/A", "walks", "runs", "N/A"], "answer_index": 2}
    (row,) = benchmark_rows(REGISTRY["mmlu_pro"], [record]).rows
    assert (["walks", "runs"], "B") == (row.metadata["options"], row.reference)


def test_repeated_problems_become_one_row():
    """A file that holds each problem eight times gives each once, and says how many repeats there were."""
    records = [RECORDS["aime_2025"][0] | {"id": str(i), "problem": f"How many in case {i % 2}?"} for i in range(16)]
    given = benchmark_rows(REGISTRY["aime_2025"], records)
    assert (2, 14) == (len(given.rows), given.repeats)


def test_records_that_are_no_rows_are_listed_by_number_and_reason():
    """What cannot be a row is left out with its reason, never guessed, and its text is not shown."""
    good = RECORDS["mmlu"][0]
    records = [
        good,
        good | {"question": " "},
        good | {"answer": 9},
        {"question": "Who?"},
        good | {"choices": ["one"], "answer": 0},
    ]
    given = benchmark_rows(REGISTRY["mmlu"], records)
    assert 1 == len(given.rows)
    reasons = (
        (2, "question is blank"),
        (3, "answer names no option"),
        (4, "column 'choices' is missing"),
        (5, "1 options"),
    )
    assert reasons == given.unusable


def test_wanted_values_choose_the_rows():
    """Rows with a picture, or of another source in the same file, are not of the benchmark."""
    record = RECORDS["theoremqa"][0]
    given = benchmark_rows(REGISTRY["theoremqa"], [record, record | {"Question": "Area?", "Picture": "image"}])
    assert (1, ()) == (len(given.rows), given.unusable)


def test_no_row_at_all_is_refused():
    """A source without one usable record is refused with the first reason."""
    with pytest.raises(DataContractError, match=r"'mmlu' must give at least one row; got 0 of 1 \(column 'question'"):
        benchmark_rows(REGISTRY["mmlu"], [{"text": "x"}])


def test_worked_questions_are_taken_apart():
    """Few-shot prompts with options and reasoning become records with the answer's letter."""
    text = (
        "These are questions.\n\nQ: One?\nMore of it.\n(A) 1 (B) 2 (C) 3 (D) 4\nA: Think. The answer is (C).\n\n"
        "Q: Two?\n(A) x (B) y\nA: Think. The answer is (A)."
    )
    first, second = worked_choices({"arithmetic": text})
    assert ("One?\nMore of it.", ["1", "2", "3", "4"], "C") == (first["question"], first["options"], first["answer"])
    assert (["x", "y"], "A", "arithmetic") == (second["options"], second["answer"], second["subject"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[1]", "'r.yaml' must map names of benchmarks to their fields"),
        ("a: 1", "'r.yaml' must map names of benchmarks to their fields"),
        ("a: {suite: x", "'r.yaml' must be YAML"),
        ("a: {suite: s, source: 'file:x', columns: {}, colour: 1}", "'colour' must be one of .* \\(benchmark 'a'\\)"),
        ("a: {suite: s}", "'a' must have suite, source and columns; got suite"),
    ],
)
def test_unusable_registries_are_refused(text, match):
    """A registry names known fields, and suite, source and columns of each benchmark."""
    with pytest.raises(ConfigError, match=match):
        read_registry(text, source="r.yaml")


def test_registry_is_plain_data():
    """Every entry has a licence, a metric and its k, and Hub sources are pinned to a commit or to nothing."""
    for benchmark in REGISTRY.values():
        assert benchmark.licence
        assert benchmark.metric in ("pass@k", "avg@k", "rouge")
        assert all(isinstance(k, int) and k >= 1 for k in benchmark.k)
        assert json.dumps(dict(benchmark.columns))
        assert make_benchmark("x", {"suite": "s", "source": "file:x", "columns": {}}).k == (1,)
