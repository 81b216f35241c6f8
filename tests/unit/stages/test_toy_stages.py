"""Stages on a word world: the start, exact accuracy, measurements along a run, and checkpoints further apart."""

import json

import numpy as np
import pytest
import torch
from tiny import TOY, make_toy, merged, train_toy

from rangeline.audit import audit
from rangeline.config import build_config
from rangeline.errors import ConfigError, PoolError
from rangeline.lineage import read_manifest
from rangeline.stages.data import read_pool, read_world
from rangeline.stages.evaluation import evaluate, reference_probabilities, reference_rows
from rangeline.stages.progress import silent
from rangeline.stages.run import last_complete
from rangeline.stages.warmup import base_model, load_worker, warmup
from rangeline.stages.workspace import Workspace


def _config(**over):
    return build_config(merged(TOY, over), source="test")


@pytest.fixture(scope="module")
def run(toy):
    """Train one run of four iterations."""
    return train_toy(*toy, "toy")


def test_warm_start_chooses_listed_words_alike(toy):
    """After the format warm-up nearly all probability lies on listed words, spread over them, and none on the best."""
    workspace, config = toy
    worker = load_worker(config, str(workspace.warmup / "policy"))
    rows = read_pool(workspace, "evaluation")
    encoded = reference_rows(worker.tokenizer, rows, config)
    with torch.no_grad():
        prob = worker.model(torch.tensor([row.prompt_ids for row in encoded])).logits[:, -1].softmax(-1)
    listed = prob.gather(1, torch.tensor([row.prompt_ids[:-1] for row in encoded]))
    assert listed.sum(dim=1).mean() > 0.6
    assert 0.25 == pytest.approx(float(reference_probabilities(worker.model, encoded, config).mean()), abs=0.12)


def test_exact_accuracy_is_the_probability_of_the_best_word(toy):
    """The probability of a one-token reference is the softmax of the next token at it."""
    workspace, config = toy
    worker = load_worker(config, str(workspace.warmup / "policy"))
    encoded = reference_rows(worker.tokenizer, read_pool(workspace, "evaluation"), config)
    value_P = reference_probabilities(worker.model, encoded, config)
    for row, value in zip(encoded, value_P, strict=True):
        with torch.no_grad():
            prob = worker.model(torch.tensor([row.prompt_ids])).logits[0, -1].softmax(-1)
        assert value == pytest.approx(float(prob[row.target_ids[0]]), abs=1e-6)


def test_reference_longer_than_the_cap_is_refused(toy):
    """A reference that the policy could never write has no probability worth reporting."""
    workspace, config = toy
    worker = load_worker(config, str(workspace.warmup / "policy"))
    rows = read_pool(workspace, "evaluation")
    long = [type(rows[0])(**{**_fields(rows[0]), "prompt": "fox owl", "reference": "fox owl"})]
    worker.tokenizer.encode = lambda text, **_: [1, 2]
    with pytest.raises(ConfigError, match=r"'sampling.max_tokens' must be at least the 2 tokens of a reference"):
        reference_rows(worker.tokenizer, long, config)


def _fields(row):
    return {name: getattr(row, name) for name in row.__slots__}


def test_evaluation_by_probability_is_kept_and_read_again(toy, run):
    """Exact evaluation writes one row a prompt, no pass@k, and the mean that was measured along the run."""
    workspace, config = toy
    result = evaluate(workspace, config, run.checkpoint(4), silent, "run")
    along = json.loads((run.iteration(4) / "evaluation.json").read_text())["evaluation/accuracy"]
    assert (10, {}) == (result.metrics["all"]["num_prompts"], result.metrics["all"]["pass_at_k"])
    assert along == pytest.approx(result.metrics["all"]["average"]["value"], abs=1e-6)


