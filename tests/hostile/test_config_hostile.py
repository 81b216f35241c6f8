"""Settings files and values that must be refused by name, never half understood."""

import pytest

from rangeline.config import build_config, read_settings
from rangeline.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [1", r"s\.yaml' must be YAML; got .*line 1.*Correct that line"),
        (b"\ta: 1", r"s\.yaml' must be YAML; got .*line 1"),
        (b"\xff\xfe\x00", r"s\.yaml' must be YAML"),
        (b"- 1\n- 2\n", r"s\.yaml' must hold a mapping of sections; got list"),
        (b"just text", r"s\.yaml' must hold a mapping of sections; got str"),
        (b"seed: 1\n---\nseed: 2\n", r"s\.yaml' must be YAML"),
        (b"seed: !!python/object/apply:os.getcwd []\n", r"s\.yaml' must be YAML"),
    ],
)
def test_damaged_settings_file_is_named(tmp_path, content, message):
    """A file that is no YAML mapping is an error of one line that names it; nothing in it is run."""
    (tmp_path / "s.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as error:
        read_settings(tmp_path / "s.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_unreadable_settings_file_is_named(tmp_path, name):
    """An absent file or a folder is an error that names it."""
    with pytest.raises(ConfigError, match=r"must be readable; got .*Check its path"):
        read_settings(tmp_path / name)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name", ["sampling.temperature", "objective.learning_rate", "objective.kl_coefficient", "intervals.log_cap"]
)
def test_value_that_is_not_finite_is_refused(name, value):
    """No setting is NaN or infinite."""
    section, setting = name.split(".")
    with pytest.raises(ConfigError, match=rf"'{name}' is not valid: .*got -?(nan|inf) \(s\)"):
        build_config({section: {setting: value}}, source="s")


@pytest.mark.parametrize("value", [True, "many", [3], {"n": 3}, 2.5, None, -1])
def test_count_is_a_whole_number(value):
    """A count of another kind, a boolean too, is refused and not turned into a number."""
    with pytest.raises(ConfigError, match=r"'train\.iterations' is not valid"):
        build_config({"train": {"iterations": value}}, source="s")


@pytest.mark.parametrize("values", [{1: 2}, {None: 2}, {"train": {3: 4}}])
def test_name_that_is_no_text_is_refused(values):
    """A YAML key that is no text is refused by the settings, not by an exception of its own."""
    with pytest.raises(ConfigError, match="is not valid: Keys should be strings"):
        build_config(values, source="s")


def test_long_value_is_cut_in_the_message():
    """A message stays short when the value is long."""
    with pytest.raises(ConfigError, match="is not valid") as error:
        build_config({"seed": "9" * 5000 + "x"}, source="s")
    assert len(str(error.value)) < 300
