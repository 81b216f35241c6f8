"""The part of the command line that serves a model with vLLM."""

from pathlib import Path

import typer

from flows.cli_manners import manner, say, say_object
from rangeline.errors import ConfigError
from tasks.vllm import start_server


def serve_vllm(workspace: Path, model: Path | None, *, port: int, sync_root: Path | None, lora: bool) -> None:
    """Serve a model folder on loopback until it is interrupted; the warmed-up policy where none is named.

    Raises
    ------
    ConfigError
        When there is no such folder.
    """
    folder = (model or workspace / "models" / "warmup" / "policy").resolve()
    if not (folder / "config.json").is_file():
        msg = f"'model' must be a folder with config.json and safetensors weights; got '{folder}'. Name another."
        raise ConfigError(msg)
    root = (sync_root or workspace / ".rangeline" / "vllm-sync").resolve()
    log = workspace.resolve() / ".rangeline" / "vllm.log"
    typer.echo(f"starting vLLM on {folder} (log: {log})", err=True)
    with start_server(folder, root, log=log, port=port, lora=lora) as server:
        if manner().as_json:
            say_object({"vllm": server.url, "model": folder, "sync_root": root})
        say(f"vLLM serves {folder} at {server.url}; new weights are loaded from below {root}")
        say(f"  train with it   rangeline train --engine vllm --set rollout.url={server.url}")
        status = server.wait()
    if status > 0:
        raise typer.Exit(6)
