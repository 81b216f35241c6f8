"""Seconds of a walk forwards over ten thousand artifacts: `python -m benchmarks.lineage.run`.

Everything that a person waits for is inside the clock: reading the ledger and every manifest, the index, the walk and
the drawing. The index of rows is made once, as files come to be; its first making is measured apart.
"""

import argparse
import json
import logging
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.lineage.make import make_workspace, marker_of
from rangeline.provenance.drawings import draw_json, draw_mermaid, draw_tree
from rangeline.provenance.graph import ModelVersion, build_graph
from rangeline.provenance.ledger import read_ledger
from rangeline.provenance.page import draw_page
from rangeline.provenance.reach import find_target, index_tables, reach
from rangeline.provenance.row_index import RowIndex

RESULT = Path(__file__).resolve().parents[1] / "results" / "lineage.json"
TARGETS = ("calibration:1", "p1", "judge-model", "data/pools/policy.parquet")


def walk(root: Path, target: str, iterations: int) -> Callable[[], str]:
    """Return the work of one command, from the files to the text."""

    def work() -> str:
        made_of = (marker_of(root, "r", iterations),)
        checkpoint = f"runs/r/checkpoints/{iterations:06d}"
        model = ModelVersion(name="policy", version=1, aliases=("champion",), made_of=made_of, checkpoint=checkpoint)
        graph, index = build_graph(root, read_ledger(root), [model]), RowIndex(root)
        unknown = index_tables(graph, index)
        found = reach(graph, find_target(root, graph, index, target), index, unknown=unknown)
        return "".join([*draw_tree(found), json.dumps(draw_json(found)), draw_mermaid(found), draw_page(found)])

    return work


def measure(work: Callable[[], str], repeats: int) -> dict[str, float]:
    """Return the median seconds of a work, by the clock and of the processor: other work on the machine adds to one."""
    clock, processor = [], []
    for _ in range(repeats):
        start, begun = time.perf_counter(), time.process_time()
        work()
        clock.append(time.perf_counter() - start)
        processor.append(time.process_time() - begun)
    medians = (sorted(values)[repeats // 2] for values in (clock, processor))
    return dict(zip(("clock_s", "processor_s"), (round(value, 3) for value in medians), strict=True))


def main() -> None:
    """Make the workspace, measure, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--tables", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    log = logging.getLogger("benchmarks.lineage")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        count = make_workspace(root, iterations=asked.iterations, tables=asked.tables)
        start = time.perf_counter()
        index_tables(build_graph(root, read_ledger(root)), RowIndex(root))
        result = {
            "artifacts": count,
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "first_index_s": round(time.perf_counter() - start, 3),
            "walks": {target: measure(walk(root, target, asked.iterations), asked.repeats) for target in TARGETS},
        }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    log.info(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
