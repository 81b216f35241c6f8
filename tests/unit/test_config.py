"""Settings: unknown names, ranges, merging and assignments; nothing is hidden from params.yaml."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from rangeline.config import (
    OverlapConfig,
    PipelineConfig,
    Section,
    build_config,
    merge,
    parse_assignment,
    read_settings,
)
from rangeline.conformal.overlap_rules import DIAGNOSTICS
from rangeline.errors import ConfigError

PROJECT = Path(__file__).resolve().parents[2]
PARAMS = PROJECT / "params.yaml"


def _fields(model, prefix=""):
    """Yield the dotted name of every setting below a section."""
    for name, info in model.model_fields.items():
        nested = info.annotation
        if isinstance(nested, type) and issubclass(nested, Section):
            yield from _fields(nested, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _names(values, known, prefix=""):
    """Yield the dotted name of every setting in a nested mapping, down to the known ones."""
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path in known:
            yield path
        else:
            yield from _names(value, known, f"{path}.")


def test_project_settings_are_valid():
    """Every value of the project's params.yaml is accepted as it stands."""
    config = build_config(read_settings(PARAMS), source=str(PARAMS))
    assert read_settings(PARAMS)["sampling"] == config.sampling.model_dump()


def test_project_settings_name_every_field():
    """Params.yaml names each setting that exists and no other, so no default is hidden."""
    known = set(_fields(PipelineConfig))
    assert known == set(_names(read_settings(PARAMS), known))


def test_no_settings_are_the_defaults():
    """An empty mapping gives the default configuration."""
    assert PipelineConfig() == build_config({}, source="s")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sede": 1}, r"'sede' is not known \(a\.yaml\)\. Did you mean 'seed'\?"),
        ({"objective": {"clip_lo": 0.1}}, r"'objective\.clip_lo' is not known \(a\.yaml\)\. Did you mean 'clip_low'\?"),
        ({"zzz": 1}, r"'zzz' is not known \(a\.yaml\)\. Remove it"),
        (
            {"data": {"generators": [{"name": "n", "size": 1, "domain": "d", "labelled": True, "shaer": 1}]}},
            r"'data\.generators\.0\.shaer' is not known \(a\.yaml\)",
        ),
    ],
)
def test_unknown_name_is_refused_with_a_suggestion(values, message):
    """An unknown setting is an error that names it, its file, and the nearest known one."""
    with pytest.raises(ConfigError, match=message):
        build_config(values, source="a.yaml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampling": {"group_size": 1}}, r"'sampling\.group_size' .*greater than or equal to 2; got 1 \(a\.yaml\)"),
        ({"intervals": {"alpha": 1}}, r"'intervals\.alpha' .*less than 1; got 1 \(a\.yaml\)"),
        ({"train": {"iterations": 0}}, r"'train\.iterations' .*got 0 \(a\.yaml\)"),
        ({"objective": {"learning_rate": -1e-6}}, r"'objective\.learning_rate' .*got -1e-06 \(a\.yaml\)"),
        ({"advantages": {"estimator": "ragne"}}, r"'advantages\.estimator' .*'range'.*got 'ragne' \(a\.yaml\)"),
        ({"seed": 1.5}, r"'seed' .*integer.*got 1\.5 \(a\.yaml\)"),
        ({"judge": {"rubric": 3}}, r"'judge\.rubric' .*string; got 3 \(a\.yaml\)"),
        ({"train": None}, r"'train' .*got None \(a\.yaml\)"),
    ],
)
def test_wrong_value_is_refused_by_name_value_and_file(values, message):
    """A value out of range or of another kind is an error that names setting, rule, value and file."""
    with pytest.raises(ConfigError, match=message):
        build_config(values, source="a.yaml")


@pytest.mark.parametrize("name", ["labelled", "unlabelled"])
def test_shares_must_sum_to_one(name):
    """Shares of a split that do not sum to 1 are refused with their sum."""
    shares = {"warmup": 0.9} if name == "labelled" else {"policy": 0.9}
    with pytest.raises(ConfigError, match=rf"'split\.{name}' shares must sum to 1; their sum is 1\.[16]"):
        build_config({"split": {name: shares}}, source="s")


def test_shares_that_round_are_accepted():
    """Shares whose floating-point sum differs from 1 by rounding alone are accepted."""
    shares = {"warmup": 0.1, "source": 0.2, "calibration": 0.3, "audit": 0.1, "evaluation": 0.3}
    assert shares == build_config({"split": {"labelled": shares}}, source="s").split.labelled.model_dump()


@pytest.mark.parametrize("path", ["seed", "train", "train.iterations"])
def test_configuration_is_frozen(path):
    """No setting can be changed after the configuration is made."""
    *sections, name = path.split(".")
    target = PipelineConfig()
    for section in sections:
        target = getattr(target, section)
    with pytest.raises(ValidationError, match="frozen"):
        setattr(target, name, 3)


def test_merge_goes_deep_and_replaces_lists_whole():
    """The upper mapping wins key by key; lists and scalars are replaced, not joined."""
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": {"z": 1}}
    assert {"a": {"x": 1, "y": [3]}, "b": {"q": 2}, "c": 5} == merge(base, {"a": {"y": [3]}, "b": {"q": 2}, "c": 5})


