"""Laws of training through a real server: it follows the policy, survives death, and changes nothing but the draws."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tiny import make_toy, merged, train_toy

from rangeline.config import build_config
from rangeline.errors import EngineDiedError, RolloutError
from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_logprobs
from rangeline.rollout.vllm_server import ServerOptions, VllmServer
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_advantages, read_intervals, read_rollouts

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

POLICY = {
    "model": "fresh:gpt2",
    "architecture": {"n_layer": 1, "n_embd": 64, "n_head": 2, "n_positions": 512, "initializer_range": 0.15},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Make a word world whose policy a vLLM server can hold."""
    return make_toy(tmp_path_factory.mktemp("served-world") / "w", policy=POLICY, train={"iterations": 2})


@pytest.fixture(scope="module")
def address(world, tmp_path_factory):
    """Run one server on the world's warmed-up policy, as `rangeline serve vllm` does; give its address."""
    workspace, _ = world
    folder = tmp_path_factory.mktemp("address")
    options = ServerOptions(model=workspace.warmup / "policy", sync_root=folder / "root", max_model_len=512)
    with VllmServer.start(options, log=folder / "vllm.log") as server:
        yield server.url


def changed(config, **rollout):
    """Return settings that sample with a server."""
    return build_config(merged(config.model_dump(mode="json"), {"rollout": {"engine": "vllm", **rollout}}), source="t")


def state_of(folder):
    """Read the named state of a run's engine."""
    return json.loads((folder.root / "engine.json").read_text())


def test_rollouts_follow_the_policy(world, address):
    """Each iteration is sampled by the version of the policy before its update, and the sampler agrees with it."""
    workspace, config = world
    folder = train_toy(workspace, changed(config, url=address), "follows")
    versions = [read_rollouts(folder.iteration(n) / "policy_rollouts.parquet").policy_version for n in (1, 2)]
    assert [0, 1] == versions
    gaps = [json.loads((folder.iteration(n) / "metrics.json").read_text())["policy/mismatch_max"] for n in (1, 2)]
    assert max(gaps) < 1e-3
    state = state_of(folder)
    assert ("ready", 1) == (state["state"], state["policy_version"])
    assert state["sync"]["gap_new"] < 1e-4 < state["sync"]["gap_old"]


def test_equal_rollouts_give_equal_intervals_and_advantages(world, address):
    """Fed the same rollouts, a run of the in-process engine makes the same intervals, advantages and update."""
    workspace, config = world
    sampled = train_toy(workspace, changed(config, url=address), "served", until=1).iteration(1)
    with TrainingSession(workspace, config, run="in-process") as session:
        fed = session.iteration(1).folder
        fed.mkdir(parents=True)
        for share in session.iteration(1).shares:
            shutil.copy(sampled / f"{share}_rollouts.parquet", fed)
        session.judge_states(1)
        session.bound(1)
        session.cover(1)
        session.update(1)
    ours, theirs = (read_intervals(folder / "policy_intervals.parquet") for folder in (fed, sampled))
    np.testing.assert_array_equal(ours.lower_N, theirs.lower_N)
    np.testing.assert_array_equal(ours.upper_N, theirs.upper_N)
    ours, theirs = (read_advantages(folder / "advantages.parquet") for folder in (fed, sampled))
    np.testing.assert_array_equal(ours.value_N, theirs.value_N)
    loss, other = (json.loads((folder / "update.json").read_text())["loss"] for folder in (fed, sampled))
    assert loss == pytest.approx(other, abs=1e-9)


def test_a_resumed_run_draws_what_the_whole_run_drew(world, address):
    """Stopped after an iteration and opened again, a run samples the next one as the run that was not stopped."""
    workspace, config = world
    whole = train_toy(workspace, changed(config, url=address), "whole")
    train_toy(workspace, changed(config, url=address), "parted", until=1)
    parted = train_toy(workspace, changed(config, url=address), "parted")
    name = "policy_rollouts.parquet"
    for number in (1, 2):
        ours, theirs = (read_rollouts(run.iteration(number) / name) for run in (whole, parted))
        assert ours.token_ids_N == theirs.token_ids_N


