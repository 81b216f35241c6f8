"""Calls to a real server that fails in every way it can: what is tried again, how long it waits, and what is told."""

import time
from email.utils import formatdate

import httpx
import pytest
from judge_server import Script, serve

from rangeline.errors import JudgeError
from rangeline.judge.client import TOO_LONG, wait_for
from rangeline.judge.http_calls import Caller, Failed, Manners, retry_after

KEY = "sk-very-secret-0123456789"
QUICK = {"base_s": 0.01, "max_wait_s": 2.0, "timeout_s": 5.0}


def call(reply, *, count=1, optional=False, **manners):
    """Call a scripted server; return what came, and the script with what it saw."""
    script = Script(reply)
    with serve(script) as url:

        async def work():
            import asyncio

            async with httpx.AsyncClient(trust_env=False) as http:
                caller = Caller(http, Manners(**{**QUICK, **manners}), KEY)
                calls = (caller.call("POST", f"{url}/x", {"n": n}, optional=optional) for n in range(count))
                return await asyncio.gather(*calls)

        return wait_for(work()), script


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 529])
def test_what_may_pass_is_tried_again(status):
    """A busy or broken server gets the same question again, and its answer counts."""
    found, script = call(lambda path, body, n: (status, {}, "busy", 0.0) if n < 3 else {"ok": n})
    assert [{"ok": 3}] == found
    assert 3 == len(script.calls)


def test_retry_after_is_obeyed():
    """The next attempt comes no sooner than the server asks for."""
    start = time.monotonic()
    found, _ = call(lambda path, body, n: (429, {"Retry-After": "1"}, "slow down", 0.0) if n == 1 else {"ok": 1})
    assert [{"ok": 1}] == found
    assert time.monotonic() - start >= 1.0


@pytest.mark.parametrize("hours", [-1, 24])
def test_a_date_to_wait_for_is_read_by_the_servers_clock(hours):
    """Where the two clocks differ, the wait is from the date of the reply to the date that it names."""
    now = time.time() + 3600 * hours
    dates = {"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + 1, usegmt=True)}
    start = time.monotonic()
    found, _ = call(lambda path, body, n: (429, dates, "", 0.0) if n == 1 else {"ok": 1}, max_wait_s=30.0)
    assert [{"ok": 1}] == found
    assert 1.0 <= time.monotonic() - start < 20.0


def test_no_server_makes_a_run_wait_for_ever():
    """A wait beyond the limit is cut to it."""
    start = time.monotonic()
    found, _ = call(lambda path, body, n: (503, {"Retry-After": "86400"}, "", 0.0), attempts=2, max_wait_s=0.1)
    assert [Failed("server error 503")] == found
    assert time.monotonic() - start < 5.0


def test_attempts_end():
    """After the last attempt the question has failed, with the reason."""
    found, script = call(lambda path, body, n: (429, {}, "", 0.0), attempts=3)
    assert [Failed("rate limited")] == found
    assert 3 == len(script.calls)


def test_a_reply_that_drips_is_timed_out():
    """The limit is on the whole of a call, not on the silence between two bytes."""
    found, _ = call(lambda path, body, n: (200, {}, {"ok": "x" * 100}, 0.6), attempts=1, timeout_s=0.3)
    assert [Failed("timed out", was_heard=True)] == found


def test_nobody_there_is_told():
    """A port where nobody listens is a failure, not a crash."""

    async def work():
        async with httpx.AsyncClient(trust_env=False) as http:
            return await Caller(http, Manners(**QUICK, attempts=2)).call("GET", "http://127.0.0.1:9/v1/models")

    assert Failed("unreachable") == wait_for(work())


def test_few_calls_at_once():
    """No more calls are open at once than allowed."""

    def reply(path, body, n):
        time.sleep(0.05)
        return {"ok": n}

    found, script = call(reply, count=8, concurrency=2)
    assert 8 == len(found)
    assert 2 == script.most_busy


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_client_is_an_error_without_its_key(status):
    """A wrong key, path or model stops at once, and the key is not in the message, even where the server echoes it."""
    with pytest.raises(JudgeError, match=rf"got {status} 'Incorrect API key provided: \*\*\*'") as caught:
        call(lambda path, body, n: (status, {}, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, 0.0))
    assert KEY not in str(caught.value)


def test_an_empty_account_is_an_error():
    """No quota looks like a rate limit, but no wait will mend it."""
    with pytest.raises(JudgeError, match="got 429 'You exceeded your quota'"):
        call(
            lambda path, body, n: (
                429,
                {},
                {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}},
                0.0,
            )
        )


def test_an_optional_path_may_be_absent():
    """What a server does not offer is no error where it is optional."""
    assert [Failed("not offered")] == call(lambda path, body, n: (404, {}, "", 0.0), optional=True)[0]


def test_a_question_that_is_too_long_has_its_own_reason():
    """A refusal for length is told apart from other refusals, and neither is tried again."""
    texts = {0: "This model's maximum context length is 512 tokens", 1: "bad request"}
    found, script = call(lambda path, body, n: (400, {}, {"error": {"message": texts[body["n"]]}}, 0.0), count=2)
    assert [Failed(TOO_LONG), Failed("refused by the server (400: bad request)")] == found
    assert 2 == len(script.calls)


def test_what_is_no_json_is_no_answer():
    """A page in place of JSON is tried again, and then has failed."""
    assert [Failed("unreadable response", was_heard=True)] == call(
        lambda path, body, n: (200, {}, "<html>", 0.0), attempts=2
    )[0]


def test_a_body_that_is_not_packed_as_it_says_is_no_answer():
    """A reply whose encoding is broken is tried again and then failed: no error of the library comes through."""
    found, script = call(lambda path, body, n: (200, {"Content-Encoding": "gzip"}, "not packed", 0.0), attempts=2)
    assert [Failed("unreadable response", was_heard=True)] == found
    assert 2 == len(script.calls)


def test_the_key_is_sent_and_hidden():
    """The key is in the header of the call and in no text that shows the caller."""
    _, script = call(lambda path, body, n: {"ok": 1})
    assert f"Bearer {KEY}" == script.calls[0][2]["Authorization"]
    assert KEY not in repr(Caller(httpx.AsyncClient(), Manners(), KEY))


def test_retry_after_is_a_number_or_a_date():
    """Nothing, nonsense and the past ask for no wait."""
    assert [0.0, 0.0, 0.0, 2.5] == [retry_after(text, 9.0) for text in (None, "soon", "-3", "2.5")]
    assert 0.0 == retry_after("Thu, 01 Jan 1970 00:00:07 GMT", 9.0)