def test_merge_changes_neither_argument():
    """Both mappings are as before."""
    base, over = {"a": {"x": 1}}, {"a": {"y": 2}}
    merge(base, over)["a"]["x"] = 9
    assert ({"a": {"x": 1}}, {"a": {"y": 2}}) == (base, over)


def test_merge_with_nothing_is_the_same():
    """An empty upper mapping changes nothing."""
    assert {"a": {"x": 1}} == merge({"a": {"x": 1}}, {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=3", {"a": {"b": 3}}),
        ("a=0.1", {"a": 0.1}),
        ("a=true", {"a": True}),
        ("a=[1, 4]", {"a": [1, 4]}),
        ("a=word", {"a": "word"}),
        ("a='3'", {"a": "3"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=", {"a": None}),
        ("a.b.c={d: 1}", {"a": {"b": {"c": {"d": 1}}}}),
    ],
)
def test_assignment_has_the_type_of_its_yaml_value(text, expected):
    """An assignment is split at its first '='; the value is read as YAML."""
    assert expected == parse_assignment(text)


def test_exponent_without_a_point_is_a_number():
    """A learning rate written 2e-5 is the number, although YAML 1.1 reads a text."""
    config = build_config(parse_assignment("objective.learning_rate=2e-5"), source="--set")
    assert config.objective.learning_rate == 2e-5


@pytest.mark.parametrize("text", ["a", "=3", "a..b=1", ".a=1", "a.=1", ""])
def test_malformed_assignment_is_refused(text):
    """An assignment without a name or without '=' is refused as it was given."""
    with pytest.raises(ConfigError, match=rf"'--set' must have the form a\.b=c; got '{text}'"):
        parse_assignment(text)


def test_assignment_without_yaml_is_refused():
    """A value that is no YAML is refused with name and value."""
    with pytest.raises(ConfigError, match=r"'--set a\.b' must have a YAML value; got '\[1'"):
        parse_assignment("a.b=[1")


def test_empty_file_has_no_settings(tmp_path):
    """A file with comments only is an empty mapping, not an error."""
    (tmp_path / "s.yaml").write_text("# nothing\n")
    assert {} == read_settings(tmp_path / "s.yaml")


def test_settings_survive_a_round_trip_through_json():
    """The JSON form of a configuration gives the same configuration."""
    config = build_config(read_settings(PARAMS), source="s")
    assert config == build_config(config.model_dump(mode="json"), source="s")


def test_half_of_an_overlap_rule_keeps_the_other_half():
    """A limit or a consequence may be set alone; the rest of the rule, and the other rules, stay."""
    built = build_config(
        {"overlap": {"ess_share": {"limit": 0.3}, "pareto_k": {"consequence": "stop"}}}, source="test"
    ).overlap
    assert (0.3, "recalibrate") == (built.ess_share.limit, built.ess_share.consequence)
    assert (0.7, "stop") == (built.pareto_k.limit, built.pareto_k.consequence)
    assert "warn" == built.classifier_auc.consequence


def test_every_overlap_diagnostic_has_a_rule():
    """The settings name each diagnostic that is judged, and no other."""
    assert set(DIAGNOSTICS) == set(OverlapConfig.model_fields)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"overlap": {"ess": {"limit": 1}}}, r"Setting 'overlap\.ess' is not known"),
        ({"overlap": {"ess_share": {"limit": -1}}}, r"'overlap\.ess_share\.limit' is not valid"),
        ({"overlap": {"ess_share": {"consequence": "pray"}}}, r"'overlap\.ess_share\.consequence' is not valid"),
        ({"overlap": {"ess_share": 0.3}}, r"'overlap\.ess_share' is not valid"),
        ({"overlap": {"mean_source_weight": {"limit": 0.5}}}, "must be at least 1, a factor; got 0.5"),
        ({"intervals": {"log_cap": 20.5}}, r"'intervals\.log_cap' is not valid: .*less than or equal to 20; got 20\.5"),
    ],
)
def test_overlap_and_cap_out_of_range_are_refused(values, message):
    """Unknown diagnostics and consequences, limits that cannot be meant and caps without effect are named."""
    with pytest.raises(ConfigError, match=message):
        build_config(values, source="test")


def test_a_first_factor_is_kept_for_one_estimator_alone():
    """An estimator that is chosen anew would be given the factor of another; matching every batch is for it."""
    with pytest.raises(ConfigError, match="advantage_scale must be none or match_batch with estimator auto"):
        build_config({"advantages": {"estimator": "auto", "advantage_scale": "match_initial"}}, source="s")
    one = {"estimator": "range", "advantage_scale": "match_initial"}
    for allowed in ({"estimator": "auto", "advantage_scale": "match_batch"}, one):
        assert build_config({"advantages": allowed}, source="s").advantages.estimator in ("auto", "range")


def test_a_choice_that_is_nearly_right_is_answered_with_the_right_one():
    """A mistyped reward source, estimator or consequence is suggested; one like none of them is not."""
    with pytest.raises(ConfigError, match=r"got 'verifer' \(x\)\. Did you mean 'verifier'\?$"):
        build_config({"reward": {"source": "verifer"}}, source="x")
    with pytest.raises(ConfigError, match=r"got 'zzz' \(x\)\.$"):
        build_config({"train": {"on_alarm": "zzz"}}, source="x")
