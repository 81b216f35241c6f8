"""Trains a run in forked children, any of which kills itself outright at a chosen file operation or SQL statement.

One request a line on standard input, one answer a line on standard output, both JSON. Importing torch costs seconds, a
fork does not: so hundreds of moments can be tried. The kill is SIGKILL from inside, right before the operation: nothing
that Python or a library would do at its end is done.
"""

import importlib
import json
import os
import resource
import signal
import sys
from pathlib import Path

from rangeline.config import PipelineConfig
from rangeline.errors import RangelineError
from rangeline.lineage import code_state, environment
from rangeline.orphans import watch_parent
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace

LAZY = ("torch._dynamo", "transformers.models.llama.modeling_llama", "transformers.tokenization_utils_tokenizers")
"""Modules that are imported when a model is loaded."""
_WRITES = os.O_WRONLY | os.O_RDWR


class Moments:
    """Counts the operations that change a run, and kills this process right before the chosen one."""

    def __init__(self, home: Path, kill_at: int | None) -> None:
        self.home, self.kill_at, self.seen = str(home), kill_at, []

    def count(self, name: str) -> None:
        """Take in one operation."""
        if len(self.seen) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.append(name)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """Take in an audit event of the interpreter."""
        if event == "open":
            path, mode, flags = arguments
            if not ((mode and set(str(mode)) & set("wax+")) or int(flags) & _WRITES):
                return
        elif event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
            path = arguments[0]
        else:
            return
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if event in ("os.remove", "os.rmdir") and arguments[1] != -1:
            # Whole folders are deleted by names inside an open folder.
            text = str(Path(f"/proc/self/fd/{arguments[1]}").readlink() / text)
        if text.startswith(self.home):
            self.count(f"{event} {Path(text).relative_to(self.home)}")


def count_statements(moments: Moments) -> None:
    """Count what is asked of a database too: each change, and each end of a transaction."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def before(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            moments.count(f"sql {' '.join(statement.split())[:60]}")

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", lambda connection: moments.count("sql COMMIT"))


def train(request: dict, moments: Moments) -> None:
    """Train up to an iteration, tracked where asked, from wherever the run stands."""
    config = PipelineConfig.model_validate(request["config"])
    with TrainingSession(Workspace(Path(request["root"])), config, run=request["run"]) as session:
        if request.get("tracked"):
            train_tracked(session, moments)
            return
        sys.addaudithook(moments.hear)
        for number in session.remaining:
            iterate(session, number, recalibrate=number in request.get("recalibrate", ()))
            if number == request.get("stop_after"):
                session.stop(number)
                return


def iterate(session: TrainingSession, number: int, *, recalibrate: bool) -> None:
    """Do the calls of one iteration in order."""
    session.sample(number)
    if session.plan.needs_judge:
        session.judge_states(number)
    session.bound(number)
    if session.plan.needs_judge:
        session.cover(number)
    if recalibrate:
        session.recalibrate(number)
    session.update(number)


def train_tracked(session: TrainingSession, moments: Moments) -> None:
    """Train as the flow does, with every record of the tracking store."""
    from tasks.records import end_tracking, record_iteration, register_policy, start_tracking, unrecorded

    count_statements(moments)
    run_id = start_tracking.fn(session)
    for number in unrecorded(session):
        record_iteration.fn(session, number, run_id)
    for number in session.remaining:
        iterate(session, number, recalibrate=False)
        record_iteration.fn(session, number, run_id)
    end_tracking.fn(session, run_id, "FINISHED")
    register_policy.fn(session, run_id, session.config.train.iterations)


def serve(request: dict) -> dict:
    """Do one request in a child; return how the child ended and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            status = work(request, write)
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"ended": ended, **(json.loads(said) if said else {})}


def work(request: dict, write: int) -> int:
    """Train in this process, and say which operations were seen or what went wrong."""
    run = Path(request["root"]) / "runs" / request["run"]
    moments = Moments(run, request.get("kill_at"))
    said, status = {}, 0
    if limit := request.get("max_file_bytes"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        train(request, moments)
    except RangelineError as error:
        said, status = {"error": type(error).__name__, "message": str(error)}, error.exit_code
    with os.fdopen(write, "w") as pipe:
        json.dump({**said, "seen": moments.seen}, pipe)
    return status


def warm_up() -> None:
    """Import and look up here what every child would otherwise spend its first seconds on."""
    for module in LAZY:
        importlib.import_module(module)
    environment()
    code_state()


def main() -> None:
    """Answer requests until standard input ends."""
    watch_parent()
    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        for module in request.get("imports", ()):
            importlib.import_module(module)
        sys.stdout.write(json.dumps(serve(request)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
