"""Seconds and memory of one training step beside TRL's `GRPOTrainer`: same work, in turn, each process alone.

`python -m benchmarks.training.run` from the repository root; `make bench-trl` runs it after the parity check. TRL lives
in `.venv-trl`. Every round runs every contender once, so that what else the machine does falls on all of them.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.training.model_folders import make_model
from benchmarks.training.workload import WORKLOADS, Workload, read_side

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CONTENDERS = (
    ("rangeline_side", "bf16"),
    ("trl_side", "defaults"),
    ("trl_side", "defaults, one pass"),
    ("trl_side", "bf16, 32 rows a pass"),
    ("rangeline_side", "float32"),
    ("trl_side", "float32, 32 rows a pass"),
)
"""In the order of a round; each of TRL's is compared with Rangeline's of the same precision before it."""
_CHECKED = ("float32", "float32, one pass")
"""Variants whose loss and gradient norm are compared on one batch of TRL's."""
_LIMIT_S = 3600
TOLERANCE = 1e-4
"""Largest difference of loss, and of gradient norm relative to itself, in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One contender on one workload."""

    workload: str
    side: str
    variant: str
    step_seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]
    sample_seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    peak_mib: tuple[float, ...]
    start_mib: tuple[float, ...]
    load: tuple[float, ...]
    """Runnable processes of the machine over the minute before each process, its noise."""


def machine() -> dict[str, Any]:
    """Describe the machine."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
    }


def child(
    module: str, variant: str, workload: Workload, folder: Path, options: argparse.Namespace, batch: Path | None = None
) -> dict[str, Any]:
    """Run one contender in a process of its own; return what it measured."""
    python = sys.executable if module == "rangeline_side" else options.trl_python
    out = folder.parent / "side.json"
    command = [python, "-m", f"benchmarks.training.{module}", workload.name, variant, str(folder), str(out)]
    command += [] if batch is None else [str(batch)]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if done.returncode:
        sys.exit(f"{module}, {variant}, failed:\n{done.stderr[-3000:]}")
    return read_side(out)


def measure(workload: Workload, folder: Path, options: argparse.Namespace) -> tuple[list[Line], dict[str, str]]:
    """Run all contenders in turn, round after round."""
    reports: dict[tuple[str, str], list[dict[str, Any]]] = {}
    versions: dict[str, str] = {}
    for number in range(options.rounds):
        for contender in CONTENDERS:
            load = os.getloadavg()[0]
            report = child(*contender, workload, folder, options) | {"load": load}
            reports.setdefault(contender, []).append(report)
            versions |= {f"{contender[0]}: {name}": value for name, value in report["versions"].items()}
            told = f"{report['step_seconds'][0]:.2f} s, {report['peak_mib']:.0f} MiB"
            sys.stderr.write(f"{workload.name} round {number + 1}: {report['side']}: {told} (load {load:.1f})\n")
    names = ("step_seconds", "cpu_seconds", "sample_seconds", "tokens")
    return [
        Line(
            workload=workload.name,
            side="Rangeline" if module == "rangeline_side" else "TRL",
            variant=variant,
            **{name: tuple(value for report in rows for value in report[name]) for name in names},
            **{name: tuple(report[name] for report in rows) for name in ("peak_mib", "start_mib", "load")},
        )
        for (module, variant), rows in reports.items()
    ], versions


def check_losses(workload: Workload, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return loss and gradient norm of both sides on one batch of TRL's, in float32."""
    ours, theirs = _CHECKED
    batch = folder.parent / f"{workload.name}.npz"
    theirs_checked = child("trl_side", theirs, workload, folder, options, batch)["checked"]
    ours_checked = child("rangeline_side", ours, workload, folder, options, batch)["checked"]
    return {f"trl_{name}": value for name, value in theirs_checked.items()} | {
        f"rangeline_{name}": value for name, value in ours_checked.items()
    }


def agrees(checked: dict[str, float]) -> bool:
    """Tell whether the two sides saw one loss and one gradient norm."""
    norm = checked["trl_grad_norm"]
    return (
        abs(checked["trl_loss"] - checked["rangeline_loss"]) <= TOLERANCE
        and abs(norm - checked["rangeline_grad_norm"]) <= TOLERANCE * norm
    )


def table(workload: Workload, lines: Sequence[Line]) -> list[str]:
    """Return the Markdown table of one workload: medians, the spread, and how many times Rangeline's."""
    rows = [
        "| side | settings | step (s) | from, to | of it sampling (s) | processor time (s) | tokens a second "
        "| peak (MiB) | step, times Rangeline's | processor time, times | peak, times |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    base = lines[0]
    for line in lines:
        base = line if line.side == "Rangeline" else base
        step, cpu, peak = (statistics.median(v) for v in (line.step_seconds, line.cpu_seconds, line.peak_mib))
        ratios = [
            f"{value / statistics.median(getattr(base, name)):.1f}"
            for value, name in ((step, "step_seconds"), (cpu, "cpu_seconds"), (peak, "peak_mib"))
        ]
        cells = [
            *(line.side, line.variant, f"{step:.2f}", f"{min(line.step_seconds):.2f}, {max(line.step_seconds):.2f}"),
            *(f"{statistics.median(line.sample_seconds):.2f}", f"{cpu:.2f}"),
            *(f"{statistics.median(line.tokens) / step:.0f}", f"{peak:.0f}"),
            *(["1"] * 3 if line is base else ratios),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    loads = [value for line in lines for value in line.load]
    rows += ["", f"{workload.title}. Load of the machine before each process: {min(loads):.1f} to {max(loads):.1f}."]
    return rows


def page(results: dict[str, Any], tables: Sequence[Sequence[str]]) -> str:
    """Return the whole report in Markdown."""
    place = results["machine"]
    head = [
        "# One training step beside TRL",
        "",
        f"{place['processor']}, {place['cores']} cores, {place['memory_gib']} GiB, {results['threads']} threads a "
        f"process; {results['rounds']} rounds, all contenders in turn, one warm-up step and one timed step a process. "
        "Peak memory is ru_maxrss: interpreter, libraries, weights and optimiser included.",
        "",
        "Versions: " + ", ".join(f"{name} {value}" for name, value in sorted(results["versions"].items())) + ".",
        "",
    ]
    for checked in results["checked"].values():
        head += [
            f"One batch of TRL's in float32: loss {checked['trl_loss']:.3e} and {checked['rangeline_loss']:.3e}, "
            f"gradient norm {checked['trl_grad_norm']:.6f} and {checked['rangeline_grad_norm']:.6f} (TRL, Rangeline).",
            "",
        ]
    return "\n".join([*head, *(line for rows in tables for line in [*rows, ""])])


def main() -> None:
    """Measure, print and write the tables; exit with 1 where the losses of the two sides differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trl-python", default=str(ROOT / ".venv-trl" / "bin" / "python"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "machine": machine(),
        "threads": options.threads,
        "rounds": options.rounds,
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": {},
        "checked": {},
        "lines": [],
    }
    tables = []
    for name in options.workloads:
        workload = WORKLOADS[name]
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / name
            make_model(workload, folder)
            results["checked"][name] = check_losses(workload, folder, options)
            lines, versions = measure(workload, folder, options)
        results["versions"] |= versions
        results["lines"] += [asdict(line) for line in lines]
        tables.append(table(workload, lines))
    text = page(results, tables)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training.md").write_text(text, encoding="utf-8")
    (options.out / "training.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    sys.stdout.write(text)
    if not all(map(agrees, results["checked"].values())):
        sys.exit("Losses and gradient norms must agree on one batch; they do not.")


if __name__ == "__main__":
    main()
