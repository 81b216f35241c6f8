"""Laws of child processes: order, exit status, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from rangeline.errors import ToolError
from rangeline.orphans import ORPHAN_EXIT
from tasks.processes import TELEMETRY_OFF, file_lock, require_success, run_streaming

ROOT = Path(__file__).parents[2]


def python(code):
    """Return a command that runs a piece of Python."""
    return [sys.executable, "-c", textwrap.dedent(code)]


def is_running(pid):
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds=10.0):
    """Wait for a condition and return whether it came true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_lines_of_both_streams_arrive_in_the_order_written(tmp_path):
    """Stdout and stderr share one pipe, so their order is the order of writing."""
    lines = []
    status = run_streaming(
        python("import sys\nfor i in range(3):\n print('out', i)\n print('err', i, file=sys.stderr)"),
        cwd=tmp_path,
        on_line=lines.append,
    )
    assert status == 0
    assert lines == ["out 0", "err 0", "out 1", "err 1", "out 2", "err 2"]


def test_carriage_returns_and_unfinished_lines_are_lines_too(tmp_path):
    """A progress bar gives a line at each carriage return, and the last line needs no end."""
    lines = []
    code = r"import sys; sys.stdout.buffer.write('10%\r20%\r\nfé\n\nend'.encode())"
    assert run_streaming(python(code), cwd=tmp_path, on_line=lines.append) == 0
    assert lines == ["10%", "20%", "fé", "", "end"]


def test_lines_are_handed_over_while_the_child_runs(tmp_path):
    """The first line is seen long before the child ends."""
    times = []
    run_streaming(
        python("import time\nprint('a'); time.sleep(0.6); print('b')"),
        cwd=tmp_path,
        on_line=lambda _line: times.append(time.monotonic()),
    )
    assert times[1] - times[0] > 0.3


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_exit_status_is_that_of_the_child(tmp_path, code, status):
    """A plain exit gives its number and a signal gives minus its number."""
    assert status == run_streaming(python(code), cwd=tmp_path, on_line=lambda _line: None)


def test_failure_carries_the_last_fifteen_lines(tmp_path):
    """The message of a failed command ends with its last 15 lines and leaves out earlier ones."""
    with pytest.raises(ToolError, match=r"must exit with 0; got 3") as caught:
        require_success(python("for i in range(20): print('line', i)\nraise SystemExit(3)"), cwd=tmp_path)
    assert [f"line {i}" for i in range(5, 20)] == str(caught.value).splitlines()[-15:]


def test_unknown_program_is_refused_by_name(tmp_path):
    """A program that does not exist is a tool error that names it."""
    with pytest.raises(ToolError, match=r"'no-such-program' must be a program"):
        require_success(["no-such-program"], cwd=tmp_path)


def test_timeout_ends_the_whole_group(tmp_path):
    """A child past its time is gone, and so is the child of that child."""
    pids = []
    code = "import subprocess, time\nprint(subprocess.Popen(['sleep', '60']).pid); time.sleep(60)"
    with pytest.raises(ToolError, match=r"must end within 0.5 s"):
        run_streaming(python(code), cwd=tmp_path, on_line=lambda line: pids.append(int(line)), timeout_s=0.5)
    assert wait_until(lambda: not is_running(pids[0]))


def test_forgotten_grandchild_neither_blocks_nor_survives(tmp_path):
    """A grandchild that holds the pipe open is ended when its parent has ended."""
    pids = []
    begin = time.monotonic()
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    assert run_streaming(python(code), cwd=tmp_path, on_line=lambda line: pids.append(int(line))) == 0
    assert time.monotonic() - begin < 20
    assert wait_until(lambda: not is_running(pids[0]))


def test_error_in_the_callback_ends_the_child_and_propagates(tmp_path):
    """An interrupt while streaming passes on after the child was ended."""
    pids = []

    def interrupt(line):
        pids.append(int(line))
        raise KeyboardInterrupt

    code = "import os, time; print(os.getpid()); time.sleep(60)"
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        run_streaming(python(code), cwd=tmp_path, on_line=interrupt)
    assert not is_running(pids[0])


def test_killed_parent_takes_child_and_grandchild_along(tmp_path):
    """After kill -9 of the launcher neither its child nor a watching grandchild lives on."""
    grandchild = "from rangeline.orphans import watch_parent; watch_parent(0.1); import time; time.sleep(60)"
    child = f"""
        import os, subprocess, sys, time
        family = subprocess.Popen([sys.executable, '-c', {grandchild!r}])
        time.sleep(1)
        print(os.getpid(), family.pid)
        time.sleep(60)
    """
    launcher = f"""
        from pathlib import Path
        import sys
        from tasks.processes import run_streaming
        run_streaming([sys.executable, '-c', {textwrap.dedent(child)!r}], cwd=Path({str(ROOT)!r}),
            on_line=lambda line: print(line, flush=True))
    """
    with subprocess.Popen(python(launcher), cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert [is_running(pid) for pid in pids] == [True, True]
        os.kill(parent.pid, signal.SIGKILL)
    assert wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_watcher_exits_with_its_own_status():
    """A command whose parent is gone ends with the orphan status."""
    reaper = f"""
        import ctypes, os, time
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                from rangeline.orphans import watch_parent
                watch_parent(0.05)
                time.sleep(30)
            time.sleep(1)
            os._exit(0)
        os.waitpid(middle, 0)
        _, status = os.wait()
        raise SystemExit(0 if os.waitstatus_to_exitcode(status) == {ORPHAN_EXIT} else 1)
    """
    assert subprocess.run(python(reaper), cwd=ROOT, check=False, timeout=20).returncode == 0


def test_children_never_report_home_and_find_this_python(tmp_path):
    """Telemetry is off in every child, given variables arrive, and `python` is this interpreter's folder."""
    lines = []
    names = [*TELEMETRY_OFF, "GIVEN"]
    code = f"import os; [print(os.environ[n]) for n in {names}]; print(os.environ['PATH'].split(os.pathsep)[0])"
    run_streaming(python(code), cwd=tmp_path, env={"GIVEN": "1", "DO_NOT_TRACK": "false"}, on_line=lines.append)
    assert [*TELEMETRY_OFF.values(), "1", str(Path(sys.executable).parent)] == lines


def test_file_lock_lets_one_holder_in_at_a_time(tmp_path):
    """A second holder enters only after the first has left."""
    events = []
    entered = threading.Event()

    def second():
        entered.wait()
        with file_lock(tmp_path / "locks" / "one"):
            events.append("second in")

    thread = threading.Thread(target=second)
    thread.start()
    with file_lock(tmp_path / "locks" / "one"):
        entered.set()
        time.sleep(0.2)
        events.append("first out")
    thread.join()
    assert events == ["first out", "second in"]
