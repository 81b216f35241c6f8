"""Plans: presets, pairing by settings, tuning on other seeds and other prompts."""

import pytest
import yaml
from tiny import ROOT

from rangeline.config import PipelineConfig, merge
from rangeline.errors import ConfigError
from rangeline.stages.comparing import is_validation, kept_iterations
from rangeline.stages.comparison_jobs import choose_rates, lay_out
from rangeline.stages.comparison_plan import plan_run, preset, read_plan
from rangeline.stages.comparison_runs import Looks, run_name

TABLE = ("lb-grpo", "lb-dr_grpo", "mid-grpo", "mid-dr_grpo", "ub-grpo", "ub-dr_grpo", "uarm", "range")


def _plan(tmp_path, **over):
    values = {"methods": ["range", "mid-dr_grpo"], "seeds": [1, 2], **over}
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("name", [*TABLE, "auto", "rloo", "oracle", "random", "range-reciprocal-0.25"])
def test_presets_are_methods(tmp_path, name):
    """Every usual name is a method whose settings are valid."""
    plan, base = read_plan(_plan(tmp_path, methods=[name], reference=name))
    run = plan_run(plan, base, design="default", seed=1, method=plan.methods[0], role="test")
    assert name == run.method.name
    assert ("oracle" in name, "random" in name) == (run.method.rewards == "oracle", run.method.rewards == "random")


def test_the_usual_names_are_the_methods_of_the_shipped_table():
    """A plan that names the methods of the table by their presets compares what the table compares."""
    plan, _ = read_plan(ROOT / "configs/compare/table1.yaml")
    assert {"auto", *TABLE} == {method.name for method in plan.methods}
    assert plan.method("auto").settings == preset("auto")["settings"]


def test_the_eight_methods_of_the_table_differ():
    """No two presets give the same advantages."""
    assert len(TABLE) == len({str(preset(name)["settings"]) for name in TABLE})


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"methods": ["median"]}, "Method 'median' must be auto, range, uarm"),
        ({"methods": ["range", "range"]}, "methods must have distinct names"),
        ({"methods": ["uarm"]}, "'reference' must be one of the methods uarm"),
        ({"tuning": {"seeds": [2, 7], "grid": [0.1, 0.2]}}, "tuning seeds must not be reported; 2 is both"),
        (
            {"tuning": {"seeds": [7], "grid": [0.1, 0.2], "designs": ["far"]}},
            "tuning designs must be designs of the plan; got 'far'",
        ),
        (
            {"methods": [{"name": "best", "rewards": "oracle"}], "reference": "best"},
            "its name must begin with 'oracle'",
        ),
        ({"seeds": []}, "Setting 'seeds' of the plan is not valid"),
        ({"pairs": 3}, "Setting 'pairs' of the plan is not valid"),
        ({"seeds": [1, 2, 1]}, "seeds must be distinct; got 1 twice"),
        ({"designs": {"far": {"seeds": [3, 3]}}}, "seeds of design 'far' must be distinct; got 3 twice"),
        ({"tuning": {"seeds": [7, 7], "grid": [0.1, 0.2]}}, "tuning seeds must be distinct; got 7 twice"),
        ({"tuning": {"seeds": [7], "grid": [0.1, 0.1]}}, "tuning grid must be distinct; got 0.1 twice"),
        ({"seeds": [True, 2]}, "Setting 'seeds.0' of the plan is not valid"),
    ],
)
def test_plans_that_cannot_be_meant_are_refused(tmp_path, over, says):
    """The message names the setting and the rule."""
    with pytest.raises(ConfigError, match=says):
        read_plan(_plan(tmp_path, **over))


def test_methods_may_not_change_what_they_share(tmp_path):
    """A method with data, start or sampling of its own would not be paired."""
    method = {"name": "long", "settings": {"sampling": {"max_tokens": 9}}}
    plan, base = read_plan(_plan(tmp_path, methods=["range", method]))
    with pytest.raises(ConfigError, match="Method 'long' must leave 'sampling' as it is"):
        plan_run(plan, base, design="default", seed=1, method=plan.methods[1], role="test")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"train": {"iterations": 9}}, "train.iterations"),
        ({"train": {"prompts_per_iteration": 9}}, "train.prompts_per_iteration"),
        ({"train": {"ratio_prompts": 9}}, "train.ratio_prompts"),
        ({"train": {"audit_prompts": 9}}, "train.audit_prompts"),
        ({"train": {"labelled_prompts": 9}}, "train.labelled_prompts"),
        ({"evaluate": {"samples": 9}}, "evaluate"),
        ({"intervals": {"alpha": 0.3}}, "intervals.alpha"),
        ({"seed": 9}, "seed"),
    ],
)
def test_methods_may_not_change_their_budget_or_what_they_are_measured_by(tmp_path, settings, named):
    """Unequal budgets, labels, held-out measurements or promised coverage are refused before a rollout is drawn."""
    plan, base = read_plan(_plan(tmp_path, methods=["range", {"name": "more", "settings": settings}]))
    with pytest.raises(ConfigError, match=f"Method 'more' must leave '{named}' as it is"):
        plan_run(plan, base, design="default", seed=1, method=plan.method("more"), role="test")


