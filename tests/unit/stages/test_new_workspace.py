"""New workspaces: settings that load, pools that are filled, own columns, refusals before anything is written."""

import json

import pytest
import yaml

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import minimum_calibration_rows
from rangeline.errors import ConfigError, DataContractError
from rangeline.stages.data import ingest, split
from rangeline.stages.data import pool_counts as counted
from rangeline.stages.new_workspace import NewWorkspace, as_contract, create_workspace, fill_settings
from rangeline.stages.workspace import PROJECT_HOME, open_workspace, require_named_settings

WANTED = NewWorkspace(policy="owner/policy", judge="owner/judge", suite="grade_school_math", max_tokens=99)
WORDS = ["river", "stone", "cloud", "lamp", "wheel", "bread", "copper", "violin", "garden", "needle", "inn", "pencil"]


def own_rows(labelled, unlabelled):
    """Return questions in somebody's own columns."""
    return [
        {
            "question": f"{i} {WORDS[i % 12]}s and {i * i} {WORDS[i // 12 % 12]}s are how many?",
            "answer": i + i * i,
            "year": 2020,
        }
        | ({} if i < labelled else {"answer": None})
        for i in range(labelled + unlabelled)
    ]


def write(path, rows):
    """Write rows as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def own(**over):
    """Return what is wanted for rows of `own_rows`."""
    fields = {name: getattr(WANTED, name) for name in WANTED.__slots__}
    return NewWorkspace(**{**fields, "prompt_field": "question", "reference_field": "answer", **over})


def test_twenty_references_among_sixty_prompts_fill_every_pool(tmp_path):
    """The counts told are those that preparing the data then makes, and calibration has prompts to lose."""
    made = create_workspace(tmp_path / "mine", write(tmp_path / "own.jsonl", own_rows(20, 40)), own())
    workspace, config = open_workspace(tmp_path / "mine")
    require_named_settings(workspace)
    ingest(workspace, config)
    split(workspace, config)
    told = made.prompts
    assert told == counted(workspace)
    assert 60 == sum(told.values()) + made.left_out
    assert 3 <= told["calibration"] - minimum_calibration_rows(config.intervals.alpha)
    assert 3 <= min(told[name] for name in ("source", "audit", "evaluation"))
    assert (0.2, 0, 99, "owner/policy", "owner/judge") == (
        config.intervals.alpha,
        config.warmup.epochs,
        config.sampling.max_tokens,
        config.policy.model,
        config.judge.model,
    )


def test_comments_of_the_settings_stay(tmp_path):
    """What each setting means stands beside it, as in the project's own file."""
    create_workspace(tmp_path / "mine", None, NewWorkspace(policy="p/q", judge="p/q", rubric="arithmetic"))
    text = (tmp_path / "mine" / "params.yaml").read_text()
    original = (PROJECT_HOME / "params.yaml").read_text()
    assert 0 == sum(line not in text for line in original.splitlines() if line.startswith("#"))
    assert "# counted on the token ids that the policy is sent" in text


def test_ids_follow_the_prompt_alone(tmp_path):
    """The same prompt has the same id wherever it stands; unknown columns are kept as metadata."""
    rows = own_rows(2, 0)
    one, two = as_contract(rows, own(), stem="own"), as_contract(rows[::-1], own(), stem="own")
    assert one == two[::-1]
    assert {"year": 2020} == one[0]["metadata"]
    assert "0" == one[0]["reference"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (own_rows(11, 40), "at least 12 references; got 11 in 51 rows"),
        (own_rows(40, 0), "prompts without a reference, which the policy trains on; got 0 of 40"),
        ([{"question": " ", "answer": "1"}], "'prompt' must"),
    ],
)
def test_data_that_cannot_serve_is_refused_unwritten(tmp_path, rows, message):
    """Too few references, nothing to train on and blank prompts are told before a file is made."""
    with pytest.raises(DataContractError, match=message):
        create_workspace(tmp_path / "mine", write(tmp_path / "own.jsonl", rows), own())
    assert not (tmp_path / "mine").exists()


def test_a_workspace_in_use_is_left_alone(tmp_path):
    """A second `init` in one folder changes nothing."""
    (tmp_path / "params.yaml").write_text("seed: 5\n")
    with pytest.raises(ConfigError, match=r"must be a new workspace; got one with a params.yaml"):
        create_workspace(tmp_path, None, WANTED)
    assert "seed: 5\n" == (tmp_path / "params.yaml").read_text()


def test_an_unknown_rubric_is_refused_with_those_that_exist(tmp_path):
    """The message lists the rubrics to start from."""
    with pytest.raises(ConfigError, match=r"'rubric' must be one of arithmetic, .*correctness"):
        create_workspace(tmp_path / "mine", None, own(rubric="kindness"))


def test_every_replaced_setting_has_its_value_and_no_other_changes():
    """Filling the project's own settings changes the named values alone."""
    text = (PROJECT_HOME / "params.yaml").read_text()
    filled = yaml.safe_load(fill_settings(text, {"data.generators": [], "sampling.max_tokens": 7, "split.key": "k"}))
    expected = yaml.safe_load(text)
    expected["data"]["generators"], expected["sampling"]["max_tokens"], expected["split"]["key"] = [], 7, "k"
    assert expected == filled
    PipelineConfig.model_validate(filled)


def test_a_setting_that_is_not_there_is_refused():
    """A name that the settings do not hold is no silent addition."""
    with pytest.raises(ConfigError, match=r"'a\.z' must stand in params"):
        fill_settings("a: {b: 1}\n", {"a.z": 1})


def test_what_few_labels_cannot_promise_is_told(tmp_path):
    """Twenty references: no verdict on coverage, a lucky or unlucky calibration set, hardly any accuracy to see."""
    made = create_workspace(tmp_path / "mine", write(tmp_path / "own.jsonl", own_rows(20, 40)), own())
    told = " ".join(made.limits)
    for words in ("Coverage will have no verdict", "lucky or unlucky", "only very large changes"):
        assert words in told
    assert "the run stops" not in told


def test_too_few_audits_widen_where_many_recalibrate(tmp_path):
    """Broken overlap never leads to a calibration on audits that are too few for it."""
    consequence = {}
    for labelled in (20, 400):
        root = tmp_path / str(labelled)
        create_workspace(root, write(tmp_path / "own.jsonl", own_rows(labelled, 40)), own())
        consequence[labelled] = open_workspace(root)[1].overlap.ess_share.consequence
    assert {20: "widen", 400: "recalibrate"} == consequence
