"""Messages between a run and the processes of its policy: one JSON text and the arrays that it names.

A message is the length of its text, the length of its arrays, the text, and the arrays in safetensors' form.
There is no formula here and nothing is divided.
Pickles are left out: a message can hold nothing but numbers, texts, lists, maps and arrays.
"""

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

_LENGTHS = struct.Struct(">QQ")
_ARRAY = "@array"


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Write one message.

    Parameters
    ----------
    connection
        Stream to the other side.
    message
        JSON values, records, paths and arrays, nested in any way.

    Raises
    ------
    OSError
        When the other side is gone.
    """
    arrays: dict[str, Any] = {}
    text = json.dumps(_plain(message, arrays)).encode()
    blob = save(arrays) if arrays else b""
    connection.sendall(_LENGTHS.pack(len(text), len(blob)) + text + blob)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Read one message, waiting for it.

    Raises
    ------
    EOFError
        When the other side is gone.
    """
    text_length, blob_length = _LENGTHS.unpack(_exactly(connection, _LENGTHS.size))
    text, blob = _exactly(connection, text_length), _exactly(connection, blob_length)
    arrays = load(bytes(blob)) if blob_length else {}

    def restore(value: dict[str, Any]) -> Any:
        return arrays[value[_ARRAY]] if _ARRAY in value else value

    message: dict[str, Any] = json.loads(text, object_hook=restore)
    return message


def _exactly(connection: socket.socket, size: int) -> bytearray:
    found = bytearray()
    while len(found) < size:
        try:
            part = connection.recv(min(size - len(found), 1 << 20))
        except ConnectionError as error:
            raise EOFError from error
        if not part:
            raise EOFError
        found += part
    return found


def _plain(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.ascontiguousarray(value)
        return {_ARRAY: name}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, arrays) for item in value]
    return str(value) if isinstance(value, Path) else value