def test_rollouts_drawn_ahead_are_one_version_old(world, address):
    """With staleness 1 each iteration but the first is sampled by the policy before the last update, and says so."""
    workspace, config = world
    config = with_settings(config, objective={"learning_rate": 5e-4, "mismatch": {"correction": "token"}})
    settings = changed(with_settings(config, train={"iterations": 3}), url=address, staleness=1)
    ahead = train_toy(workspace, settings, "ahead")
    name = "policy_rollouts.parquet"
    assert [0, 0, 1] == [read_rollouts(ahead.iteration(n) / name).policy_version for n in (1, 2, 3)]
    synchronous = train_toy(workspace, changed(config, url=address), "synchronous")
    first = [read_rollouts(run.iteration(1) / name).token_ids_N for run in (ahead, synchronous)]
    assert first[0] == first[1]
    # Nothing is stale without drawing ahead: the factors are 1 and the corrected update is the uncorrected one.
    for number in (1, 2):
        update = json.loads((synchronous.iteration(number) / "update.json").read_text())
        assert update["importance_factor_mean"] == pytest.approx(1.0, abs=1e-4)
    train_toy(workspace, settings, "ahead-parted", until=2)
    parted = train_toy(workspace, settings, "ahead-parted")
    for number in (2, 3):
        drawn = [read_rollouts(run.iteration(number) / name) for run in (ahead, parted)]
        assert drawn[0].token_ids_N == drawn[1].token_ids_N
        assert drawn[0].policy_version == drawn[1].policy_version


def with_settings(config, **over):
    """Return settings with others laid over them."""
    return build_config(merged(config.model_dump(mode="json"), over), source="t")


def test_the_server_scores_as_the_policy(world, address):
    """After each update the server's log-probabilities of given answers are those of the policy's present weights."""
    workspace, config = world
    config = with_settings(config, objective={"learning_rate": 5e-4})
    with TrainingSession(workspace, changed(config, url=address, scoring="server"), run="scores") as session:
        session.sample(1)
        rollouts = read_rollouts(session.iteration(1).folder / "policy_rollouts.parquet")
        rows = [
            SuffixRow(prompt_ids=prompt, suffix_ids=ids, num_scored=len(ids))
            for prompt, ids in zip(rollouts.prompt_token_ids_N, rollouts.token_ids_N, strict=True)
        ]
        before = np.concatenate(session.models.policy_logprobs(rows, share_prefix=True))
        np.testing.assert_allclose(before, np.concatenate(suffix_logprobs(session.worker.model, rows)), atol=1e-4)
        session.judge_states(1)
        session.bound(1)
        session.cover(1)
        session.update(1)
        after = np.concatenate(session.models.policy_logprobs(rows, share_prefix=True))
        np.testing.assert_allclose(after, np.concatenate(suffix_logprobs(session.worker.model, rows)), atol=1e-4)
    assert np.abs(after - before).max() > 1e-3


def test_a_failed_update_stops_the_run_in_a_named_state(world, address):
    """Weights that the server refuses leave it paused; the run says so by name, and the next sync goes on."""
    workspace, config = world
    with TrainingSession(workspace, changed(config, url=address), run="refused") as session:
        session.sample(1)
        version = session.worker.policy_version
        model, session.worker.policy_version = session.worker.model, version + 1
        spoiled = model.transformer.wte.weight.data
        model.transformer.wte.weight.data = spoiled[:-1].clone()
        with pytest.raises(RolloutError, match="must be those of the served model; refused"):
            session.sample(1)
        state = state_of(session.opened.folder)
        assert ("update refused", version + 1) == (state["state"], state["policy_version"])
        assert session._server._client.is_paused
        model.transformer.wte.weight.data, session.worker.policy_version = spoiled, version
        session.sample(1)
        assert "ready" == state_of(session.opened.folder)["state"]


def test_a_killed_server_is_seen_ended_and_started_again(world):
    """After kill -9 of the server sampling fails by name, no process of it is left, and the next call starts anew."""
    workspace, config = world
    with TrainingSession(workspace, changed(config), run="killed") as session:
        session.sample(1)
        drawn = read_rollouts(session.iteration(1).folder / "policy_rollouts.parquet").token_ids_N
        engine, server = session._server.prepare(), session._server._server
        family = processes_of(server.pid)
        assert 2 <= len(family)
        os.kill(server.pid, signal.SIGKILL)
        server._process.wait()
        prompts, plan = session.iteration(1).asked(session.worker.tokenizer)["policy"]
        with pytest.raises(EngineDiedError, match="must answer"):
            session._server.watched(
                lambda: engine.generate(prompts, plan, run_seed=0, iteration=1, purpose="train/policy")
            )
        assert "died" == state_of(session.opened.folder)["state"]
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}/exe").exists() for pid in family) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not [pid for pid in family if Path(f"/proc/{pid}/exe").exists()]
        session.sample(1)
        assert drawn == read_rollouts(session.iteration(1).folder / "policy_rollouts.parquet").token_ids_N
        again = processes_of(session._server._server.pid)
    assert not [pid for pid in again if Path(f"/proc/{pid}/exe").exists()]


def processes_of(group):
    """Return the numbers of a process group's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found.append(int(path.parent.name))
    return found
