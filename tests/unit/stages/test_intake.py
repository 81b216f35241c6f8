"""Taking in prompts: only what is new, each once, and nothing that contradicts what is known."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeline.config import build_config
from rangeline.stages.intake import moved_prompts, take_in
from rangeline.stages.workspace import Workspace

KNOWN = {"prompt_id": "old", "prompt": "1 + 1", "suite": "reasoning_gym", "reference": "2"}


@pytest.fixture
def world(tmp_path):
    """Give a workspace with one known prompt, and an empty inbox."""
    place = Workspace(tmp_path)
    place.raw.mkdir(parents=True)
    (place.raw / "rows.jsonl").write_text(json.dumps(KNOWN) + "\n")
    config = build_config({"data": {"files": ["data/raw/rows.jsonl"]}}, source="test")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    return SimpleNamespace(place=place, config=config, inbox=inbox, look=lambda: take_in(place, config, inbox))


def put(world, name, *rows):
    """Put rows into the inbox."""
    (world.inbox / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def prompt(name, reference="4", **over):
    """Return one arriving row."""
    return {"prompt_id": name, "prompt": "2 + 2", "suite": "reasoning_gym", "reference": reference, **over}


def test_new_prompts_are_added_once(world):
    """New prompts are written to one file that ingest reads; a second look adds nothing."""
    put(world, "a.jsonl", prompt("n1"), prompt("n2"))
    first, second = world.look(), world.look()
    assert (("n1", "n2"), ()) == (first.new, second.new)
    assert (None, 2) == (second.path, second.num_known)
    assert ["n1", "n2"] == [json.loads(line)["prompt_id"] for line in first.path.read_text().splitlines()]
    assert [first.path] == list(world.place.arrived.iterdir())


def test_what_is_known_is_passed_over_and_what_contradicts_it_refused(world):
    """The same row again is passed over; the same id with another answer or question is refused and named."""
    put(world, "a.jsonl", KNOWN)
    put(world, "b.jsonl", {**KNOWN, "reference": "3"})
    put(world, "c.jsonl", {**KNOWN, "prompt": "1 + 1 = ?"})
    found = world.look()
    assert ((), 1, None) == (found.new, found.num_known, found.path)
    assert [("b.jsonl", "old"), ("c.jsonl", "old")] == [(item.file, item.prompt_id) for item in found.refused]


def test_two_files_of_one_night_that_contradict_each_other(world):
    """Of two rows of one id the first is taken and the other refused."""
    put(world, "a.jsonl", prompt("n", "4"))
    put(world, "b.jsonl", prompt("n", "5"))
    found = world.look()
    assert (("n",), ["b.jsonl"]) == (found.new, [item.file for item in found.refused])


def test_a_broken_file_is_refused_whole_and_others_are_taken(world):
    """A file that breaks the contract gives nothing and is told; the next is taken all the same."""
    put(world, "a.jsonl", prompt("n1"), {"prompt_id": 7})
    (world.inbox / "b.jsonl").write_bytes(b"\xff\xfe{")
    put(world, "c.jsonl", prompt("n2", suite="no such suite"))
    put(world, "d.jsonl", prompt("n3"))
    found = world.look()
    assert ("n3",) == found.new
    assert {("a.jsonl", None), ("b.jsonl", None), ("c.jsonl", None)} == {(i.file, i.prompt_id) for i in found.refused}


def test_a_wrong_reference_is_refused_by_row(world):
    """A reference that its own checker cannot read is refused; its neighbours are taken."""
    put(world, "a.jsonl", prompt("good"), prompt("bad", "no number"))
    found = world.look()
    assert (("good",), ["bad"]) == (found.new, [item.prompt_id for item in found.refused])


def test_links_hidden_files_and_other_kinds_are_left_alone(world, tmp_path):
    """A link out of the inbox, a hidden file and a file of another kind are not read."""
    outside = tmp_path / "secret.jsonl"
    outside.write_text(json.dumps(prompt("secret")) + "\n")
    (world.inbox / "link.jsonl").symlink_to(outside)
    put(world, ".hidden.jsonl", prompt("hidden"))
    put(world, "notes.txt", prompt("notes"))
    assert ((), ()) == (world.look().new, world.look().refused)


def test_parquet_and_csv_arrive_too(world):
    """Tables arrive as lines do."""
    pq.write_table(pa.table({name: [value] for name, value in prompt("p").items()}), world.inbox / "a.parquet")
    (world.inbox / "b.csv").write_text("prompt_id,prompt,suite,reference\nc,2 + 2,reasoning_gym,4\n")
    assert {"p", "c"} == set(world.look().new)


def test_an_absent_inbox_is_empty(world):
    """No inbox means that nothing arrived."""
    world.inbox.rmdir()
    assert () == world.look().new


def test_moves_are_told_with_both_pools():
    """A prompt in another pool moved, one in none too; new ones and those that stayed did not."""
    moved = moved_prompts({"a": "policy", "b": "audit", "c": "source"}, {"a": "policy", "b": "ratio", "d": "policy"})
    assert {"b": ("audit", "ratio"), "c": ("source", "none")} == moved
