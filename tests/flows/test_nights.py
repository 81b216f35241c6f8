"""Nights on real stores: what arrives, what is skipped, who serves, and what a failed night leaves."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client

from flows.run_nightly import NightlyRequest, nightly, run_pipeline
from rangeline.errors import BadInputError, CheckpointError, PoolError, RangelineError
from rangeline.lineage import digest_file
from rangeline.provenance.ledger import read_ledger
from rangeline.stages.intake import pool_table_of
from rangeline.stages.workspace import Workspace, open_workspace
from tasks.audits import audit_target, draw_reach, export_lineage, reach_target
from tasks.champions import POLICY_MODEL, former_champions
from tasks.nights import hold_night, pools_before, require_no_move, roll_back, why_calibrate
from tasks.records import promote_policy
from tasks.retention import apply_retention, keep_champion_lineage
from tasks.tracking import CHAMPION, Tracker

pytestmark = [
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.ops,
    pytest.mark.slow,
    pytest.mark.timeout(1800),  # the first test waits for three nights
]

OPEN = {"coverage stood": True, "accuracy did not fall": True}


def row(prompt_id, small, large, *, labelled=False, share="train"):
    """Return one arriving prompt."""
    return {
        "prompt_id": prompt_id,
        "prompt": f"{small} + ? = {large}",
        "suite": "reasoning_gym",
        "domain": "far",
        "reference": str(large - small) if labelled else None,
        "share": share,
    }


def arrive(root, name, rows):
    """Put a file into the inbox."""
    inbox = root / "data" / "inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    (inbox / name).write_text("".join(json.dumps(item) + "\n" for item in rows))


def record_of(root):
    """Return the record of the last night."""
    return json.loads(max((root / "runs" / "_nights").glob("*.json")).read_text())


def audit_all(root):
    """Return what an audit of the whole workspace finds wrong, by path."""
    _, failures, matching = audit_target.fn(str(root), "all")
    assert matching > 20
    return {item.path: item.detail for item in failures}


@pytest.fixture(scope="module")
def nights(tiny_workspace, tmp_path_factory):
    """Do three nights: one on the first data, one without news, one with new prompts; give what each left."""
    root = tiny_workspace(tmp_path_factory.mktemp("nights") / "work")
    request = NightlyRequest(workspace=str(root))
    told = {"first": (nightly(request), record_of(root))}
    told["pools"] = pool_table_of(Workspace(root))
    told["second"] = nightly(request), record_of(root)
    # The champion's lineage is kept from here on; the gates of so small a model are not the point.
    version = told["first"][1]["version"]
    promote_policy.fn(str(root), version, OPEN)
    keep_champion_lineage.fn(str(root), f"runs/{told['first'][1]['run']}/checkpoints/000002")
    told["before"] = digest_file(root / "data" / "pools" / "manifest.json")
    known = json.loads((root / "data" / "raw" / "problems.jsonl").read_text().splitlines()[0])
    far = [row(f"new-{i}", 100 + i, 109 + 3 * i) for i in range(8)]
    near = [row(f"label-{i}", 30 + i, 45 + 2 * i, labelled=True) for i in range(12)]
    changed = {**known, "reference": str(int(known["reference"]) + 1)}
    wrong = {**row("bad", 1, 2, labelled=True), "reference": "no number at all"}
    arrive(root, "tuesday.jsonl", [known, wrong, *far, *near])
    arrive(root, "wednesday.jsonl", [changed])
    arrive(root, "broken.jsonl", [{"prompt_id": 3}])
    told["third"] = nightly(request), record_of(root)
    told["root"] = root
    return told


def test_the_first_night_trains_and_says_why(nights):
    """A night on first data trains under its own name, calibrates, and says why its alias."""
    outcome, record = nights["first"]
    assert (outcome, record["outcome"]) == (record["alias"], record["alias"])
    assert "renewed: there is no calibration yet" == record["calibration"]
    assert "no champion yet: compared with the starting policy" in record["reason"]
    assert record["run"] == record["night"]
    assert record["flow_name"] == "nightly"


def test_a_night_without_news_trains_nothing(nights):
    """Where nothing arrived and nothing changed, the night says so and makes no run."""
    outcome, record = nights["second"]
    assert outcome == "unchanged"
    assert "nothing is new: run 'nightly-" in record["reason"]
    assert record["calibration"].startswith("reused of 20")
    assert 2 == len(list((nights["root"] / "runs").glob("nightly-*")))


def test_only_new_prompts_are_added_and_none_moves(nights):
    """Known prompts are passed over, a known id with another answer and a broken file are refused, no pool changes."""
    root, record = nights["root"], nights["third"][1]
    intake = record["intake"]
    assert (20, 1) == (intake["new"], intake["known"])
    assert {"bad", "near-train-10-12", None} == {item["prompt_id"] for item in intake["refused"]}
    after = pool_table_of(Workspace(root))
    assert {name: after[name] for name in nights["pools"]} == nights["pools"]
    assert set(after) - set(nights["pools"]) <= {f"new-{i}" for i in range(8)} | {f"label-{i}" for i in range(12)}
    assert record["prompts_added"] == len(after) - len(nights["pools"]) > 0


def test_calibration_is_renewed_by_data_with_the_reason(nights):
    """New labelled prompts reach the calibration pools or the warm-up, so calibration is made anew and says of what."""
    assert nights["third"][1]["calibration"].startswith("renewed: ")
    assert "data: pool" in nights["third"][1]["calibration"]


def test_the_new_policy_is_compared_with_the_champion(nights):
    """The next night's policy is held against the champion, prompt by prompt, and the reason tells the change."""
    assert "compared with champion version" in nights["third"][1]["reason"]
    assert "over" in nights["third"][1]["reason"]


