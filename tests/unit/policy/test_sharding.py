"""Laws of dividing a batch among processes."""

from rangeline.policy.sharding import shard_groups

IDS = ("a", "b", "a", "c", "b", "c")
LENGTHS = (4, 2, 4, 3, 2, 3)


def test_groups_never_straddle_processes():
    """All rows of a prompt are in one shard, and every row is in exactly one."""
    shards = shard_groups(IDS, LENGTHS, range(6), 2)
    assert [[0, 2], [1, 3, 4, 5]] == [shard.tolist() for shard in shards]


def test_order_of_the_batch_changes_no_owner():
    """A permuted batch gives every prompt to the same process."""
    order = [5, 0, 3, 1, 4, 2]
    shards = shard_groups([IDS[i] for i in order], [LENGTHS[i] for i in order], range(6), 2)
    assert [{"a"}, {"b", "c"}] == [{IDS[order[row]] for row in shard} for shard in shards]


def test_fewer_prompts_than_processes_leave_some_empty():
    """A process without rows has an empty shard, and one process has all rows."""
    assert [[0, 1], [], []] == [shard.tolist() for shard in shard_groups(("a", "a"), (1, 1), range(2), 3)]
    assert [[0, 1, 2, 3, 4, 5]] == [shard.tolist() for shard in shard_groups(IDS, LENGTHS, range(6), 1)]


def test_rows_that_are_left_out_cost_nothing():
    """Only the given rows are divided."""
    assert [[0], [1, 4]] == [shard.tolist() for shard in shard_groups(IDS, (5, 2, 4, 3, 2, 3), (0, 1, 4), 2)]