def test_measurements_are_made_when_asked_for(run):
    """Accuracy is measured every so many iterations, the oracle looks every time, and both reach the metrics."""
    have = [(run.iteration(number) / "evaluation.json").is_file() for number in range(1, 5)]
    assert [False, True, False, True] == have
    metrics = json.loads((run.iteration(2) / "metrics.json").read_text())
    assert {"evaluation/accuracy", "oracle/coverage", "oracle/flips_right"} <= set(metrics)
    assert "oracle/coverage" in json.loads((run.iteration(1) / "metrics.json").read_text())


def test_checkpoints_further_apart_resume_exactly(toy, run):
    """With a checkpoint every third iteration, a run stopped after the second begins anew and ends bit for bit so."""
    workspace, config = toy
    sparse = config.model_copy(update={"train": config.train.model_copy(update={"checkpoint_every": 3})})
    train_toy(workspace, sparse, "sparse", until=2)
    stopped = train_toy(workspace, sparse, "sparse", until=0)
    assert 0 == last_complete(stopped)[0]
    resumed = train_toy(workspace, sparse, "sparse")
    assert [False, False, True, True] == [resumed.checkpoint(number).is_dir() for number in range(1, 5)]
    for name in ("policy/model.safetensors", "optimizer.safetensors"):
        assert (run.checkpoint(4) / name).read_bytes() == (resumed.checkpoint(4) / name).read_bytes()
    assert (run.iteration(4) / "metrics.json").read_bytes() == (resumed.iteration(4) / "metrics.json").read_bytes()


def test_iterations_without_a_checkpoint_are_in_the_audit(toy):
    """The chain below a sparse checkpoint verifies, iterations between checkpoints included."""
    workspace, config = toy
    sparse = config.model_copy(update={"train": config.train.model_copy(update={"checkpoint_every": 4})})
    folder = train_toy(workspace, sparse, "audited")
    node = audit(workspace.root, folder.checkpoint(4), original=lambda name: None)
    names = {ref.path.rpartition("/")[2] for ref in read_manifest(folder.iteration(3) / "manifest.json").outputs}
    assert ((), False, True) == (node.failures, "checkpoint.json" in names, "oracle.json" in names)


def test_fresh_policy_needs_a_world():
    """A policy without pretraining has no words without a world."""
    with pytest.raises(ConfigError, match=r"'data.world' must be set where the policy is 'fresh:gpt2'"):
        base_model(build_config({**TOY, "data": {}}, source="test"))


def test_references_need_a_pool(toy):
    """A warm-up on references of an empty pool is refused, not passed over."""
    workspace, _ = toy
    with pytest.raises(PoolError, match="'warmup' pool must hold at least one prompt"):
        warmup(workspace, _config(warmup={"teaches": "references"}), silent)


def test_workspace_without_a_world_says_so(tmp_path):
    """Asking for a hidden order that was never made is a setting to correct."""
    with pytest.raises(ConfigError, match=r"'data.world' must be set and prepared; got no '.*world\.json'"):
        read_world(Workspace(tmp_path))


def test_agreement_may_be_asked_for(tmp_path):
    """A rubric with the group's agreement adds a coordinate to the synthetic judge's states."""
    (tmp_path / "w" / "rubrics").mkdir(parents=True)
    workspace, config = make_toy(tmp_path / "w")
    text = (workspace.root / "rubrics" / "candidates.yaml").read_text()
    (workspace.root / "rubrics" / "candidates.yaml").write_text(
        text + "  - {name: agreement, kind: agreement, cuts: [0.5]}\n"
    )
    from rangeline.stages.judging import open_judge, verify_rollouts
    from rangeline.stages.tables import read_rollouts

    rollouts = read_rollouts(workspace.calibration / "source_rollouts.parquet")
    rows = {row.prompt_id: row for row in read_pool(workspace, "source")}
    table = open_judge(workspace, config.judge).states(rollouts, rows, verify_rollouts(rollouts, rows), silent, "judge")
    assert ("rating", "clear", "agreement") == table.coordinates
    assert np.isin(table.levels_NK[:, 2], [-1, 0, 1]).all()
