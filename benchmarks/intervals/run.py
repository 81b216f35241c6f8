"""Weighted cutoffs against their peers: seconds and memory on one core, every contender in a process of its own.

Run from the repository root: `python -m benchmarks.intervals.run`. Peers live in `.venv-bench`; one that is not
installed, or fails, is reported as such.

Shapes: C calibration rows, N test points.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.intervals.measure import CONTENDERS
from rangeline.conformal.intervals import weighted_cutoffs
from rangeline.seeds import stream

ROOT = Path(__file__).resolve().parents[2]
ALPHA = 0.1
_OWN_MASS = "each test point's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much one table asks for, and of whom."""

    name: str
    num_calibration: int
    num_test: int
    repeats: int
    contenders: tuple[str, ...]


_WEIGHTED = ("rangeline", "loop", "crepes-weighted", "puncc, asked for each point")
_ONE_CUTOFF = ("puncc SplitCP(weight_func)", "MAPIE")
FULL = (
    Size(name="common", num_calibration=10_000, num_test=1_000, repeats=5, contenders=_WEIGHTED + _ONE_CUTOFF),
    Size(name="many rows", num_calibration=100_000, num_test=100, repeats=3, contenders=_WEIGHTED + _ONE_CUTOFF),
    Size(name="many of both", num_calibration=100_000, num_test=10_000, repeats=1, contenders=("rangeline", "loop")),
    Size(
        name="million", num_calibration=100_000, num_test=1_000_000, repeats=5, contenders=("rangeline", *_ONE_CUTOFF)
    ),
)
TINY = (
    Size(name="common", num_calibration=200, num_test=20, repeats=1, contenders=_WEIGHTED + _ONE_CUTOFF),
    Size(name="million", num_calibration=300, num_test=400, repeats=1, contenders=("rangeline", *_ONE_CUTOFF)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One contender on one size; `note` says why there is no number, and is empty otherwise."""

    size: str
    contender: str
    test_mass: str
    num_calibration: int
    num_test: int
    version: str = ""
    numpy: str = ""
    median_seconds: float | None = None
    best_seconds: float | None = None
    peak_growth_mib: float | None = None
    equal_share: float | None = None
    """Share of test points whose cutoff is Rangeline's, to 1e-12."""
    largest_difference: float | None = None
    """Among finite cutoffs."""
    note: str = ""

    @property
    def microseconds_per_point(self) -> float | None:
        """Median time over test points."""
        return None if self.median_seconds is None else 1e6 * self.median_seconds / self.num_test


def make_data(size: Size, seed: int) -> dict[str, np.ndarray]:
    """Draw scores and log weights of one size: uniform scores, log weights normal with standard deviation 1."""
    rng = stream(seed, "benchmark/intervals", size.num_calibration, size.num_test)
    return {
        "score_C": rng.random(size.num_calibration),
        "log_weight_C": rng.normal(size=size.num_calibration),
        "log_weight_N": rng.normal(size=size.num_test),
    }


def _child(name: str, size: Size, python: str, folder: Path) -> tuple[dict[str, Any] | None, str]:
    environment = os.environ | {f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "OPENBLAS", "MKL")}
    command = [python, "-m", "benchmarks.intervals.measure", name]
    command += [str(folder / "data.npz"), str(ALPHA), str(size.repeats), str(folder / "cutoffs.npy")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return None, f"failed: {last}"
    return json.loads(done.stdout.strip().splitlines()[-1]), ""


def measure(name: str, size: Size, python: str, folder: Path) -> Result:
    """Run one contender on the data in `folder`; an absent environment is a note, not an error."""
    _, package, test_mass = CONTENDERS[name]
    nothing = Result(
        size=size.name,
        contender=name,
        test_mass=test_mass,
        num_calibration=size.num_calibration,
        num_test=size.num_test,
    )
    if package and not Path(python).exists():
        return replace(nothing, note=f"absent: no {python}; make it by `make bench-intervals`")
    report, note = _child(name, size, python if package else sys.executable, folder)
    if report is None:
        return replace(nothing, note=note)
    cutoff_N = np.load(folder / "cutoffs.npy")
    with np.load(folder / "data.npz") as data:
        ours_N = weighted_cutoffs(data["score_C"], data["log_weight_C"], data["log_weight_N"], ALPHA)
    finite = np.isfinite(cutoff_N) & np.isfinite(ours_N)
    gap = np.abs(cutoff_N[finite] - ours_N[finite])
    equal = (cutoff_N == ours_N) | np.isclose(cutoff_N, ours_N, rtol=0, atol=1e-12)
    return replace(
        nothing,
        version=str(report["version"]),
        numpy=str(report["numpy"]),
        median_seconds=statistics.median(report["seconds"]),
        best_seconds=min(report["seconds"]),
        peak_growth_mib=report["peak_growth_bytes"] / 2**20,
        equal_share=float(equal.mean()),
        largest_difference=float(gap.max(initial=0.0)),
    )


def run(sizes: tuple[Size, ...], python: str, seed: int) -> list[Result]:
    """Measure every contender on every size, one after the other."""
    results = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            np.savez(Path(name) / "data.npz", allow_pickle=False, **make_data(size, seed))
            results += [measure(contender, size, python, Path(name)) for contender in size.contenders]
    return results


def machine() -> dict[str, str]:
    """Say what the numbers were measured on."""
    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _known(value: float | None) -> float:
    """Return a number that was measured; NaN for one that was not."""
    return math.nan if value is None else value


def _ratios(results: list[Result]) -> list[str]:
    """Say how the two goals came out, from numbers of this run alone."""
    timed = [r for r in results if r.microseconds_per_point is not None]
    lines = []
    for size in dict.fromkeys(r.size for r in timed):
        rows = {r.contender: r for r in timed if r.size == size}
        ours = rows.pop("rangeline", None)
        peers = [r for r in rows.values() if r.test_mass == _OWN_MASS]
        if ours and peers:
            best = min(peers, key=lambda r: _known(r.microseconds_per_point))
            ratio = _known(best.median_seconds) / _known(ours.median_seconds)
            word = "PASS" if ratio >= 50 else "FAIL"
            counts = f"{ours.num_calibration:,} rows, {ours.num_test:,} test points"
            lines.append(
                f"{word}: {counts}: {ratio:,.0f} x faster than {best.contender}, the fastest peer that gives each test "
                "point its own mass; goal 50 x"
            )
    whole = [r for r in timed if r.contender == "rangeline"][-1:]
    for ours in whole:
        word = "PASS" if _known(ours.median_seconds) < 1 else "FAIL"
        counts = f"{ours.num_test:,} test points on {ours.num_calibration:,} rows"
        lines.append(f"{word}: {counts}: {_known(ours.median_seconds):.3f} s on one core; goal below 1 s")
        peers = [r for r in timed if r.test_mass == _OWN_MASS and r.num_calibration == ours.num_calibration]
        peers = [r for r in peers if r.contender != "rangeline"]
        if peers:
            best = min(peers, key=lambda r: _known(r.microseconds_per_point))
            ratio = _known(best.microseconds_per_point) / _known(ours.microseconds_per_point)
            counts = f"{best.num_test:,} points at a time"
            lines.append(f"Per test point, on as many rows, {ratio:,.0f} x faster than {best.contender} ({counts}).")
        one = [r for r in timed if r.size == ours.size and r.contender == "puncc SplitCP(weight_func)"]
        if one:
            ratio = _known(one[0].median_seconds) / _known(ours.median_seconds)
            lines.append(
                f"One mass for all test points needs one quantile: {one[0].contender} takes {ratio:.1f} x Rangeline's "
                f"time, and {1 - _known(one[0].equal_share):.0%} of its cutoffs are others."
            )
    return lines


def _row(result: Result, ours: Result | None) -> str:
    if result.median_seconds is None:
        cells = ["-", "-", "-", "-", "-", result.note]
    else:
        ratio = result.median_seconds / ours.median_seconds if ours and ours.median_seconds else None
        cells = [
            f"{result.median_seconds:.4f}",
            f"{result.microseconds_per_point:.3f}",
            "-" if ratio is None else f"{ratio:,.1f} x",
            f"{result.peak_growth_mib:,.0f}",
            f"{result.equal_share:.1%}, {result.largest_difference:.1g}",
            f"{result.version or '-'} (numpy {result.numpy})",
        ]
    return " | ".join([f"| {result.contender}", result.test_mass, *cells]) + " |"


def render(results: list[Result]) -> str:
    """Write the tables as Markdown."""
    facts = ", ".join(f"{key} {value}" for key, value in machine().items())
    lines = ["# Weighted cutoffs: seconds and memory, one core", "", f"Measured on: {facts}.", ""]
    for size in dict.fromkeys(r.size for r in results):
        rows = [r for r in results if r.size == size]
        ours = next((r for r in rows if r.contender == "rangeline"), None)
        lines += [
            f"## {rows[0].num_test:,} test points on {rows[0].num_calibration:,} calibration rows ({size})",
            "",
            "| contender | mass of a test point | median s | us a point | time / Rangeline's | peak memory growth, MiB"
            " | same cutoff, largest gap | version, or why absent |",
            "|---|---|---|---|---|---|---|---|",
            *[_row(result, ours) for result in rows],
            "",
        ]
    return "\n".join([*lines, *[f"- {line}" for line in _ratios(results)], ""])


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `intervals.json` and `intervals.md`, and show the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", default=str(ROOT / ".venv-bench" / "bin" / "python"), help="interpreter of the peers"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it runs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    results = run(TINY if options.tiny else FULL, options.peers, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "alpha": ALPHA, "results": [asdict(r) for r in results]}
    text = render(results)
    (options.out / "intervals.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (options.out / "intervals.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