@pytest.mark.parametrize("source", ["majority", "verifier", "reference_probability"])
def test_methods_without_a_judge_are_refused(tmp_path, source):
    """Estimators are compared on the judge's intervals; sources are, where methods name them."""
    plan, base = read_plan(_plan(tmp_path, settings={"reward": {"source": source}}))
    with pytest.raises(ConfigError, match=f"must learn from rewards of the judge.*'{source}'"):
        plan_run(plan, base, design="default", seed=1, method=plan.methods[0], role="test")


def test_runs_are_found_again_by_their_settings(tmp_path):
    """The same run has the same folder whatever else the plan holds; another rate, role or seed has another."""
    looks = Looks(every=2, validation_share=0.2, keep_files=False)
    plan, base = read_plan(_plan(tmp_path))
    wider, _ = read_plan(_plan(tmp_path, seeds=[1, 2, 3], methods=["range", "uarm"]))

    def name(chosen=plan, **over):
        settings = {"design": "default", "seed": 1, "method": chosen.methods[0], "role": "test", **over}
        return run_name(plan_run(chosen, base, **settings), looks)

    assert name() == name(wider)
    others = [name(rate=0.5), name(rate=0.5, role="validation"), name(seed=2), name(method=plan.methods[1])]
    assert 5 == len({name(), *others})


def test_a_run_that_reached_its_end_is_found_whenever_others_are_given_up(tmp_path):
    """What only says when a run is given up, or what is kept of it, is no part of its name; what it computes is."""
    looks = Looks(every=2, validation_share=0.2, keep_files=False)
    plan, base = read_plan(_plan(tmp_path))

    def name(**train):
        values = merge(base, {"train": train})
        return run_name(plan_run(plan, values, design="default", seed=1, method=plan.methods[0], role="test"), looks)

    assert name() == name(max_silent_iterations=80) == name(on_alarm="continue") == name(completions=False)
    assert name() == name(keep_checkpoints=5)
    assert name() != name(prompts_per_iteration=3)


@pytest.mark.parametrize("kept", [False, True])
def test_completions_are_written_where_files_are_kept(tmp_path, kept):
    """Pages of completions that would go with their iteration are not made."""
    plan, base = read_plan(_plan(tmp_path, keep_files=kept))
    run = plan_run(plan, base, design="default", seed=1, method=plan.methods[0], role="test")
    assert kept is run.config.train.completions


FIXED = {"estimator": "range", "reference_width": 0.25}


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ({"intervals": {"adapt": "audit_window", "adapt_window": 30}}, 30),
        ({"intervals": {"adapt": "none", "adapt_window": 30}, "advantages": FIXED}, 20),
        ({"train": {"max_silent_iterations": 50}}, 50),
        ({"intervals": {"adapt": "none"}, "advantages": {"estimator": "auto"}}, 20),
    ],
)
def test_iterations_that_a_resumed_run_looks_back_to_are_kept(over, expected):
    """As many stay as the audit window, the choice of the estimator and the count of silent iterations read."""
    assert expected == kept_iterations(PipelineConfig.model_validate(over))


def test_seeds_share_a_workspace_over_methods_and_tuning_has_its_own(tmp_path):
    """One workspace a design and seed; tuning runs lie in those of tuning seeds alone."""
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    over = {"tuning": {"seeds": [7], "grid": [0.1, 0.2], "designs": ["near"]}, "designs": {"near": {}, "far": {}}}
    laid = lay_out(tmp_path, _plan(tmp_path, **over))
    reported, tuning = laid.reported_jobs({}), laid.tuning_jobs()
    assert {("near", 1), ("near", 2), ("near", 7), ("far", 1), ("far", 2)} == set(laid.seeds)
    assert (8, 4) == (len(reported), len(tuning))
    assert not {job.workspace for job in reported} & {job.workspace for job in tuning}
    assert {7} == {job.run.seed for job in tuning}


