"""Send the policy's weights to a vLLM server from GPU to GPU, with vLLM's own sender: NCCL or CUDA IPC.

WRITTEN FOR GPUS AND NOT RUN: where this was made there was no GPU. What is shared with the checkpoint route, pausing,
naming, forgetting and the proof by log-probabilities, is run and tested; the transfer itself is read off vLLM's code.
NCCL broadcasts to a server on other GPUs; IPC shares memory on the same GPU, over handles that the server unpickles,
which it does only when it was started with VLLM_ALLOW_INSECURE_SERIALIZATION=1. Both need vLLM in this environment too.
Formulas there are none and nothing is divided.
"""

import socket
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import urlsplit

import torch

from rangeline.errors import WeightSyncError
from rangeline.rollout.vllm_client import VllmClient

Backend = Literal["nccl", "ipc"]
_MODULES = "vllm.distributed.weight_transfer"


def open_transfer(client: VllmClient, model: Any, backend: Backend) -> Callable[[], None]:
    """Connect to the server once, and return what sends the model's present weights each time it is called.

    Parameters
    ----------
    client
        A server that was started with this backend.
    model
        The policy, on a GPU.
    backend
        nccl or ipc.

    Raises
    ------
    WeightSyncError
        When there is no GPU or no vLLM in this environment.
    """
    if not torch.cuda.is_available() or find_spec("vllm") is None:
        lacking = "a GPU" if not torch.cuda.is_available() else "vLLM in this environment"
        msg = f"'rollout.transfer' {backend} needs {lacking}; got none. Set rollout.transfer=checkpoint."
        raise WeightSyncError(msg, state="unusable")
    base, clients = import_module(f"{_MODULES}.base"), import_module(f"{_MODULES}.clients")
    engines = import_module(f"{_MODULES}.{backend}_engine")
    shared = {
        "client": clients.HTTPVLLMWeightSyncClient(client.url),
        "source": base.ModuleSource(model),
    }
    if backend == "ipc":
        sender = engines.IPCTrainerWeightTransferEngine.trainer_init(engines.IPCTrainerInitInfo(rank=0), **shared)
    else:
        world = int(client.get("/get_world_size", where="world size")["world_size"])
        info = engines.NCCLTrainerInitInfo(
            master_address=_own_address(client.url), master_port=_free_port(), world_size=world + 1, rank=0
        )
        sender = engines.NCCLTrainerWeightTransferEngine.trainer_init(info, **shared)
    send: Callable[[], None] = sender.send_weights
    return send


def _own_address(url: str) -> str:
    """Return the address under which the server's machine reaches this one."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "127.0.0.1", parts.port or 80))
        return str(probe.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])
