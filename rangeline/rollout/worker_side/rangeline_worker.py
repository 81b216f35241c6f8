"""What the vLLM server's workers add for Rangeline: load a checkpoint whole or not at all, and say what they are.

Runs inside the server (`--worker-extension-cls rangeline_worker.RangelineWorker`), in an environment without Rangeline.
vLLM's own reload changes layers one by one and is not rolled back, so everything that can be checked is checked before
the first tensor is read: the folder lies under the root that the server was started with, its marker lists every file
with its size, and names and shapes are those of the model that the server began with, none missing and none new.
Formulas there are none and nothing is divided.
"""

import json
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARKER = "COMPLETE"
"""Last file of a complete checkpoint: JSON with the size of every other file."""
ROOT_VARIABLE = "RANGELINE_SYNC_ROOT"
"""Environment variable of the only folder that checkpoints are loaded from."""
_INDEX = "model.safetensors.index.json"
_MAX_HEADER = 100_000_000


class CheckpointRefusedError(ValueError):
    """A checkpoint that must not be loaded; nothing was changed."""


class RangelineWorker:
    """Mixed into vLLM's worker: its methods are called through `/collective_rpc`."""

    def rangeline_describe(self) -> dict[str, Any]:
        """Say what this worker holds, and from now on end it when the server is gone."""
        worker: Any = self
        _watch_parent_once()
        self._rangeline_first_shapes()
        return {
            "device": str(worker.device.type),
            "model": str(worker.model_config.model),
            "root": os.environ.get(ROOT_VARIABLE, ""),
            "logprobs_mode": str(worker.model_config.logprobs_mode),
            "block_size": int(worker.cache_config.block_size),
            "lora": worker.vllm_config.lora_config is not None,
        }

    def rangeline_check(self, shapes: dict[str, list[int]]) -> dict[str, Any]:
        """Say whether these tensors are those of the model that the server began with; nothing is changed."""
        try:
            new = {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
            require_same_tensors(new, self._rangeline_first_shapes())
        except (CheckpointRefusedError, OSError) as error:
            return {"state": "refused", "reason": str(error)}
        return {"state": "same", "reason": ""}

    def rangeline_load(self, folder: str) -> dict[str, Any]:
        """Load a complete checkpoint; `state` is loaded, or refused when nothing was changed.

        Whatever the load itself raises goes to the caller: layers may be half new, and only another load mends them.
        """
        worker: Any = self
        try:
            files = checked_files(Path(folder), root=os.environ.get(ROOT_VARIABLE, ""))
            require_same_tensors(shapes_of(files), self._rangeline_first_shapes())
        except (CheckpointRefusedError, OSError) as error:
            return {"state": "refused", "reason": str(error)}
        worker.reload_weights(weights_iterator=_tensors(files))
        if worker.device.type == "cpu":
            _pack_again(worker.model_runner.get_model())
        return {"state": "loaded", "reason": "", "files": len(files)}

    def _rangeline_first_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the model that the server began with; a stock reload forgets its folder."""
        worker: Any = self
        if not hasattr(worker, "rangeline_first"):
            worker.rangeline_first = shapes_of(weight_files(Path(worker.model_config.model)))
        return dict(worker.rangeline_first)


def checked_files(folder: Path, *, root: str) -> list[Path]:
    """Return the weight files of a complete checkpoint under the root.

    Raises
    ------
    CheckpointRefusedError
        When the root is not set, the folder lies outside it or is not complete, or an indexed file is absent.
    """
    if not root:
        msg = f"{ROOT_VARIABLE} must be set where the server is started; got nothing."
        raise CheckpointRefusedError(msg)
    real, real_root = folder.resolve(), Path(root).resolve()
    if real == real_root or not real.is_relative_to(real_root):
        msg = f"'{folder}' must lie below '{real_root}'; got '{real}'."
        raise CheckpointRefusedError(msg)
    try:
        listed = json.loads((real / MARKER).read_text(encoding="utf-8"))["files"]
        sizes = {str(name): int(facts["size"]) for name, facts in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"'{real / MARKER}' must list the files of a complete checkpoint; got {type(error).__name__}: {error}."
        raise CheckpointRefusedError(msg) from error
    for name, size in sizes.items():
        path = (real / name).resolve()
        if not path.is_relative_to(real) or not path.is_file() or path.stat().st_size != size:
            found = path.stat().st_size if path.is_file() else "no file"
            msg = f"'{real / name}' must have {size} bytes; got {found}."
            raise CheckpointRefusedError(msg)
    files = weight_files(real)
    unlisted = [path.name for path in files if path.name not in sizes]
    if unlisted:
        msg = f"'{real / MARKER}' must list every weight file; got none for {unlisted}."
        raise CheckpointRefusedError(msg)
    return files


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder: those of its index, else all.

    Raises
    ------
    CheckpointRefusedError
        When an indexed file is absent, or there is none.
    """
    index = folder / _INDEX
    if index.is_file():
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    absent = [path.name for path in files if not path.is_file()]
    if absent or not files:
        msg = f"'{folder}' must hold its safetensors files; got none of {absent or ['model.safetensors']}."
        raise CheckpointRefusedError(msg)
    return files


def shapes_of(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor, from the headers alone.

    Raises
    ------
    CheckpointRefusedError
        When a header is damaged, a file is shorter than its header says, or a name stands in two files.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(length, _MAX_HEADER)))
            header.pop("__metadata__", None)
            end = max((item["data_offsets"][1] for item in header.values()), default=0)
            found = {name: tuple(int(n) for n in item["shape"]) for name, item in header.items()}
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"'{path}' must be a safetensors file; got {type(error).__name__}: {error}."
            raise CheckpointRefusedError(msg) from error
        if path.stat().st_size != 8 + length + end:
            msg = f"'{path}' must have {8 + length + end} bytes; got {path.stat().st_size}."
            raise CheckpointRefusedError(msg)
        if twice := sorted(shapes.keys() & found.keys()):
            msg = f"'{path}' must hold tensors of its own; got '{twice[0]}' again."
            raise CheckpointRefusedError(msg)
        shapes.update(found)
    return shapes


def require_same_tensors(new: dict[str, tuple[int, ...]], first: dict[str, tuple[int, ...]]) -> None:
    """Raise unless the new tensors have the names and shapes of the first.

    Raises
    ------
    CheckpointRefusedError
        For tensors that are missing, unknown, or of another shape; a part of a fused layer would corrupt the rest.
    """
    missing, unknown = sorted(first.keys() - new.keys()), sorted(new.keys() - first.keys())
    if missing or unknown:
        msg = (
            f"The checkpoint must hold the {len(first)} tensors that the server began with; got {len(new)}, "
            f"missing {missing[:3]}, unknown {unknown[:3]}."
        )
        raise CheckpointRefusedError(msg)
    for name, shape in first.items():
        if new[name] != shape:
            msg = f"'{name}' must have shape {shape}; got {new[name]}."
            raise CheckpointRefusedError(msg)


def _tensors(files: list[Path]) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for path in files:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a file of safetensors, not a mapping
                yield name, file.get_tensor(name)


def _pack_again(model: Any) -> None:
    """Make packed copies of the CPU's products anew; a head that is tied to the embedding keeps its old one."""
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if hasattr(module, "cpu_linear") and weight is not None and weight.numel() and hasattr(module, "quant_method"):
            module.quant_method.process_weights_after_loading(module)


_WATCHING = threading.Lock()


def _watch_parent_once() -> None:
    if not _WATCHING.acquire(blocking=False):
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(70)

    threading.Thread(target=watch, name="watch-server", daemon=True).start()
