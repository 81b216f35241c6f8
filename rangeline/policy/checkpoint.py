"""Save and restore everything an update depends on; a folder is a checkpoint only when its last file says so.

A checkpoint holds `policy/` (float32 weights and tokenizer, loadable by transformers), `optimizer.safetensors`
(AdamW state by parameter name), `state.json` (iteration, policy version, seeds, digests) and `COMPLETE`.
`COMPLETE` lists size and sha256 of every other file. It is written last, and the folder gets its name after that, so
that a killed writer never leaves something that looks finished.
No pickle is written or read. Random streams are keyed by seed and iteration and need no state of their own.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rangeline.errors import CheckpointError
from rangeline.lineage import block_digests, digest_file
from rangeline.policy import adapter, zero
from rangeline.policy.gathering import held_by_deepspeed, spread, spread_weights, whole
from rangeline.policy.trainer import PolicyTrainer

MARKER = "COMPLETE"
STATE = "state.json"
OPTIMIZER = "optimizer.safetensors"
POLICY = "policy"
PARTIAL = ".partial-"
"""In the name of a folder that is being written."""
REPLACED = ".replaced-"
"""In the name of a folder that another takes the place of."""
# Stands between a parameter's name and its optimiser slot; a module path never holds it.
_SLOT = "::"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSearch:
    """The newest complete checkpoint under a root, and what was passed over."""

    path: Path | None
    """None where no folder is complete."""
    passed_over: tuple[tuple[Path, str], ...]
    """Each unusable folder with the reason."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class WholeState:
    """What one process gathered from all, for a checkpoint."""

    weights: Mapping[str, torch.Tensor]
    """By plain name, adapters merged."""
    slots: Mapping[str, torch.Tensor]
    """As `optimizer_tensors` gives them."""


