"""A real workspace in miniature: problems, settings, a small random model, and the commands that work on it."""

import json
import os
import shutil
import string
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rangeline.config import build_config

ROOT = Path(__file__).resolve().parents[1]
"""The project's own folder."""


@dataclass(frozen=True)
class Trained:
    """A workspace, its settings and its run of two iterations."""

    workspace: Any
    config: Any
    run: Any


TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}\n{% endif %}"
)
SETTINGS = {
    "seed": 3,
    "data": {"files": ["data/raw/problems.jsonl"]},
    "split": {
        "key": "tiny",
        "labelled": {"warmup": 0.3, "source": 0.3, "calibration": 0.3, "audit": 0.05, "evaluation": 0.05},
        "unlabelled": {"policy": 0.7, "ratio": 0.3},
    },
    "policy": {"model": "models/base", "precision": "float32", "sampler_dtype": "float32"},
    "sampling": {"group_size": 4, "temperature": 1.0, "max_tokens": 3},
    "judge": {"model": "models/base", "dtype": "float32", "rubric": "rubrics/arithmetic.yaml"},
    "warmup": {"epochs": 8, "learning_rate": 5.0e-3, "batch_size": 16},
    "calibrate": {"trees": 8, "depth": 2},
    "anchors": {"count": 2, "queries": 4, "prompts_per_shard": 16},
    "metric_head": {"width": 16, "dimension": 8, "max_epochs": 4},
    "intervals": {"alpha": 0.1},
    "objective": {"learning_rate": 1.0e-3},
    "train": {
        "iterations": 2,
        "prompts_per_iteration": 8,
        "ratio_prompts": 6,
        "audit_prompts": 12,
        "on_alarm": "continue",
    },
    "coverage": {"min_rows": 8, "min_prompts": 4, "max_mean_width": 1.0},
    "evaluate": {"samples": 4, "pass_at": [1, 4], "max_prompts": 8},
}
"""Settings of a tiny workspace; `policy.model` and `judge.model` are replaced by the model's folder."""


def problems():
    """Return distinct small sums: labelled ones near, unlabelled ones far, and far ones kept for audit and check."""
    near = [(a, a + d) for a in range(10, 55) for d in (2, 7)]
    far = [(a, a + (2 if a % 2 else 7)) for a in range(57, 99)]
    held = [
        (a, a + (7 if a % 2 else 2), share)
        for share, first in (("audit", 57), ("evaluation", 75))
        for a in range(first, first + 12)
    ]
    rows = [_row("near", pair, labelled=True) for pair in near]
    rows += [_row("far", pair, labelled=False) for pair in far]
    return rows + [_row("far", pair, labelled=True, share=share) for *pair, share in held]


def _row(domain, pair, *, labelled, share="train"):
    small, large = pair
    return {
        "prompt_id": f"{domain}-{share}-{small}-{large}",
        "prompt": f"{small} + ? = {large}",
        "suite": "reasoning_gym",
        "domain": domain,
        "reference": str(large - small) if labelled else None,
        "share": share,
    }


def save_model(folder, *, seed=0):
    """Save a small random policy with a tokenizer of characters and a chat template."""
    letters = [*string.digits, *string.ascii_letters, *" \n.,:;?!+-=*/'\"()#"]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", *letters])}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TOY = {
    "seed": 1,
    "data": {
        "world": {
            "words": 12,
            "candidates": 4,
            "policy": 24,
            "ratio": 8,
            "source": 16,
            "calibration": 16,
            "audit": 6,
            "evaluation": 10,
        }
    },
    "policy": {
        "model": "fresh:gpt2",
        "architecture": {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 16, "initializer_range": 0.15},
        "precision": "float32",
        "sampler_dtype": "float32",
    },
    "sampling": {"group_size": 4, "max_tokens": 1},
    "judge": {"model": "synthetic", "rubric": "rubrics/candidates.yaml"},
    "warmup": {"teaches": "format", "steps": 60, "learning_rate": 2.0e-2, "batch_size": 16},
    "calibrate": {"trees": 8},
    "intervals": {"cross_validate": False},
    "objective": {"learning_rate": 5.0e-3},
    "train": {
        "iterations": 4,
        "prompts_per_iteration": 6,
        "ratio_prompts": 4,
        "audit_prompts": 3,
        "on_alarm": "continue",
        "evaluate_every": 2,
    },
    "evaluate": {"method": "probability", "samples": 1, "pass_at": [1]},
}
"""Settings of a word world in miniature."""


