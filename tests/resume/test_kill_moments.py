"""A run that is killed right before any of its file operations goes on to the bytes of one that nobody killed."""

import signal

import pytest

STATES = {
    "judge": {"advantages": {"estimator": "range", "reference_width": 0.25, "advantage_scale": "match_initial"}},
    "auto": {"advantages": {"estimator": "auto", "reference_width": "auto"}},
    "recalibrated": {"recalibrate": [2]},
    "trapo": {"reward": {"source": "trapo"}, "train": {"labelled_prompts": 4, "prompts_per_iteration": 40}},
    "reference_probability": {
        "reward": {
            "source": "reference_probability",
            "reference_probability": {"filter": {"record_from": 1, "filter_from": 2, "beta": 0.9, "decay": 0.5}},
        }
    },
    "anchor_contrast": {"reward": {"source": "anchor_contrast"}},
    "kl_and_sampler": {"objective": {"kl_coefficient": 0.1}, "policy": {"sampler_dtype": "bfloat16"}},
    "sparse": {"train": {"checkpoint_every": 2}},
}
"""Settings whose run carries something from one iteration to the next, by what it carries."""


def moments_of(case, words, iteration):
    """Return the first moment of an iteration that each word names; every word must name one."""
    found = {
        word: [i for i, name in enumerate(case.seen) if word in name and f"{iteration:06d}" in name] for word in words
    }
    assert [] == [word for word, moments in found.items() if not moments]
    return [moments[0] for moments in found.values()]


def require_equal_bytes(case, moments, digests):
    """Kill at each moment, from one snapshot, go on, and compare every file."""
    for moment in moments:
        case.restore()
        assert -signal.SIGKILL == case.train(kill_at=moment)["ended"], case.seen[moment]
        assert 0 == case.train()["ended"], case.seen[moment]
        assert case.expected == digests(case.run), case.seen[moment]


def test_killed_while_a_checkpoint_is_written_or_retired(begun, digests):
    """Killed before the marker, before the name, before the manifest or amid deletion, a run ends with equal bytes."""
    case = begun(train={"keep_best": "none"})
    moments = moments_of(case, ["COMPLETE", "rename checkpoints", "rename iterations/000003/.manifest"], 3)
    amid = [i for i, name in enumerate(case.seen) if "os.remove checkpoints/000001.replaced" in name]
    require_equal_bytes(case, [*moments, amid[1]], digests)


def test_killed_at_calls_of_an_iteration(begun, digests):
    """Killed after sampling, after judging and before the update is written down, a run ends with equal bytes."""
    case = begun(2, snapshot_at=1)
    require_equal_bytes(case, moments_of(case, ["ratio_rollouts", ".ratio.json", "update.json"], 2), digests)


@pytest.mark.parametrize("state", ["trapo", "reference_probability"])
def test_state_of_a_reward_source_outlasts_a_kill(state, begun, digests):
    """Killed when its state is written but its iteration is not closed, a source goes on from the state before."""
    case = begun(2, snapshot_at=1, **STATES[state])
    require_equal_bytes(case, moments_of(case, ["update.json"], 2), digests)
    assert any(name.endswith("reward_state.json") for name in case.expected)


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES)
def test_killed_at_every_call_with_any_state(state, begun, digests):
    """Killed before each file of the second of four iterations gets its name, every state goes on to equal bytes."""
    case = begun(4, snapshot_at=1, **STATES[state])
    named = [i for i, name in enumerate(case.seen) if name.startswith("os.rename") and "000002" in name]
    assert len(named) > 8
    require_equal_bytes(case, named, digests)


@pytest.mark.slow
def test_killed_before_every_operation_of_an_iteration(begun, digests):
    """Whatever of an iteration's operations on files was the last, a run ends with equal bytes."""
    case = begun(3, snapshot_at=2, train={"keep_best": "none"})
    assert len(case.seen) > 90
    require_equal_bytes(case, range(len(case.seen)), digests)