def test_the_champions_lineage_stands_after_the_data_went_on(nights):
    """After new data replaced pools, warm-up and calibration, the older policy's chain verifies from kept bytes."""
    root = nights["root"]
    assert nights["before"] != digest_file(root / "data" / "pools" / "manifest.json")
    lines, failures, _ = audit_target.fn(str(root), str(nights["first"][1]["version"]))
    assert () == failures
    assert any("made anew by a later run" in line and "are kept and match" in line for line in lines)
    assert {} == audit_all(root)


def test_a_withdrawn_label_is_traced_to_the_models(nights):
    """A calibration row of the first nights reaches the first model; a new prompt only later ones."""
    root = nights["root"]
    first = nights["first"][1]["version"]
    old = next(name for name, pool in nights["pools"].items() if pool == "calibration")
    found = reach_target.fn(str(root), old)
    assert first in {found.graph.models[node.key].version for node in found.models}
    new = next(name for name in pool_table_of(Workspace(root)) if name.startswith(("new-", "label-")))
    late = reach_target.fn(str(root), f"prompt:{new}")
    assert first not in {
        late.graph.models[node.key].version for node in late.models if node.title.startswith("model r")
    }
    for drawing in ("tree", "json", "mermaid", "html"):
        assert draw_reach(found, drawing)


def test_every_event_is_of_the_flow_that_made_it(nights):
    """Exports tell the Prefect flow run and the MLflow run of each stage that the nights made."""
    events = [json.loads(line) for line in export_lineage(str(nights["root"]), "openlineage").splitlines()]
    iterations = [event for event in events if event["job"]["name"] == "iteration" and event["eventType"] == "COMPLETE"]
    assert len(iterations) == 4
    for event in iterations:
        assert "parent" in event["run"]["facets"]
        assert event["run"]["facets"]["rangeline_stage"]["mlflow"]["run_id"]


def test_rollback_puts_the_former_champion_back(nights):
    """After a second promotion, rollback gives it to the first again, with the reason; a damaged one never serves."""
    root = nights["root"]
    tracker = Tracker.open(root)
    first, third = nights["first"][1]["version"], nights["third"][1]["version"]
    promote_policy.fn(str(root), third, OPEN)
    assert [third, first] == former_champions(tracker, POLICY_MODEL, count=5)
    weights = next((root / f"runs/{nights['first'][1]['run']}/checkpoints/000002/policy").glob("*.safetensors"))
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=rf"Version {first} must be what it was.*stays champion"):
        roll_back(root, "worse in use")
    assert third == tracker.alias_version(POLICY_MODEL, CHAMPION)
    weights.write_bytes(content)
    assert (third, first) == roll_back(root, "worse in use")
    assert first == tracker.alias_version(POLICY_MODEL, CHAMPION)
    assert "worse in use" in read_ledger(root).entries[-1].facts["reason"]
    with pytest.raises(BadInputError, match="which replaced none"):
        roll_back(root, "again")


