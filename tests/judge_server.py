"""A real HTTP server on this machine that speaks the OpenAI API from a script, with all the ways to go wrong."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "scripted"


def chat(content, *, finish_reason="stop", usage=(40, 5), **message):
    """Return the body of a chat completion."""
    body = {
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ]
    }
    if usage:
        body["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return body


def models(owner="someone", **facts):
    """Return the body of the list of models."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": owner, **facts}]}


class Script:
    """What the server says: `reply` is called with (path, body, number of the call to that path)."""

    def __init__(self, reply, *, owner="someone", **facts):
        self.reply = reply
        self.models = models(owner, **facts)
        self.calls = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()

    def bodies(self, path):
        """Return the bodies sent to a path."""
        return [body for called, body, _ in self.calls if called == path]

    def answer(self, path, body, headers):
        """Return status, headers, payload and a pause between its two halves."""
        with self.lock:
            self.calls.append((path, body, headers))
            number = len(self.bodies(path))
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        try:
            given = self.models if path == "/v1/models" and self.models is not None else self.reply(path, body, number)
            if isinstance(given, dict):
                given = (200, {}, given, 0.0)
            return given
        finally:
            with self.lock:
                self.busy -= 1


@contextmanager
def serve(script):
    """Serve a script on a free port of this machine; give the base address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *parts):
            pass

        def do_GET(self):
            self.respond(None)

        def do_POST(self):
            self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def respond(self, body):
            status, headers, payload, pause = script.answer(self.path, body, dict(self.headers))
            content = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
            # Else the server's own date would stand beside the script's.
            (self.send_response_only if "Date" in headers else self.send_response)(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            half = len(content) // 2
            try:
                self.wfile.write(content[:half])
                self.wfile.flush()
                time.sleep(pause)
                self.wfile.write(content[half:])
            except OSError:
                pass  # the caller has gone

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
