"""A compared run in this process: its iterations keep, under their manifests, all that they were made from."""

import pytest

from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.comparing import run_method
from rangeline.stages.comparison_plan import ComparisonPlan, plan_run
from rangeline.stages.comparison_runs import Looks, result_path
from rangeline.stages.progress import silent
from rangeline.stages.run import RECENT_ITERATIONS

_BESIDE = {MANIFEST_NAME, "timings.json"}


@pytest.mark.parametrize("method", ["range", "oracle", "random"])
def test_every_kept_file_of_an_iteration_is_under_its_manifest(toy, method):
    """Also where a method's rewards replace the judge's intervals, which stay beside them for coverage."""
    workspace, config = toy
    plan = ComparisonPlan.model_validate({"name": "kept", "methods": [method], "reference": method, "seeds": [1]})
    base = config.model_dump(mode="json") | {"train": {**config.model_dump()["train"], "iterations": 1}}
    run = plan_run(plan, base, design="default", seed=config.seed, method=plan.methods[0], role="test")
    looks = Looks(every=1, validation_share=0.3, keep_files=True)
    folder = run_method(workspace, run, looks, silent).parent / "iterations" / "000001"
    listed = {ref.path.rpartition("/")[2] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
    assert {path.name for path in folder.iterdir()} - _BESIDE == listed
    assert ("judged_intervals.parquet" in listed) == (method != "range")


class _InterruptedError(Exception):
    """What ends a sitting in a test."""


@pytest.mark.slow
@pytest.mark.parametrize("adapt", ["none", "audit_window"])
def test_an_interrupted_run_that_let_old_files_go_is_continued(toy, adapt):
    """What is kept of old iterations suffices to go on: none that is complete is made again."""
    workspace, config = toy
    num_before = RECENT_ITERATIONS + 1
    method = f"range-gaussian-0.{25 if adapt == 'none' else 26}"
    plan = ComparisonPlan.model_validate({"name": "kept", "methods": [method], "reference": method, "seeds": [1]})
    settings = config.model_dump(mode="json")
    settings["train"] |= {"iterations": num_before + 1, "checkpoint_every": 1, "max_silent_iterations": 9}
    settings["intervals"] |= {"adapt": adapt}
    run = plan_run(plan, settings, design="default", seed=config.seed, method=plan.methods[0], role="test")
    looks, made = Looks(every=50, validation_share=0.3, keep_files=False), []

    def interrupt(label, done, total):
        made.append(done)
        if made == list(range(1, num_before + 1)):
            raise _InterruptedError

    with pytest.raises(_InterruptedError):
        run_method(workspace, run, looks, interrupt)
    kept = result_path(workspace, run, looks).parent / "iterations"
    assert not (kept / "000001").exists()
    run_method(workspace, run, looks, interrupt)
    assert list(range(1, num_before + 2)) == made
