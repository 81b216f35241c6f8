"""What tests of real servers share: free ports, a question to a server, and the words of a command as they come."""

import json
import socket
import time
import urllib.error
import urllib.request

import pytest


def free_ports(count):
    """Return ports of loopback that nobody holds."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]
    finally:
        for holder in holders:
            holder.close()


def ask(address, *, body=None, **headers):
    """Return status and text of an answer."""
    named = {"Content-Type": "application/json", **{name.title(): value for name, value in headers.items()}}
    request = urllib.request.Request(address, data=None if body is None else json.dumps(body).encode(), headers=named)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def is_free(port):
    """Tell whether nothing listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def read_until(process, words):
    """Read a command's lines until one holds the words; return all of them."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    pytest.fail(f"ended without '{words}':\n{''.join(lines)}")


def ask_patiently(address, *, body=None, seconds=120):
    """Return the value that a server gives, asked again while it is too busy, as Prefect does."""
    deadline = time.monotonic() + seconds
    while True:
        status, text = ask(address, body=body)
        if status < 300:
            return json.loads(text)
        assert status == 503, text
        assert time.monotonic() < deadline, text
        time.sleep(1)
