"""Laws of data versioning, on real git and dvc repositories of two tiny stages."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rangeline.errors import BadInputError, ToolError
from tasks.versioning import (
    cached_original,
    ensure_repository,
    locked_outputs,
    locked_stages,
    original_of,
    push,
    refresh_imports,
    reproduce,
    status,
)

DVC_YAML = """
stages:
  one:
    cmd: python one.py
    deps: [one.py]
    params: [word]
    outs: [one.txt]
  two:
    cmd: python two.py
    deps: [two.py, one.txt]
    outs: [folder]
"""
ONE = """
import pathlib, time
time.sleep(0.3)
word = pathlib.Path('params.yaml').read_text().split(': ')[1].strip()
pathlib.Path('one.txt').write_text(word)
with open('ran.log', 'a') as log: log.write('one ')
"""
TWO = """
import pathlib
pathlib.Path('folder/inner').mkdir(parents=True, exist_ok=True)
pathlib.Path('folder/inner/a.txt').write_text(pathlib.Path('one.txt').read_text() * 2)
pathlib.Path('folder/b.txt').write_text('b')
with open('ran.log', 'a') as log: log.write('two ')
"""


def fill(workspace, word="x"):
    """Write the two stages into a workspace."""
    files = {"dvc.yaml": DVC_YAML, "one.py": ONE, "two.py": TWO, "params.yaml": f"word: {word}\n"}
    for name, text in files.items():
        (workspace / name).write_text(text)


def ran(workspace):
    """Return which stages ran since the last look."""
    log = workspace / "ran.log"
    text = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    return text.split()


def ignore(_line):
    """Drop a line."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a reproduced workspace `work` and its remote."""
    home = tmp_path_factory.mktemp("versioned")
    workspace = home / "work"
    workspace.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    fill(workspace)
    ensure_repository(workspace, home / "remote")
    reproduce(workspace, [], on_line=ignore)
    return home


@pytest.fixture
def workspace(made, tmp_path):
    """Return a copy of the reproduced workspace, its run log emptied."""
    shutil.copytree(made / "work", tmp_path / "work")
    assert ran(tmp_path / "work") == ["one", "two"]
    return tmp_path / "work"


def test_repository_is_made_once_and_names_no_local_folder_in_git(tmp_path):
    """A second call changes nothing, and the committed configuration holds no path of this machine."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    root = ensure_repository(tmp_path / "sub" / "work", tmp_path / "remote")
    assert root == tmp_path / "sub" / "work"
    before = {path: path.read_text() for path in (root / ".dvc").glob("config*")}
    assert root == ensure_repository(root, tmp_path / "other")
    assert before == {path: path.read_text() for path in (root / ".dvc").glob("config*")}
    assert str(tmp_path / "remote") in (root / ".dvc" / "config.local").read_text()
    assert "remote" not in (root / ".dvc" / "config").read_text()


def test_repository_without_git(tmp_path):
    """Where there is no git, dvc works alone."""
    root = ensure_repository(tmp_path / "work", tmp_path / "remote")
    fill(root)
    assert status(root).keys() == {"one", "two"}
    assert not (root / ".git").exists()


def test_repository_above_and_its_chosen_remote_are_kept(tmp_path):
    """A folder inside a repository makes none, and a remote that a team chose stays the default."""
    root = ensure_repository(tmp_path / "work", tmp_path / "first")
    (root / ".dvc" / "config.local").unlink()
    (root / ".dvc" / "config").write_text("[core]\n    remote = team\n['remote \"team\"']\n    url = s3://bucket\n")
    assert root == ensure_repository(root / "deep" / "er", tmp_path / "second")
    assert not (root / ".dvc" / "config.local").exists()
    assert not (tmp_path / "second").exists()


def test_outside_a_repository_is_refused(tmp_path):
    """Without a repository the refusal says how to make one."""
    with pytest.raises(BadInputError, match=r"must lie in a dvc repository; got .*ensure_repository"):
        status(tmp_path)


def test_second_reproduce_runs_nothing_and_status_is_clean(workspace):
    """What is up to date is not run again."""
    assert status(workspace) == {}
    lines = []
    reproduce(workspace, ["two"], on_line=lines.append)
    assert ran(workspace) == []
    assert any("didn't change" in line for line in lines)


def test_changed_parameter_reruns_and_changing_back_restores(workspace):
    """A changed setting runs what depends on it; the old setting comes back from the run cache; force runs all."""
    (workspace / "params.yaml").write_text("word: z\n")
    assert "one" in status(workspace)
    reproduce(workspace, [], on_line=ignore)
    assert (ran(workspace), (workspace / "folder/inner/a.txt").read_text()) == (["one", "two"], "zz")
    (workspace / "params.yaml").write_text("word: x\n")
    reproduce(workspace, [], on_line=ignore)
    assert (ran(workspace), (workspace / "folder/inner/a.txt").read_text()) == ([], "xx")
    reproduce(workspace, [], on_line=ignore, force=True)
    assert ran(workspace) == ["one", "two"]


def test_failing_stage_tells_its_last_lines(workspace):
    """The message of a failed stage holds what the stage said."""
    (workspace / "two.py").write_text("raise SystemExit('pool 3 is empty')")
    lines = []
    with pytest.raises(ToolError, match=r"(?s)must exit with 0.*pool 3 is empty"):
        reproduce(workspace, [], on_line=lines.append)
    assert any("pool 3 is empty" in line for line in lines)


def test_two_reproduce_at_once_both_succeed(workspace):
    """The second waits for the first, even while a stage's command runs, and finds nothing left to do."""
    (workspace / "params.yaml").write_text("word: q\n")
    code = f"import pathlib, tasks.versioning as v; v.reproduce(pathlib.Path({str(workspace)!r}), [], on_line=print)"
    other = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL)
    errors = []

    def here():
        try:
            reproduce(workspace, [], on_line=ignore)
        except ToolError as error:
            errors.append(error)

    thread = threading.Thread(target=here)
    thread.start()
    thread.join()
    assert (other.wait(), errors) == (0, [])
    assert ran(workspace) == ["one", "two"]