def test_a_failed_night_leaves_yesterdays_model_serving(nights, tmp_path):
    """A night that ends in an error changes no alias and writes down where it ended."""
    root = nights["root"]
    before = Tracker.open(root).alias_version(POLICY_MODEL, CHAMPION)
    rubric = root / "rubrics" / "arithmetic.yaml"
    text = rubric.read_text()
    rubric.write_text("no rubric")
    with pytest.raises(RangelineError):
        nightly(NightlyRequest(workspace=str(root)))
    rubric.write_text(text)
    assert before == Tracker.open(root).alias_version(POLICY_MODEL, CHAMPION)
    assert "failed" == record_of(root)["outcome"]
    assert "ubric" in record_of(root)["reason"]


def test_a_second_night_is_skipped_by_the_name_of_the_first(nights):
    """While one night is at work another is skipped; the flow run ends as Skipped and names the holder."""
    root = nights["root"]
    code = (
        "import sys, time; from tasks.nights import hold_night\n"
        f"with hold_night({str(root)!r}) as holder:\n    print('held', holder, flush=True); time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE)
    assert other.stdout.readline() == b"held None\n"
    state = nightly(NightlyRequest(workspace=str(root)), return_state=True)
    assert ("Skipped", True) == (state.name, f"process {other.pid} on" in state.message)
    with get_client(sync_client=True) as client:
        assert "Skipped" == client.read_flow_run(state.state_details.flow_run_id).state.name
    other.kill()
    other.wait()
    with hold_night(str(root)) as holder:
        assert holder is None, "a killed holder lets go"


def test_lost_pools_are_never_split_again(nights, tmp_path):
    """Where the pools are gone the night stops, rather than put old prompts into other pools."""
    copy = tmp_path / "copy"
    shutil.copytree(nights["root"], copy, symlinks=True, ignore=shutil.ignore_patterns("mlruns", "models"))
    before = pools_before(str(copy))
    moved = {**before, next(iter(before)): "ratio" if next(iter(before.values())) != "ratio" else "policy"}
    with pytest.raises(PoolError, match="No prompt may change its pool"):
        require_no_move(str(copy), moved)
    shutil.rmtree(copy / "data" / "pools")
    with pytest.raises(PoolError, match=r"pools must be in place before a night.*dvc pull"):
        pools_before(str(copy))


def test_retention_spares_what_champions_need(nights):
    """Of old nights those without an alias go, with their evaluations; the champions' lineage still verifies."""
    root = nights["root"]
    champion = f"runs/{nights['first'][1]['run']}"
    shutil.copytree(root / champion, root / "runs" / "nightly-2001-01-01")
    rows = apply_retention.fn(str(root), "none", keep_runs=1, keep_champions=3, max_cache_mb=1e-6)
    gone = {item["path"] for item in rows}
    assert "runs/nightly-2001-01-01" in gone
    assert ".rangeline/verdicts.sqlite" in gone
    assert (root / champion).is_dir()
    assert not (root / "runs" / "nightly-2001-01-01").exists()
    assert {} == audit_all(root)
    assert "older than" in read_ledger(root).why_deleted("runs/nightly-2001-01-01/run.json")


def test_the_demo_path_promotes_through_the_same_gates(nights):
    """Running every flow in order on the same data and name trains nothing twice and keeps the version's gates."""
    root = nights["root"]
    _, config = open_workspace(root)
    result = run_pipeline(str(root), config, nights["third"][1]["run"])
    assert result["version"] == nights["third"][1]["version"]


def flip(path, index):
    """Change one bit of a byte of a file, in place; return the old content."""
    content = path.read_bytes()
    index %= len(content)
    path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
    return content


def artifacts_of(root):
    """Return the files that manifests and ledger answer for, but for the manifests themselves."""
    ledger = read_ledger(root)
    named = {path for path in ledger.newest if not path.endswith("manifest.json")}
    for path in root.rglob("manifest.json"):
        if not {".dvc", ".rangeline", "mlruns"} & set(path.parts):
            named |= {ref["path"] for ref in json.loads(path.read_text())["outputs"]}
    for marker in (root / "runs").glob("*/checkpoints/*/COMPLETE"):
        folder = marker.parent.relative_to(root).as_posix()
        named |= {f"{folder}/{name}" for name in json.loads(marker.read_text())["files"]} | {f"{folder}/COMPLETE"}
    return sorted(path for path in named if (root / path).is_file() and (root / path).stat().st_size)


def test_a_changed_byte_of_any_artifact_is_named(nights):
    """With one byte changed in every artifact at once, the audit names each of them; mended, it names none.

    The iterations' copies of checkpoint markers come in a round of their own: a changed one is not believed, so that it
    is named in place of the files that it would tell of.
    """
    root = nights["root"]
    paths = artifacts_of(root)
    assert len(paths) > 100
    copies = [path for path in paths if path.endswith("/checkpoint.json")]
    for changed in ([path for path in paths if path not in copies], copies):
        old = {path: flip(root / path, 7 * number) for number, path in enumerate(changed)}
        try:
            assert set(changed) <= audit_all(root).keys()
        finally:
            for path, content in old.items():
                (root / path).write_bytes(content)
    assert {} == audit_all(root)


def test_a_changed_byte_of_any_manifest_is_named(nights):
    """With one byte changed in every manifest at once, the audit names each, at whatever byte."""
    root = nights["root"]
    paths = sorted(
        path for path in read_ledger(root).newest if path.endswith("manifest.json") and (root / path).exists()
    )
    for start in (3, 1000):
        old = {path: flip(root / path, start + 31 * number) for number, path in enumerate(paths)}
        try:
            _, failures, _ = audit_target.fn(str(root), "all")
        finally:
            for path, content in old.items():
                (root / path).write_bytes(content)
        assert set(paths) <= {item.path for item in failures}


@pytest.mark.parametrize("table", ["metrics", "latest_metrics"])
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("warmup", "data/%"),
        ("calibration", "data/%"),
        ("train", "train/accuracy"),
        ("train", "step/%"),
        ("iteration", "coverage/empirical"),
        ("evaluate", "accuracy/%"),
    ],
)
def test_a_changed_metric_of_the_store_is_named(nights, kind, key, table):
    """A metric that is changed in the tracking database, in its history or its latest value, is named with its run."""
    root = nights["root"]
    of_kind = "SELECT run_uuid FROM tags WHERE key = 'rangeline.kind' AND value = ?"
    with closing(sqlite3.connect(root / "mlruns" / "mlflow.db")) as store:
        run_id, key, value, step = store.execute(
            f"SELECT run_uuid, key, value, step FROM {table} WHERE key LIKE ? AND run_uuid IN ({of_kind})", (key, kind)
        ).fetchone()
        for new in (value + 0.25, value):
            with store:
                place = "WHERE run_uuid = ? AND key = ? AND step = ?"
                store.execute(f"UPDATE {table} SET value = ? {place}", (new, run_id, key, step))
            found = {path: detail for path, detail in audit_all(root).items() if run_id in path}
            assert (new != value) is bool(found)
            assert all(f"metric '{key}" in detail for detail in found.values())


def test_a_changed_byte_of_the_ledger_is_named(nights):
    """A byte changed in the middle of the ledger is named by its line."""
    root = nights["root"]
    path = root / ".rangeline" / "ledger.jsonl"
    old = flip(path, path.stat().st_size // 2)
    found = audit_all(root)
    path.write_bytes(old)
    assert "line " in found[".rangeline/ledger.jsonl"]


def test_exchanged_judge_weights_renew_calibration(nights, tmp_path):
    """Weights exchanged below the same name are found by digest, though no setting changed."""
    copy = tmp_path / "copy"
    shutil.copytree(nights["root"], copy, symlinks=True, ignore=shutil.ignore_patterns("mlruns", "runs"))
    _, config = open_workspace(copy)
    model = tmp_path / "judge"
    shutil.copytree(config.judge.model, model)
    text = (copy / "params.yaml").read_text()
    (copy / "params.yaml").write_text(text.replace(config.judge.model, str(model)))
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    assert "judge: the weights or precision of" in why_calibrate(str(copy))
