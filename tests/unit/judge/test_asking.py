"""Many questions to one judge: each once, answers kept, and an end where nobody answers."""

import asyncio

import pytest

from rangeline.errors import JudgeBudgetError, JudgeError
from rangeline.judge.asking import ask_all, count_reasons
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import OVER_BUDGET, Answer, OptionRequest, ScriptedJudge, pick, wait_for


class Failing:
    """A judge that answers questions by a table, and fails on others with a reason."""

    digest, gives = "failing", "picks"

    def __init__(self, reason, **known):
        self.reason, self.known = reason, known

    async def ask(self, requests):
        """Return what is known."""
        return [
            pick(item, self.known[item.question]) if item.question in self.known else Answer(None, self.reason)
            for item in requests
        ]


def asked(*texts):
    """Return requests with two options."""
    return [OptionRequest(system="", question=text, options=("no", "yes")) for text in texts]


def test_equal_questions_are_asked_once():
    """Distinct questions only, whatever their number."""
    judge = ScriptedJudge(lambda _: (-1.0, -2.0))
    assert 2 == len(ask_all(asked("a", "b", "a"), judge, None))
    assert 2 == len(judge.asked)


def test_answers_are_stored_before_the_budget_stops(tmp_path):
    """A spent budget is an error, and what was answered before it is kept."""
    cache = VerdictCache(tmp_path / "v.sqlite")
    with pytest.raises(JudgeBudgetError, match="got 1 of 2 unasked"):
        ask_all(asked("a", "b"), Failing(OVER_BUDGET, a="yes"), cache)
    kept = ask_all(asked("a"), Failing("gone"), cache)
    assert (-1.0, 0.0) == kept[asked("a")[0]].values


def test_failures_are_counted_by_reason():
    """A failed question has no values and keeps its reason."""
    answers = ask_all(asked("a", "b", "c"), Failing("timed out", a="no"), None)
    assert {"timed out": 2} == dict(count_reasons(answers))


def test_a_judge_that_is_not_there_ends_the_asking():
    """Many questions without one answer stop early, and say why."""
    with pytest.raises(JudgeError, match=r"got none of the last 256, 256 of them with 'unreachable'"):
        ask_all(asked(*(str(i) for i in range(1000))), Failing("unreachable"), None)


def test_a_running_loop_is_no_obstacle():
    """In a notebook, where an event loop already runs, answers and errors come back as they do elsewhere."""

    async def notebook():
        return ask_all(asked("a"), Failing("x", a="yes"), None)

    async def broken():
        async def work():
            msg = "inside"
            raise JudgeError(msg)

        wait_for(work())

    assert (-1.0, 0.0) == asyncio.run(notebook())[asked("a")[0]].values
    with pytest.raises(JudgeError, match="inside"):
        asyncio.run(broken())


def test_examples_are_part_of_the_key():
    """A question with other examples is another question; one without any keeps its key."""
    plain = asked("a")[0]
    shown = OptionRequest(system="", question="a", options=("no", "yes"), examples=(("b", "yes"),))
    assert plain.key("d") != shown.key("d")
    assert plain.key("d") != plain.key("e")