def test_locked_outputs_are_those_of_the_lock_file(workspace, tmp_path):
    """Every output has its digest, a folder's ends in `.dir`, and no lock file means no outputs."""
    locked = locked_outputs(workspace)
    assert {"one.txt", "folder"} == set(locked)
    assert locked["folder"].endswith(".dir")
    assert locked_outputs(tmp_path) == {}
    assert ("one", "two") == locked_stages(workspace)
    assert () == locked_stages(tmp_path)


def test_originals_survive_the_corruption_of_working_files(workspace):
    """The bytes of a stage output, alone or inside a folder, are found after the working file was changed."""
    for name in ("one.txt", "folder/inner/a.txt"):
        (workspace / name).write_text("corrupted")
    assert (
        original_of(workspace, "one.txt").read_text(),
        original_of(workspace, "folder/inner/a.txt").read_text(),
    ) == (
        "x",
        "xx",
    )
    assert status(workspace)


def test_originals_of_added_files(workspace):
    """A file put under version control by `dvc add`, alone or inside a folder, is found too."""
    (workspace / "more").mkdir()
    (workspace / "more" / "c.txt").write_text("c")
    (workspace / "d.txt").write_text("d")
    subprocess.run([sys.executable, "-m", "dvc", "add", "-q", "more", "d.txt"], cwd=workspace, check=True)
    (workspace / "d.txt").write_text("corrupted")
    assert original_of(workspace, "d.txt").read_text() == "d"
    assert original_of(workspace, "more/c.txt").read_text() == "c"


def test_what_is_untracked_or_damaged_has_no_original(workspace):
    """An untracked file, a file absent from its folder's list and a damaged cache file give None."""
    assert original_of(workspace, "one.py") is None
    assert original_of(workspace, "folder/absent.txt") is None
    assert cached_original(workspace, "0" * 32) is None
    original = original_of(workspace, "one.txt")
    original.chmod(0o644)
    original.write_text("damaged")
    assert original_of(workspace, "one.txt") is None


def test_push_fills_the_remote(workspace, made):
    """Pushed outputs lie in the remote under their digests."""
    push(workspace)
    md5 = locked_outputs(workspace)["one.txt"]
    assert (made / "remote" / "files" / "md5" / md5[:2] / md5[2:]).read_text() == "x"


def test_folder_list_of_the_cache_is_json(workspace):
    """The list of a tracked folder names each file once, relative to the folder."""
    listing = cached_original(workspace, locked_outputs(workspace)["folder"])
    assert sorted(entry["relpath"] for entry in json.loads(listing.read_text())) == ["b.txt", "inner/a.txt"]


def test_data_of_remotes_is_brought_up_to_date(made, tmp_path):
    """An import follows its source, an added file that is gone is pulled, and what did not change is not told."""
    root = ensure_repository(tmp_path / "work", made / "remote")
    inbox, source = root / "inbox", tmp_path / "producer.jsonl"
    inbox.mkdir()
    source.write_text("one\n")
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "import-url", "-q", str(source), "inbox/rows.jsonl"], cwd=root, check=True)
    (inbox / "own.jsonl").write_text("own\n")
    subprocess.run([*dvc, "add", "-q", "inbox/own.jsonl"], cwd=root, check=True)
    push(root)
    assert () == refresh_imports(root, (inbox, inbox))
    source.write_text("one\ntwo\n")
    (inbox / "own.jsonl").unlink()
    assert {"inbox/rows.jsonl.dvc", "inbox/own.jsonl.dvc"} == set(refresh_imports(root, (inbox,)))
    assert ("one\ntwo\n", "own\n") == ((inbox / "rows.jsonl").read_text(), (inbox / "own.jsonl").read_text())
    assert () == refresh_imports(root, (tmp_path / "absent",))
