"""Plans made from the names of reward sources."""

import pytest
import yaml
from tiny import ROOT

from rangeline.config import PipelineConfig, build_config, merge
from rangeline.errors import ConfigError
from rangeline.rewards.registry import SOURCES
from rangeline.stages.comparison_jobs import lay_out
from rangeline.stages.comparison_plan import read_plan
from rangeline.stages.comparison_sources import choose_plan, named_sources, source_plan
from rangeline.stages.workspace import Workspace


def test_all_names_every_source():
    """`all` is each source once, in the registry's order; a list keeps its own order."""
    assert tuple(SOURCES) == named_sources("all")
    assert ("sft", "majority") == named_sources(" sft,majority ,")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("majorty", "got 'majorty'. Did you mean 'majority'?"),
        ("majority,majority", "got 'majority'. Name each once"),
        (" , ", "got ' , '. Name each once"),
        ("all,majority", "got 'all'"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(text, says):
    """Unknown, repeated and absent names are told from each other."""
    with pytest.raises(ConfigError, match=f"'--rewards' must be all, or some of .*{says}"):
        named_sources(text)


def _config(**over):
    return build_config(merge(PipelineConfig().model_dump(mode="json"), over), source="test")


def test_settings_of_the_workspace_and_assignments_reach_every_run(tmp_path):
    """Seed and unversioned settings are the workspace's; iterations and assignments lie over them."""
    config = _config(seed=7, objective={"learning_rate": 0.5}, train={"iterations": 9})
    path = choose_plan(
        Workspace(tmp_path),
        config,
        plan=None,
        rewards="majority,verifier",
        iterations=3,
        assignments=["sampling.max_tokens=5"],
    )
    (tmp_path / "params.yaml").write_text("seed: 7\n")
    laid = lay_out(tmp_path, path)
    runs = [job.run.config for job in laid.reported_jobs({})]
    assert [("majority", 7, 3, 0.5, 5), ("verifier", 7, 3, 0.5, 5)] == [
        (c.reward.source, c.seed, c.train.iterations, c.objective.learning_rate, c.sampling.max_tokens) for c in runs
    ]


def test_other_settings_are_another_comparison(tmp_path):
    """The same names with the same settings are one plan, so that it resumes; others lie apart."""

    def name(rewards="majority", iterations=3, **over):
        workspace = Workspace(tmp_path)
        return choose_plan(workspace, _config(**over), plan=None, rewards=rewards, iterations=iterations).parent.name

    assert name() == name()
    assert 4 == len({name(), name("verifier"), name(iterations=4), name(train={"audit_prompts": 3})})


def test_trapo_is_given_labelled_prompts():
    """Half of an iteration's prompts where the settings mix in none, else as many as they say."""
    for given, expected in ((0, 4), (3, 3)):
        config = _config(train={"prompts_per_iteration": 8, "labelled_prompts": given})
        (method,) = source_plan(["trapo"], config, 1)["methods"]
        assert expected == method["settings"]["train"]["labelled_prompts"]


def test_a_plan_and_sources_exclude_each_other(tmp_path):
    """Both, neither, and iterations for a plan are one clear error each; a plan alone is taken as it is."""
    workspace, plan = Workspace(tmp_path), tmp_path / "p.yaml"
    with pytest.raises(ConfigError, match="must have a plan file or --rewards; got neither"):
        choose_plan(workspace, _config(), plan=None, rewards=None)
    with pytest.raises(ConfigError, match=r"must have a plan file or --rewards; got both .*p.yaml' and --rewards all"):
        choose_plan(workspace, _config(), plan=plan, rewards="all")
    with pytest.raises(ConfigError, match="'--iterations' must go with --rewards; got 3 and a plan"):
        choose_plan(workspace, _config(), plan=plan, rewards=None, iterations=3)
    assert plan == choose_plan(workspace, _config(), plan=plan, rewards=None)


def test_every_source_can_be_laid_out_together(tmp_path):
    """The plan of all sources is valid, and each seed is made what its sources need: calibration and anchors."""
    path = choose_plan(Workspace(tmp_path), _config(), plan=None, rewards="all", iterations=2)
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    assert set(SOURCES) == {method.name for method in read_plan(path)[0].methods}
    starts, further = lay_out(tmp_path, path).prepare_rounds()
    assert ["default, seed 0: data and start"] == [job.label for job in starts]
    assert ["default, seed 0: calibration", "default, seed 0: anchors"] == [job.label for job in further]
    assert {"pools": ["policy"]}.items() <= yaml.safe_load(path.read_text())["settings"]["anchors"].items()


def test_ablations_of_rlpr_are_a_plan(tmp_path):
    """Each method of the shipped plan differs from RLPR by the one setting that its name says, at one budget."""
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    runs = {
        job.run.method.name: job.run.config
        for job in lay_out(tmp_path, ROOT / "configs/compare/rlpr.yaml").reported_jobs({})
    }
    whole = runs["rlpr"].reward.reference_probability
    changes = {
        "no-debias": {"debias": False},
        "no-filter": {"filter": {**whole.filter.model_dump(), "enabled": False}},
        "product": {"aggregate": "product"},
        "root": {"aggregate": "root"},
        "rlpr-and-verifier": {"verifier_weight": 1.0},
    }
    assert (True, True, "mean", 0.0) == (whole.debias, whole.filter.enabled, whole.aggregate, whole.verifier_weight)
    for name, change in changes.items():
        assert {**whole.model_dump(), **change} == runs[name].reward.reference_probability.model_dump()
        assert runs["rlpr"].advantages == runs[name].advantages
    assert ("verifier", "verifree") == (runs["verifier"].reward.source, runs["verifree"].reward.source)
    assert 1 == len({(c.train.prompts_per_iteration, c.train.labelled_prompts) for c in runs.values()})
    assert {"none"} == {c.advantages.advantage_scale for c in runs.values()}
    assert {"grpo", "rloo"} == {c.advantages.estimator for c in runs.values()}
    assert {"reasoning"} == {c.data.reply for c in runs.values()}
    assert runs["rlpr"].train.iterations > whole.filter.filter_from


def test_votes_alone_need_neither_calibration_nor_anchors(tmp_path):
    """What no source asks for is not made."""
    path = choose_plan(Workspace(tmp_path), _config(), plan=None, rewards="majority,sft", iterations=1)
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    assert [] == lay_out(tmp_path, path).prepare_rounds()[1]
