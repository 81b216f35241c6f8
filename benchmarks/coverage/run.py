"""The simulation study of coverage: one command, a table, plots, and a verdict.

Run from the repository root: `python -m benchmarks.coverage.run [--quick]`. Every draw is keyed by the seed, the design
and the replicate, so that the number of processes changes nothing.
"""

import argparse
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.coverage.alarms import Alarms, settings, simulate
from benchmarks.coverage.report import render, save_plots
from benchmarks.coverage.study import MEASURES, SETS_OF_SIZE, Key, Row, designs, replicate
from benchmarks.coverage.verdict import Cell, verdict_lines
from benchmarks.coverage.world import Design

ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = ("design", "rows", "alpha", "method", "coverage", "error", "width", "ess_share", "unbounded_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is simulated."""

    designs: tuple[Design, ...]
    alarms: tuple[tuple[float, float, int], ...]
    num_replicates: int
    num_runs: int
    sets_of_size: dict[int, int]


def make_plan(*, quick: bool, tiny: bool) -> Plan:
    """Return the full study, a minute's, or the least that shows that everything runs."""
    if tiny:
        chosen = [d for d in designs(quick=True) if d.num_states == 64 and d.correlation == 0]
        sets = {32: 1, 128: 1}
        return Plan(designs=tuple(chosen), alarms=settings(quick=True), num_replicates=1, num_runs=2, sets_of_size=sets)
    return Plan(
        designs=designs(quick=quick),
        alarms=settings(quick=quick),
        num_replicates=12 if quick else 40,
        num_runs=100 if quick else 300,
        sets_of_size=SETS_OF_SIZE,
    )


def summarise(design: Design, replicates: Iterable[dict[Key, Row]]) -> list[Cell]:
    """Average the replicates of one design; the standard error of one replicate is not known and is 0."""
    rows: dict[Key, list[Row]] = defaultdict(list)
    for found in replicates:
        for key, row in found.items():
            rows[key].append(row)
    cells = []
    for (size, alpha, method), values in rows.items():
        coverage = np.array([row["coverage"] for row in values])
        error = float(coverage.std(ddof=1)) / math.sqrt(len(coverage)) if len(coverage) > 1 else 0.0
        means = {m: float(np.mean([row[m] for row in values])) for m in MEASURES}
        cells.append(Cell(design=design, size=size, alpha=alpha, method=method, error=error, **means))
    return cells


def run(plan: Plan, seed: int, num_processes: int) -> tuple[list[Cell], list[Alarms]]:
    """Simulate the whole plan."""
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        alarms = [
            pool.submit(simulate, rate, rho, change_at=at, num_runs=plan.num_runs, seed=seed)
            for rate, rho, at in plan.alarms
        ]
        found: list[list[Future[dict[Key, Row]]]] = [
            [pool.submit(replicate, d, i, seed, plan.sets_of_size) for i in range(plan.num_replicates)]
            for d in plan.designs
        ]
        cells = [
            cell
            for design, futures in zip(plan.designs, found, strict=True)
            for cell in summarise(design, (future.result() for future in futures))
        ]
        return cells, [future.result() for future in alarms]


def _json(cells: list[Cell], alarms: list[Alarms], facts: str, plan: Plan) -> str:
    rows = [
        [c.design.name, c.size, c.alpha, c.method]
        + [round(v, 5) for v in (c.coverage, c.error, c.width, c.ess_share, c.unbounded_share)]
        for c in cells
    ]
    parts = {
        "facts": json.dumps(facts),
        "acceptance": json.dumps(verdict_lines(cells)),
        "designs": json.dumps([asdict(d) for d in plan.designs]),
        "monitor": json.dumps([asdict(a) for a in alarms]),
        "columns": json.dumps(_COLUMNS),
        "rows": "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]",
    }
    return "{\n" + ",\n".join(f'"{key}": {value}' for key, value in parts.items()) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Simulate, write `coverage.json`, `coverage.md` and the plots, and show the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute in place of ten")
    parser.add_argument("--tiny", action="store_true", help="only show that it runs; the numbers mean nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    os.environ.update({f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")})
    plan, start = make_plan(quick=options.quick, tiny=options.tiny), time.perf_counter()
    cells, alarms = run(plan, options.seed, options.processes)
    sets = ", ".join(f"{times} of {size} rows" for size, times in plan.sets_of_size.items())
    facts = (
        f"{len(plan.designs)} designs, {plan.num_replicates} replicates each (new source and ratio pools, scorer and "
        f"ratios), {sets} a replicate; {plan.num_runs} runs of each monitor setting; seed {options.seed}."
    )
    options.out.mkdir(parents=True, exist_ok=True)
    text = render(cells, alarms, facts)
    (options.out / "coverage.json").write_text(_json(cells, alarms, facts, plan), encoding="utf-8")
    (options.out / "coverage.md").write_text(text, encoding="utf-8")
    save_plots(cells, alarms, options.out)
    sys.stdout.write(f"{text}\n{time.perf_counter() - start:.0f} seconds on {options.processes} processes\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
