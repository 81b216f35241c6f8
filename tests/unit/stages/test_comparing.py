"""A compared run in this process: its iterations keep, under their manifests, all that they were made from."""

import pytest

from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.comparing import run_method
from rangeline.stages.comparison_plan import ComparisonPlan, plan_run
from rangeline.stages.comparison_runs import Looks
from rangeline.stages.progress import silent

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