def test_tuned_rates_reach_the_reported_runs(tmp_path):
    """A chosen rate replaces the method's own, for its design alone."""
    (tmp_path / "params.yaml").write_text("seed: 0\n")
    laid = lay_out(tmp_path, _plan(tmp_path), ["objective.learning_rate=0.5"])
    rates = {
        job.label: job.run.config.objective.learning_rate for job in laid.reported_jobs({("default", "range"): 0.25})
    }
    assert {0.25} == {rate for label, rate in rates.items() if ", range," in label}
    assert {0.5} == {rate for label, rate in rates.items() if ", mid" in label}


def test_design_and_method_settings_are_laid_in_order(tmp_path):
    """The design lies over the plan, the method over the design, and the seed is the run's."""
    method = {"name": "wide", "settings": {"advantages": {"reference_width": 3.0}}}
    over = {
        "methods": ["range", method],
        "settings": {"advantages": {"reference_width": 1.0}, "train": {"iterations": 2}},
        "designs": {"far": {"settings": {"advantages": {"reference_width": 2.0}}}},
    }
    plan, base = read_plan(_plan(tmp_path, **over))
    runs = [plan_run(plan, merge({}, base), design="far", seed=2, method=m, role="test") for m in plan.methods]
    assert [2.0, 3.0] == [run.config.advantages.reference_width for run in runs]
    assert [(2, 2), (2, 2)] == [(run.config.seed, run.config.train.iterations) for run in runs]


def test_rates_are_chosen_by_mean_score():
    """The best mean wins; equal means give the smaller rate; a rate with a failed run is out."""
    scores = {
        "a": {0.1: [0.2, 0.4], 0.2: [0.4, 0.4]},
        "b": {0.1: [0.5, 0.5], 0.2: [0.6, 0.4]},
        "c": {0.1: [0.3, 0.3], 0.2: [0.9, None]},
    }
    assert {"a": 0.2, "b": 0.1, "c": 0.1} == choose_rates(scores, [0.2, 0.1])


def test_a_method_that_never_finished_tuning_is_refused():
    """Nothing is reported at a rate that was not chosen."""
    with pytest.raises(ConfigError, match="Method 'a' must finish its tuning runs at one rate at least"):
        choose_rates({"a": {0.1: [None]}}, [0.1, 0.2])


def test_validation_prompts_are_set_apart_by_their_own_hash():
    """About the asked share; a prompt of a small share is one of every larger share."""
    names = [f"p{i}" for i in range(1000)]
    small, large = ({name for name in names if is_validation(name, share)} for share in (0.2, 0.5))
    assert 150 < len(small) < 250
    assert small < large


def _prompts(tmp_path, train, **over):
    """Return policy, labelled and ratio prompts of the second of two sources, of a shared 8 + 0 + 6."""
    shared = {"prompts_per_iteration": 8, "ratio_prompts": 6}
    methods = [
        {"name": "range", "settings": {"reward": {"source": "judge_interval"}}},
        {"name": "other", "settings": {"reward": over, "train": train}},
    ]
    plan, base = read_plan(_plan(tmp_path, methods=methods, settings={"train": shared}))
    config = plan_run(plan, base, design="default", seed=1, method=plan.method("other"), role="test").config
    return config.train.prompts_per_iteration, config.train.labelled_prompts, config.train.ratio_prompts


def test_sources_share_one_budget(tmp_path):
    """Of 14 prompts: a vote takes the 6 that no ratio needs; labelled prompts count; a judge keeps its 6.

    Texts are learned from one completion a prompt, so 14 groups of 8 are 112 prompts.
    """
    assert (14, 0, 6) == _prompts(tmp_path, {}, source="majority")
    assert (10, 4, 6) == _prompts(tmp_path, {"labelled_prompts": 4}, source="trapo")
    assert (8, 0, 6) == _prompts(tmp_path, {}, source="student_t")
    assert (112, 0, 6) == _prompts(tmp_path, {}, source="sft")
    assert (14, 0, 6) == _prompts(tmp_path, {"labelled_prompts": 4}, source="verifier")


def test_labelled_prompts_must_fit_the_budget(tmp_path):
    """Labelled prompts that use up the shared budget leave nothing to learn from, which is an error."""
    with pytest.raises(ConfigError, match=r"'train\.labelled_prompts' must leave policy prompts in the shared budget"):
        _prompts(tmp_path, {"labelled_prompts": 14}, source="trapo")
