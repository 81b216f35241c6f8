"""A Prefect server of our own for a command that has none: it lives exactly as long as the command does.

Prefect would start one by itself, but that one outlives a killed parent and keeps its port and database open.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from rangeline.errors import ToolError
from rangeline.orphans import watch_parent

_START_S = 120.0
_LOOK_EVERY_S = 0.2
_STOP_S = 10.0


@contextmanager
def prefect_server() -> Iterator[str]:
    """Give the address of a Prefect API while the block runs: the configured one, else a server on loopback.

    Must come before prefect is imported, since its settings are read then.

    Raises
    ------
    ToolError
        When the server does not answer in time, or ends.
    """
    if address := os.environ.get("PREFECT_API_URL"):
        yield address
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    environ = {**os.environ, "PREFECT_UI_ENABLED": "0"}
    command = [sys.executable, "-m", "tasks.server", str(port)]
    # In a session of its own: Ctrl-C asks the command to stop, which needs its server until it has.
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environ, start_new_session=True)
    try:
        _wait(server, address)
        os.environ["PREFECT_API_URL"] = address
        yield address
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        server.terminate()
        try:
            server.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(server: "subprocess.Popen[bytes]", address: str) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            msg = (
                f"The Prefect server must start; it ended with status {server.returncode}. Run 'prefect server start'."
            )
            raise ToolError(msg)
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_LOOK_EVERY_S)
    msg = (
        f"The Prefect server must answer within {_START_S:.0f} s; got nothing at {address}. Run 'prefect server start'."
    )
    raise ToolError(msg)


def serve_page(command: list[str], address: str) -> int:
    """Run a Prefect server of a given command until it ends, and make the automations once it answers.

    Raises
    ------
    ToolError
        When the server does not answer in time, or ends at once.
    """
    server = subprocess.Popen(command)
    try:
        _wait(server, address)
        environ = {**os.environ, "PREFECT_API_URL": address}
        # A child, since prefect reads its settings when it is imported.
        subprocess.run([sys.executable, "-m", "tasks.automations"], env=environ, check=False)
        return server.wait()
    except KeyboardInterrupt:
        return server.wait(_STOP_S)
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait(_STOP_S)


def main(port: int) -> None:
    """Serve the Prefect API on loopback until the parent is gone or asks to end."""
    watch_parent()
    import uvicorn

    uvicorn.run("prefect.server.api.server:create_app", factory=True, host="127.0.0.1", port=port, log_level="critical")


if __name__ == "__main__":
    main(int(sys.argv[1]))
