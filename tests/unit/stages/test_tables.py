"""Tables: every record comes back as it went, equal records are equal bytes, and missing is null."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from rangeline.errors import DataContractError
from rangeline.records import Advantages, JudgmentTable, RewardIntervals, RolloutSet
from rangeline.stages.tables import (
    read_advantages,
    read_intervals,
    read_judgments,
    read_rollouts,
    read_table,
    write_advantages,
    write_intervals,
    write_judgments,
    write_rollouts,
    write_table,
)

NAN = float("nan")


def _rollouts():
    return RolloutSet(
        prompt_id_N=("p", "q", "q"),
        sample_N=(0, 0, 1),
        completion_N=("a\n", "", "é🙂"),
        prompt_token_ids_N=((1, 2), (3,), (3,)),
        token_ids_N=((4, 5), (), (6,)),
        sampled_logprobs_N=((-0.5, -1.25), (), (-3.0,)),
        finish_reason_N=("stop", "length", "stop"),
        policy_version=7,
    )


def _judgments():
    return JudgmentTable(
        prompt_id_N=("p", "q", "q"),
        levels_NK=[[0, -1], [1, 2], [-1, -1]],
        missing_N=[False, False, True],
        coordinates=("correct", "well formed"),
        num_levels=(2, 3),
        judge_digest="abc",
    )


def _intervals(support=(0.0, 1.0)):
    return RewardIntervals(
        prompt_id_N=("p", "q", "q"),
        lower_N=[0.1, NAN, 0.0],
        upper_N=[0.3, NAN, 1.0],
        unbounded_N=[False, False, True],
        missing_N=[False, True, False],
        support=support,
        source="judge_interval",
    )


def _advantages():
    return Advantages(
        prompt_id_N=("p", "q", "q"), value_N=[0.5, 0.0, -1 / 3], active_N=[True, False, True], estimator="range"
    )


KINDS = {
    "rollouts": (_rollouts, write_rollouts, read_rollouts),
    "judgments": (_judgments, write_judgments, read_judgments),
    "intervals": (_intervals, write_intervals, read_intervals),
    "advantages": (_advantages, write_advantages, read_advantages),
}


def _assert_same(expected, actual):
    for name in type(expected).__slots__:
        left, right = getattr(expected, name), getattr(actual, name)
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right)
            assert left.dtype == right.dtype
        else:
            assert left == right, name


@pytest.mark.parametrize("kind", KINDS)
def test_record_comes_back_as_it_went(tmp_path, kind):
    """Reading what was written gives the same fields, values and types."""
    make, write, read = KINDS[kind]
    write(tmp_path / "t.parquet", make())
    _assert_same(make(), read(tmp_path / "t.parquet"))


@pytest.mark.parametrize("kind", KINDS)
def test_equal_records_are_equal_bytes(tmp_path, kind):
    """Writing an equal record, or one that was read, gives the same bytes."""
    make, write, read = KINDS[kind]
    paths = [tmp_path / f"{i}.parquet" for i in range(3)]
    write(paths[0], make())
    write(paths[1], make())
    write(paths[2], read(paths[0]))
    assert 1 == len({path.read_bytes() for path in paths})


@pytest.mark.parametrize("kind", KINDS)
def test_written_table_is_the_only_file(tmp_path, kind):
    """A write leaves one file, and none of its partial ones."""
    make, write, _ = KINDS[kind]
    write(tmp_path / "t.parquet", make())
    assert ["t.parquet"] == [path.name for path in tmp_path.iterdir()]


def test_support_may_be_unbounded(tmp_path):
    """Intervals without support come back without support."""
    write_intervals(tmp_path / "t.parquet", _intervals(support=None))
    assert read_intervals(tmp_path / "t.parquet").support is None


@pytest.mark.parametrize("name", ["lower", "upper"])
def test_missing_bound_is_null(tmp_path, name):
    """A missing bound is null in the file: not 0, and not a NaN that a reader's average would take in."""
    write_intervals(tmp_path / "t.parquet", _intervals())
    values = pq.read_table(tmp_path / "t.parquet")[name].to_pylist()
    assert [False, True, False] == [value is None for value in values]


def test_missing_value_of_a_list_is_null(tmp_path):
    """None in a column stays null, whatever stands around it."""
    write_table(tmp_path / "t.parquet", {"truth": [1.0, None, 0.0], "covered": [None, True, False]})
    table = read_table(tmp_path / "t.parquet")
    assert ([1.0, None, 0.0], [None, True, False]) == (table["truth"].to_pylist(), table["covered"].to_pylist())


def test_further_columns_lie_beside_the_record(tmp_path):
    """Extra columns are kept row for row and do not disturb reading the record."""
    write_advantages(tmp_path / "t.parquet", _advantages(), midpoint=np.array([1.0, 2.0, 3.0]))
    assert [1.0, 2.0, 3.0] == read_table(tmp_path / "t.parquet")["midpoint"].to_pylist()
    _assert_same(_advantages(), read_advantages(tmp_path / "t.parquet"))


def test_logprobs_are_kept_in_single_precision(tmp_path):
    """Log-probabilities come back as the nearest float32."""
    record = _rollouts()
    values = ((-0.1, -1 / 3), (), (-2.7,))
    fields = {name: getattr(record, name) for name in RolloutSet.__slots__} | {"sampled_logprobs_N": values}
    write_rollouts(tmp_path / "t.parquet", RolloutSet(**fields))
    actual = read_rollouts(tmp_path / "t.parquet").sampled_logprobs_N
    assert [tuple(map(float, np.float32(row))) for row in values] == list(actual)


def test_path_of_the_folder_adds_no_column(tmp_path):
    """A folder named like a partition leaves the table as it is."""
    write_advantages(tmp_path / "run=1" / "t.parquet", _advantages())
    assert ["prompt_id", "advantage", "active"] == read_table(tmp_path / "run=1" / "t.parquet").column_names


def test_absent_table_is_named(tmp_path):
    """An absent table is an error that names it and the next step."""
    with pytest.raises(DataContractError, match=r"Table '.*t\.parquet' must exist; got no such file\. Run the stage"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"prompt,id\n", lambda b: b[:-7], lambda b: b[: len(b) // 2]]
)
@pytest.mark.parametrize("kind", KINDS)
def test_broken_table_is_named(tmp_path, kind, damage):
    """A file that is no whole Parquet file is an error that names it."""
    make, write, read = KINDS[kind]
    path = tmp_path / "t.parquet"
    write(path, make())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataContractError, match=r"Table '.*t\.parquet' must be a Parquet file; got .*Restore it"):
        read(path)


@pytest.mark.parametrize("values", [[3, 4], [5]])
def test_a_table_that_was_written_again_is_read_again(tmp_path, values):
    """What is remembered of a small table ends with the file that it was read from, also one of the same size."""
    path = tmp_path / "table.parquet"
    write_table(path, {"value": [1, 2]})
    assert [1, 2] == read_table(path)["value"].to_pylist()
    write_table(path, {"value": values})
    assert values == read_table(path)["value"].to_pylist()


def test_a_table_that_is_gone_is_not_remembered(tmp_path):
    """A file that was read before and then removed is missing."""
    path = tmp_path / "table.parquet"
    write_table(path, {"value": [1]})
    read_table(path)
    path.unlink()
    with pytest.raises(DataContractError, match="must exist"):
        read_table(path)
