"""One of several processes of a policy: `python -m rangeline.policy.rank`, started by `policy.processes`.

It holds a `PolicyWorker` and takes the calls that the run sends to all processes alike; it computes nothing itself.
There is no formula here and nothing is divided.
It ends with its launcher, with the run, and with the first error that is not one of ours.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rangeline.errors import RangelineError
from rangeline.orphans import ORPHAN_EXIT, watch_parent
from rangeline.policy.adapter import LoraSettings
from rangeline.policy.batch import PolicyBatch, TaughtRow
from rangeline.policy.messages import receive, send
from rangeline.policy.settings import UpdateSettings
from rangeline.policy.supervised import SupervisedRow
from rangeline.policy.worker import Placement, PolicyWorker
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt

SOCKET = "RANGELINE_POLICY_SOCKET"
"""Variable that names the socket of the run."""


def main() -> int:
    """Take calls until the run closes the policy; return the exit status."""
    watch_parent()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        send(connection, {"rank": int(os.environ["RANK"]), "pid": os.getpid()})
        try:
            return _serve(connection)
        except EOFError:
            # The run is gone: whatever this process still holds is of no use to anyone.
            os._exit(ORPHAN_EXIT)


def _serve(connection: socket.socket) -> int:
    worker: PolicyWorker | None = None
    while True:
        message = receive(connection)
        name = message.pop("call")
        if name == "close":
            if worker is not None:
                worker.close()
            send(connection, {"value": None})
            return 0

        def tell(done: int, total: int) -> None:
            send(connection, {"progress": [done, total]})

        try:
            if worker is None:
                worker = _load(message)
                value: Any = None
            else:
                value = _CALLS[name](worker, message, tell)
        except RangelineError as error:
            send(connection, {"error": type(error).__name__, "message": str(error)})
        else:
            send(connection, {"value": value, "policy_version": worker.policy_version})


def _load(message: Mapping[str, Any]) -> PolicyWorker:
    placement = dict(message["placement"])
    lora = placement.pop("lora")
    if lora is not None:
        lora = LoraSettings(**{**lora, "targets": tuple(lora["targets"])})
    settings = {**message["settings"], "betas": tuple(message["settings"]["betas"])}
    return PolicyWorker.load(
        message["name"],
        settings=UpdateSettings(**settings),
        cache_dir=Path(message["cache_dir"]),
        placement=Placement(**placement, lora=lora),
        **message["options"],
    )


def _generate(worker: PolicyWorker, message: Mapping[str, Any], tell: Callable[[int, int], None]) -> Any:
    prompts = [EncodedPrompt(prompt_id=name, token_ids=tuple(ids)) for name, ids in message["prompts"]]
    if not prompts:
        return None
    return worker.generate(
        prompts,
        SamplingPlan(**message["plan"]),
        iteration=message["iteration"],
        purpose=message["purpose"],
        progress=tell,
    )


def _update(worker: PolicyWorker, message: Mapping[str, Any], _: object) -> Any:
    batch = dict(message["batch"])
    for name in ("prompt_id_B", "sample_B"):
        batch[name] = tuple(batch[name])
    batch["taught"] = tuple(
        TaughtRow(**{**row, "prompt_ids": tuple(row["prompt_ids"]), "target_ids": tuple(row["target_ids"])})
        for row in batch["taught"]
    )
    return worker.update(PolicyBatch(**batch))


def _supervised_step(worker: PolicyWorker, message: Mapping[str, Any], _: object) -> Any:
    rows = [
        SupervisedRow(prompt_ids=tuple(row["prompt_ids"]), target_ids=tuple(row["target_ids"]))
        for row in message["rows"]
    ]
    return worker.supervised_step(rows, learning_rate=message["learning_rate"])


def _save(worker: PolicyWorker, message: Mapping[str, Any], _: object) -> None:
    worker.save(Path(message["folder"]), message["state"])


def _restore(worker: PolicyWorker, message: Mapping[str, Any], _: object) -> Any:
    return worker.restore(Path(message["folder"]))


def _export(worker: PolicyWorker, message: Mapping[str, Any], _: object) -> None:
    worker.export_weights(Path(message["path"]))


_CALLS: Mapping[str, Callable[[PolicyWorker, Mapping[str, Any], Callable[[int, int], None]], Any]] = {
    "generate": _generate,
    "update": _update,
    "supervised_step": _supervised_step,
    "save": _save,
    "restore": _restore,
    "export": _export,
}


if __name__ == "__main__":
    sys.exit(main())
