"""What a judge may cost, and what it has cost."""

from rangeline.judge.budget import Budget, Price, Purse, Spending, read_spending


def test_open_calls_count():
    """Calls at once never exceed the budget together, whatever they turn out to use."""
    purse = Purse(Budget(tokens=100), Price(), None, "m")
    first = purse.reserve(40, 20)
    assert first is not None
    assert purse.reserve(40, 20) is None
    purse.settle(first, (10, 2))
    assert purse.reserve(40, 20) is not None
    assert Spending(1, 10, 2, 0.0) == purse.spent


def test_no_usage_costs_all_that_was_put_aside():
    """A server that does not count is paid for the most it could have used."""
    purse = Purse(Budget(money=1.0), Price(prompt=1000.0, reply=10_000.0), None, "m")
    reserved = purse.reserve(100, 10)
    assert reserved is not None
    purse.settle(reserved, None)
    assert 0.2 == purse.spent.money
    assert purse.reserve(1000, 0) is None


def test_a_budget_of_nothing_allows_nothing():
    """Zero is a limit, None is none."""
    assert Purse(Budget(calls=0), Price(), None, "m").reserve(1, 1) is None
    assert Purse(Budget(), Price(), None, "m").reserve(10**9, 10**9) is not None


def test_spending_is_shared_through_the_file(tmp_path):
    """Two judges that keep their sums in one file have one budget."""
    store = tmp_path / "v.sqlite"
    for name in ("a", "b", "a"):
        purse = Purse(Budget(calls=3), Price(), store, name)
        reserved = purse.reserve(5, 1)
        assert reserved is not None
        purse.settle(reserved, (5, 1))
        purse.save()
    assert Spending(3, 15, 3, 0.0) == read_spending(store)
    assert Purse(Budget(calls=3), Price(), store, "c").reserve(5, 1) is None


def test_saving_twice_counts_once(tmp_path):
    """What was saved is not added again."""
    store = tmp_path / "v.sqlite"
    purse = Purse(Budget(), Price(), store, "m")
    reserved = purse.reserve(5, 1)
    assert reserved is not None
    purse.settle(reserved, (5, 1))
    purse.save()
    purse.save()
    assert 1 == read_spending(store).calls == purse.spent.calls