def make_toy(root, **over):
    """Make a word world's workspace whose every stage before training has run; return workspace and settings."""
    from rangeline.stages import calibration, data
    from rangeline.stages.progress import silent
    from rangeline.stages.warmup import warmup
    from rangeline.stages.workspace import open_workspace

    root.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "rubrics", root / "rubrics", dirs_exist_ok=True)
    config = build_config(merged(TOY, over), source="toy workspace")
    (root / "params.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
    workspace, config = open_workspace(root)
    for stage in (data.generate, data.ingest, data.split):
        stage(workspace, config)
    for slow in (warmup, calibration.calibrate):
        slow(workspace, config, silent)
    return workspace, config


def train_toy(workspace, config, run, *, until=None, change=None):
    """Train a word world's policy, or go on with it, up to an iteration; `change` is given the open session."""
    from rangeline.stages.session import TrainingSession

    with TrainingSession(workspace, config, run=run) as session:
        if change is not None:
            change(session)
        for number in session.remaining:
            if until is not None and number > until:
                break
            session.sample(number)
            session.judge_states(number)
            session.bound(number)
            session.cover(number)
            session.update(number)
    return session.opened.folder


def merged(base, over):
    """Return nested settings with others laid over them."""
    result = dict(base)
    for key, value in over.items():
        result[key] = merged(result[key], value) if isinstance(result.get(key), dict) else value
    return result


def write_settings(root, **over):
    """Write `params.yaml` of a workspace in full, as dvc wants it."""
    config = build_config(merged(SETTINGS, over), source="tiny workspace")
    (root / "params.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))


def make_workspace(root, model, tracking, **over):
    """Make a workspace with problems and settings, versioned by git and dvc, with a migrated tracking database."""
    (root / "data" / "raw").mkdir(parents=True)
    (root / "rubrics").mkdir()
    (root / "mlruns").mkdir()
    lines = [json.dumps(row) + "\n" for row in problems()]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(lines))
    shutil.copy(ROOT / "dvc.yaml", root / "dvc.yaml")
    shutil.copy(ROOT / "rubrics" / "arithmetic.yaml", root / "rubrics" / "arithmetic.yaml")
    shutil.copytree(ROOT / "conditions", root / "conditions")
    shutil.copy(tracking, root / "mlruns" / "mlflow.db")
    named = {"policy": {"model": str(model)}, "judge": {"model": str(model)}}
    write_settings(root, **merged(named, over))
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def copy_workspace(source, target, tracking):
    """Copy a workspace with all that was made in it, but for its tracking database, which names its own folder."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("mlflow.db*"))
    (target / "mlruns").mkdir(exist_ok=True)
    shutil.copy(tracking, target / "mlruns" / "mlflow.db")
    return target


def copy_code(target):
    """Copy the code, so that a commit or an edit meanwhile does not change what manifests say of it."""
    for name in ("rangeline", "tasks", "flows"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def cli(*arguments, environ=None, home=ROOT, **options):
    """Start the command line as a process group of its own, its output on one pipe, with the code of a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *map(str, arguments)],
        cwd=home,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environ or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def tiny_byte_model(dtype=torch.float32, seed=0):
    """Return a random Llama of two layers and a byte-level tokenizer with a small chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<|start|>", "<|end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|end|>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).to(dtype).eval(), tokenizer
