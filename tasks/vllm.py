"""Start a vLLM server for a person; no Prefect inside."""

from pathlib import Path

from rangeline.rollout.vllm_server import ServerOptions, VllmServer


def start_server(model: Path, sync_root: Path, *, log: Path, port: int, lora: bool = False) -> VllmServer:
    """Start a server on loopback and wait until it answers.

    Raises
    ------
    ConfigError
        When vLLM's environment is not there.
    RolloutError
        When the server does not start.
    """
    return VllmServer.start(ServerOptions(model=model, sync_root=sync_root, port=port, lora=lora), log=log)