def save_checkpoint(
    folder: Path,
    *,
    model: Any,
    tokenizer: Any | None,
    optimizer: Any,
    state: Mapping[str, Any],
    whole_state: WholeState | None = None,
) -> None:
    """Write a whole checkpoint or none.

    Parameters
    ----------
    folder
        Final name; a checkpoint already there is replaced once the new one is complete.
    model
        Policy with float32 weights.
    tokenizer
        Saved beside the weights; None saves weights alone.
    optimizer
        AdamW over `model.parameters()`.
    state
        JSON values; must hold the integers `iteration` and `policy_version`.
    whole_state
        Weights and optimiser state where the model does not hold them under their plain names: several processes, or
        an adapter, which is then written beside the merged weights.

    Raises
    ------
    CheckpointError
        When the state lacks a needed key or is no JSON.
    """
    text = _state_text(state, folder)
    partial = folder.with_name(f"{folder.name}{PARTIAL}{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        _save_policy(model, partial, whole_state)
        if tokenizer is not None:
            tokenizer.save_pretrained(partial / POLICY)
        slots = optimizer_tensors(model, optimizer) if whole_state is None else whole_state.slots
        save_file(dict(slots), partial / OPTIMIZER)
        (partial / STATE).write_text(text, encoding="utf-8")
        _seal(partial)
        _take_name(partial, folder)
    finally:
        # A failed writer, of a full disk above all, gives back the room that it took.
        shutil.rmtree(partial, ignore_errors=True)


def load_checkpoint(folder: Path, trainer: PolicyTrainer) -> dict[str, Any]:
    """Put weights and optimiser state of a checkpoint into a trainer, so that it continues bit for bit.

    Parameters
    ----------
    folder
        A complete checkpoint of the trainer's architecture.
    trainer
        Changed in place; learning rate and clip bounds stay those of its own settings.

    Returns
    -------
    dict
        The saved state.

    Raises
    ------
    CheckpointError
        When the checkpoint is incomplete, damaged, or of another architecture.
    """
    verify_checkpoint(folder)
    try:
        if adapter.is_adapted(trainer.model):
            adapter.load_adapter(trainer.model, folder / adapter.FOLDER)
        else:
            source = type(trainer.model).from_pretrained(folder / POLICY, dtype=torch.float32, use_safetensors=True)
            spread_weights(trainer.model, source.state_dict())
    except (RuntimeError, OSError, SafetensorError) as error:
        msg = (
            f"'{folder / POLICY}' must hold weights of this {type(trainer.model).__name__}; got: {error}. "
            "Resume the run they belong to."
        )
        raise CheckpointError(msg) from error
    _restore_optimizer(folder / OPTIMIZER, trainer)
    return read_state(folder)


def read_state(folder: Path) -> dict[str, Any]:
    """Return the saved state of a checkpoint, without its weights.

    Raises
    ------
    CheckpointError
        When the checkpoint is incomplete.
    """
    reason = _why_incomplete(folder)
    if reason:
        raise CheckpointError(reason)
    state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return state


def is_complete(folder: Path) -> bool:
    """Tell whether the marker is present and every listed file has its size."""
    return _why_incomplete(folder) is None


def verify_checkpoint(folder: Path) -> None:
    """Compare every file of a checkpoint with its sha256.

    Raises
    ------
    CheckpointError
        When a file is absent, has another size, or another hash; the message names it.
    """
    reason = _why_incomplete(folder)
    if reason:
        raise CheckpointError(reason)
    for name, facts in _marker(folder).items():
        digest = digest_file(folder / name)
        if digest != facts["sha256"]:
            msg = f"'{folder / name}' must have sha256 {facts['sha256']}; got {digest}. Resume from the one before."
            raise CheckpointError(msg)


def find_checkpoint(root: Path) -> CheckpointSearch:
    """Find the complete checkpoint of the largest iteration, and say why other folders were passed over.

    Parameters
    ----------
    root
        Folder of checkpoints; may be absent.

    Returns
    -------
    CheckpointSearch
        Path None where nothing is complete.
    """
    complete: list[tuple[int, str, Path]] = []
    passed_over: list[tuple[Path, str]] = []
    for folder in sorted(path for path in root.glob("*") if path.is_dir()):
        if PARTIAL in folder.name or REPLACED in folder.name:
            passed_over.append((folder, f"'{folder}' is the unfinished work of a stopped writer."))
        elif reason := _why_incomplete(folder):
            passed_over.append((folder, reason))
        else:
            complete.append((int(read_state(folder)["iteration"]), folder.name, folder))
    return CheckpointSearch(path=max(complete)[2] if complete else None, passed_over=tuple(passed_over))


def latest_complete(root: Path) -> Path | None:
    """Return the complete checkpoint of the largest iteration; None where there is none."""
    return find_checkpoint(root).path


def _state_text(state: Mapping[str, Any], folder: Path) -> str:
    for name in ("iteration", "policy_version"):
        if not isinstance(state.get(name), int):
            msg = f"'{name}' must be an integer of the state; got {state.get(name)!r} ('{folder}'). Give it."
            raise CheckpointError(msg)
    try:
        return json.dumps(dict(state), indent=1, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        msg = f"'state' must hold finite JSON values; got: {error} ('{folder}'). Give numbers, text, lists and maps."
        raise CheckpointError(msg) from error


def _files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _seal(partial: Path) -> None:
    """Make every file last, and write the marker that lists them; the folder still lacks its name."""
    files = {
        path.relative_to(partial).as_posix(): {
            "sha256": digest_file(path),
            "size": path.stat().st_size,
            "blocks": block_digests(path),
        }
        for path in _files_of(partial)
    }
    for name in files:
        _sync(partial / name)
    (partial / MARKER).write_text(json.dumps({"files": files}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    _sync(partial / MARKER)
    _sync(partial)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _take_name(partial: Path, folder: Path) -> None:
    replaced = folder.with_name(f"{folder.name}{REPLACED}{os.getpid()}")
    if folder.exists():
        # A full folder cannot be replaced in one call; killed in between, the run resumes from the one before.
        folder.rename(replaced)
    try:
        partial.replace(folder)
    except OSError:
        if replaced.exists():
            replaced.rename(folder)
        raise
    _sync(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _marker(folder: Path) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"]
    return files


def _why_incomplete(folder: Path) -> str | None:
    remedy = "Resume from the one before."
    try:
        files = _marker(folder)
    except FileNotFoundError:
        return f"'{folder / MARKER}' must exist; got no such file. {remedy}"
    except (ValueError, KeyError, TypeError) as error:
        return f"'{folder / MARKER}' must list the files; got: {error}. {remedy}"
    for name in sorted({*files, STATE, OPTIMIZER}):
        path = folder / name
        wanted = files.get(name, {}).get("size")
        found = path.stat().st_size if path.is_file() else None
        if found is None or found != wanted:
            return f"'{path}' must have {wanted} bytes; got {'no such file' if found is None else found}. {remedy}"
    return None


def _save_policy(model: Any, folder: Path, whole_state: WholeState | None) -> None:
    if whole_state is None:
        model.save_pretrained(folder / POLICY)
        return
    plain = model.get_base_model() if adapter.is_adapted(model) else model
    plain.save_pretrained(folder / POLICY, state_dict=dict(whole_state.weights))
    if adapter.is_adapted(model):
        adapter.save_adapter(model, folder / adapter.FOLDER)


def _trained_names(model: Any) -> list[str]:
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def optimizer_tensors(model: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    """Return the optimiser's state by parameter name and slot, whole, on the CPU; every process takes part."""
    if held_by_deepspeed(model):
        found = zero.adam_slots(model, optimizer)
        return {f"{name}{_SLOT}{slot}": value.cpu().contiguous() for name, slot, value in found}
    names = _trained_names(model)
    state = optimizer.state_dict()["state"]
    return {
        f"{names[index]}{_SLOT}{slot}": whole(value).cpu().contiguous()
        for index, slots in state.items()
        for slot, value in slots.items()
    }


def _restore_optimizer(path: Path, trainer: PolicyTrainer) -> None:
    index_of = {name: index for index, name in enumerate(_trained_names(trainer.model))}
    parameters = dict(trainer.model.named_parameters())
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(path).items():
        name, _, slot = key.partition(_SLOT)
        if name not in index_of:
            msg = f"'{path}' must hold state of the policy's parameters; got '{name}'. Resume the run it belongs to."
            raise CheckpointError(msg)
        slots.setdefault(index_of[name], {})[slot] = spread(value, like=parameters[name])
    if held_by_deepspeed(trainer.model):
        by_name = {name: slots[index] for name, index in index_of.items() if index in slots}
        zero.put_adam_slots(trainer.model, trainer.optimizer, by_name)
        return
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": slots, "param_groups": groups})
