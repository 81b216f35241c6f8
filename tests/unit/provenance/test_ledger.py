"""The ledger: lines in order, chained, and no byte of it can change unseen."""

import errno
import json
import os
import resource

import pytest

from benchmarks.lineage.make import make_data
from rangeline.errors import LineageError
from rangeline.provenance.ledger import PRUNED, Note, append_note, ledger_path, read_ledger, vouched_files


def filled(root, count=3):
    """Write a ledger of some lines; return its path."""
    for number in range(count):
        files = ({"path": f"runs/r/{number}.html", "sha256": f"{number}" * 64},)
        append_note(
            root, Note(kind="report", ended=f"2026-01-0{number + 1}", files=files, prefect={"flow_run_id": "é"})
        )
    return ledger_path(root)


def test_lines_are_chained_and_give_back_what_was_noted(tmp_path):
    """Entries come back in order with all that was noted, and nothing is wrong with them."""
    filled(tmp_path)
    ledger = read_ledger(tmp_path)
    assert ((), [1, 2, 3]) == (ledger.problems, [entry.number for entry in ledger.entries])
    assert "2" * 64 == ledger.newest["runs/r/2.html"][0]
    assert {"flow_run_id": "é"} == ledger.entries[0].prefect


def test_absent_ledger_is_empty(tmp_path):
    """A workspace that no flow ran in has an empty ledger."""
    assert ((), ()) == (read_ledger(tmp_path).entries, read_ledger(tmp_path).problems)


def test_no_byte_can_change_unseen(tmp_path):
    """Whatever byte of the ledger is changed, the ledger says so and names a line."""
    path = filled(tmp_path, 2)
    content = path.read_bytes()
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        assert read_ledger(tmp_path).problems, index
        assert "line " in read_ledger(tmp_path).problems[0]


def test_other_spacing_of_the_same_values_is_seen(tmp_path):
    """A line that says the same in another writing is not the line that was written."""
    path = filled(tmp_path, 1)
    path.write_text(path.read_text().replace('": ', '":  ', 1))
    assert ("line 1 was changed",) == tuple(text[:18] for text in read_ledger(tmp_path).problems)


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2), (0, 1, 1, 2)], ids=["swapped", "removed", "doubled"])
def test_lines_cannot_be_moved(tmp_path, order):
    """Swapped, removed and doubled lines are seen, although each is whole in itself."""
    path = filled(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[i] for i in order))
    assert any("does not follow" in problem for problem in read_ledger(tmp_path).problems)


def test_nothing_is_chained_to_a_broken_line(tmp_path):
    """A last line that was cut off is refused by name before anything is written after it."""
    path = filled(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LineageError, match=r"last line of '.*ledger\.jsonl' must be whole"):
        append_note(tmp_path, Note(kind="report", ended="later"))


def test_long_lines_are_followed(tmp_path):
    """A line longer than one read is still the one before."""
    append_note(tmp_path, Note(kind="night", ended="x", facts={"long": "y" * 200_000}))
    append_note(tmp_path, Note(kind="night", ended="x"))
    assert ((), 2) == (read_ledger(tmp_path).problems, len(read_ledger(tmp_path).entries))


def test_deletions_are_explained_by_their_folder(tmp_path):
    """A path below a deleted folder has the folder's reason, and another path has none."""
    append_note(tmp_path, Note(kind=PRUNED, ended="x", facts={"deleted": ["runs/old"], "reason": "old"}))
    ledger = read_ledger(tmp_path)
    assert ("old", None) == (ledger.why_deleted("runs/old/iterations/x"), ledger.why_deleted("runs/older"))


def test_what_lies_in_place_by_right_is_what_was_noted_last(tmp_path):
    """The outputs of the noted manifests are vouched for; of a manifest that was changed none is."""
    make_data(tmp_path)
    vouched = vouched_files(tmp_path, read_ledger(tmp_path))
    assert {"data/pools/policy.parquet", "models/warmup/policy/weights.bin"} <= vouched.keys()
    path = tmp_path / "models" / "warmup" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert "models/warmup/policy/weights.bin" not in vouched_files(tmp_path, read_ledger(tmp_path))


def test_a_line_that_does_not_fit_leaves_none_of_itself(tmp_path):
    """A disk that is full amid a line costs that line alone: the ledger is as before, and the next line goes on."""
    path = filled(tmp_path, 2)
    before = path.read_bytes()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, len(before) + 40))
        try:
            append_note(tmp_path, Note(kind="report", ended="2026-01-03"))
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    assert errno.EFBIG == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert before == path.read_bytes()
    append_note(tmp_path, Note(kind="report", ended="2026-01-03"))
    assert ((), 3) == (read_ledger(tmp_path).problems, len(read_ledger(tmp_path).entries))
