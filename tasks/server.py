"""A Prefect server of our own for a command that has none: it lives exactly as long as the command does.

Prefect would start one by itself, but that one outlives a killed parent and keeps its port and database open.
"""

import importlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from rangeline.errors import ToolError
from rangeline.orphans import watch_parent

LOOPBACK = ("127.0.0.1", "localhost")
_START_S = 120.0
_LOOK_EVERY_S = 0.2
_STOP_S = 10.0
_RESTARTS = 3


@contextmanager
def prefect_server(meanwhile: str | None = None) -> Iterator[str]:
    """Give the address of a Prefect API while the block runs: the configured one, else a server on loopback.

    A server of our own that is killed meanwhile is started again at the same address: Prefect's client asks again for a
    minute, so the flow goes on. Must come before prefect is imported, since its settings are read then.

    Parameters
    ----------
    meanwhile
        Module that is imported while the server starts, which takes seconds, as does importing torch and prefect.

    Raises
    ------
    ToolError
        When the server does not answer in time, or ends for good while the block runs.
    """
    if address := os.environ.get("PREFECT_API_URL"):
        with _told_when_gone(address):
            yield address
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/api"
    own = _OwnServer(port)
    try:
        os.environ["PREFECT_API_URL"] = address
        if meanwhile is not None:
            importlib.import_module(meanwhile)
        _wait(own.process, address)
        own.watch()
        with _told_when_gone(address):
            yield address
    finally:
        os.environ.pop("PREFECT_API_URL", None)
        own.end()


@contextmanager
def _told_when_gone(address: str) -> Iterator[None]:
    """Turn what Prefect's client says of a server that does not answer any more into one error of ours."""
    import httpx

    try:
        yield
    except httpx.TransportError as error:
        msg = (
            f"The Prefect server must answer as long as the command runs; got '{error}' ({address}). Start it again, "
            "and give the same command: it goes on from what is complete."
        )
        raise ToolError(msg) from error


class _OwnServer:
    """A server process, and the thread that starts it again when somebody else ends it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ending = threading.Event()
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        # In a session of its own: Ctrl-C asks the command to stop, which needs its server until it has.
        return subprocess.Popen(
            [sys.executable, "-m", "tasks.server", str(self._port)],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PREFECT_UI_ENABLED": "0"},
            start_new_session=True,
        )

    def watch(self) -> None:
        """Begin to look after the server."""
        threading.Thread(target=self._keep, name="keep-prefect-server", daemon=True).start()

    def _keep(self) -> None:
        for _ in range(_RESTARTS):
            self.process.wait()
            if self._ending.is_set():
                return
            logging.getLogger("rangeline").warning("the Prefect server was ended; it is started again")
            self.process = self._start()
            if self._ending.is_set():
                self.process.kill()

    def end(self) -> None:
        """End the server."""
        self._ending.set()
        server = self.process
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


class OwnOrigin:
    """Refuse what a page of another origin sends: a browser says so in every request that could change something.

    Prefect's own setting only keeps the answer from such a page; the request would have been done.
    """

    def __init__(self, app: Any, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on what names no origin or one of ours; answer 403 to all else."""
        found = [value for name, value in scope.get("headers", ()) if name == b"origin"]
        if self._origins.issuperset(found):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"Foreign origin."})


def own_origins(port: int) -> list[str]:
    """Return the origins of pages that a server on loopback serves itself."""
    return [f"http://{host}:{port}" for host in LOOPBACK]


def main(port: int) -> None:
    """Serve the Prefect API on loopback, to its own host name and pages alone, until the parent is gone."""
    watch_parent()
    import uvicorn
    from prefect.server.api.server import create_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    # A page whose name was turned to loopback's address still sends its own name.
    app = TrustedHostMiddleware(OwnOrigin(create_app(), own_origins(port)), allowed_hosts=list(LOOPBACK))
    uvicorn.run(app, host=LOOPBACK[0], port=port, log_level="critical")


if __name__ == "__main__":
    main(int(sys.argv[1]))
