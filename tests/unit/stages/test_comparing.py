"""A compared run in this process: its iterations keep, under their manifests, all that they were made from."""

import json
import shutil
from types import SimpleNamespace

import pytest
from reward_case import row

from rangeline.config import PipelineConfig
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.comparing import RunRecord, pairing_of, run_method, step
from rangeline.stages.comparison_plan import ComparisonPlan, plan_run
from rangeline.stages.comparison_runs import Looks, result_path
from rangeline.stages.data import write_prompts
from rangeline.stages.progress import silent
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.run import RECENT_ITERATIONS
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace

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


@pytest.mark.parametrize(("num_steps", "num_rows"), [(2, 2), (3, 2), (3, 3), (4, 4)])
def test_a_run_left_anywhere_around_a_checkpoint_ends_with_the_same_result(toy, num_steps, num_rows):
    """Between two checkpoints, or after one and before its row: gone on with, no row is lost and none is another."""
    workspace, config = toy
    plan = ComparisonPlan.model_validate({"name": "left", "methods": ["range"], "reference": "range", "seeds": [1]})
    settings = config.model_dump(mode="json")
    settings["train"] |= {"iterations": 4, "checkpoint_every": 3}
    run = plan_run(plan, settings, design="default", seed=config.seed, method=plan.methods[0], role="test")
    looks = Looks(every=1, validation_share=0.3, keep_files=False)
    path = run_method(workspace, run, looks, silent)
    whole = path.read_bytes()
    shutil.rmtree(path.parent)
    with TrainingSession(workspace, run.config, run=path.parent.name) as session:
        record = RunRecord(workspace, run, looks, session)
        record.catch_up(0)
        for number in range(1, num_steps + 1):
            step(session, number, run)
            if number <= num_rows:
                record.add(number)
    assert whole == run_method(workspace, run, looks, silent).read_bytes()
    assert [0, 1, 2, 3, 4] == [item["iteration"] for item in json.loads(whole)["rows"]]


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


def test_sources_that_can_score_other_prompts_of_a_pool_are_not_paired(tmp_path):
    """Of a pool of both kinds a source of reasoning draws other prompts than the verifier, and none need be equal.

    Two sources that can score the same ones must still draw the same.
    """
    workspace = Workspace(tmp_path)
    rows = [row("bare", suite="reasoning_gym", share="warmup"), row("worked", share="warmup")]
    (tmp_path / "pools").mkdir()
    write_prompts(workspace.pools / "warmup.parquet", rows)

    def digest(source):
        config = PipelineConfig.model_validate({"reward": {"source": source}})
        return pairing_of(SimpleNamespace(workspace=workspace, config=config, plan=plan_rewards(config)))

    assert digest("verifier") == digest("verifier_model")
    assert digest("verifree") == digest("reference_probability")
    assert digest("verifier") != digest("reference_probability")
