"""A judge behind a real server: how it is asked, what it costs, and what is not sent at all."""

import json

import pytest
from judge_server import MODEL, Script, chat, serve

from rangeline.errors import JudgeBudgetError, JudgeError
from rangeline.judge.asking import ask_all
from rangeline.judge.budget import Budget, Price, read_spending
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import TOO_LONG, OptionRequest, wait_for
from rangeline.judge.http_calls import Manners
from rangeline.judge.server_client import ServerJudge, ServerSettings

QUICK = Manners(base_s=0.01, max_wait_s=0.1, timeout_s=5.0, attempts=2)
CHAT = "/v1/chat/completions"


def questions(*texts, options=("no", "yes")):
    """Return requests."""
    return [OptionRequest(system="", question=text, options=options) for text in texts]


def opened(url, **over):
    """Open a judge of the scripted model."""
    return ServerJudge(ServerSettings(**{"url": url, "model": MODEL, "manners": QUICK, **over}))


def says(verdict):
    """Return a script that always gives a verdict as JSON."""
    return Script(lambda path, body, n: chat(json.dumps({"verdict": verdict})))


def vllm(scores, **facts):
    """Return a script of a vLLM server whose tokens are letters."""

    def reply(path, body, n):
        if path == "/tokenize":
            text = body.get("prompt") or "".join(turn["content"] for turn in body["messages"])
            return {"tokens": [ord(letter) for letter in text]}
        if "prompt_logprobs" in body:
            entries = [[{str(token): {"logprob": -1.0}} for token in ids] for ids in body["prompt"]]
            return {"choices": [{"index": i, "prompt_logprobs": found} for i, found in enumerate(entries)]}
        top = {f"token_id:{token}": scores[chr(token)] for token in body["logprob_token_ids"]}
        return {"choices": [{"index": 0, "logprobs": {"top_logprobs": [top]}}]}

    return Script(reply, owner="vllm", **facts)


def test_a_structured_reply_is_asked_for_and_read():
    """Where the server takes a schema, it gets one, and the verdict is a pick."""
    with serve(says("yes")) as url:
        judge = opened(url)
        assert ("structured", "picks") == (judge.mode, judge.gives)
        assert (-1.0, 0.0) == wait_for(judge.ask(questions("right?")))[0].values


def test_text_is_asked_where_schemas_are_refused():
    """A server that refuses the schema is asked in words, always, and the answer is read tolerantly."""
    script = Script(
        lambda path, body, n: (
            (400, {}, "unsupported", 0.0) if "response_format" in body else chat("Final Decision: **No**")
        )
    )
    with serve(script) as url:
        judge = opened(url)
        assert "text" == judge.mode
        assert (0.0, -1.0) == wait_for(judge.ask(questions("right?")))[0].values


def test_vllm_is_asked_for_log_probabilities():
    """Raw scores of the replies' own tokens after the tokens that the server itself makes of the question."""
    script = vllm({"n": -2.0, "y": -0.25})
    with serve(script) as url:
        judge = opened(url, ask="logprobs")
        assert (-2.0, -0.25) == wait_for(judge.ask(questions("right?", options=("n", "y"))))[0].values
        assert "logprobs" == judge.gives
    sent = script.bodies("/v1/completions")[-1]
    assert ([[ord(letter) for letter in "right?"]], 1) == (sent["prompt"], sent["max_tokens"])


def test_the_way_is_fixed_by_the_settings():
    """A way that the server does not take is an error at once, not another way."""
    script = Script(lambda path, body, n: (400, {}, "unsupported", 0.0))
    with serve(script) as url, pytest.raises(JudgeError, match=r"'judge.ask' must be a way .*\['structured'\]"):
        opened(url, ask="structured")


def test_newer_names_of_the_limit_are_tried():
    """A server that wants `max_completion_tokens` gets it, in every call."""
    script = Script(
        lambda path, body, n: (
            (400, {}, "use 'max_completion_tokens' instead", 0.0) if "max_tokens" in body else chat('{"verdict": "no"}')
        )
    )
    with serve(script) as url:
        judge = opened(url)
        assert (0.0, -1.0) == wait_for(judge.ask(questions("right?")))[0].values


def test_a_model_that_is_not_served_is_an_error():
    """The message names what there is."""
    with serve(says("yes")) as url, pytest.raises(JudgeError, match=r"got 'absent', the server has \['scripted'\]"):
        opened(url, model="absent")


def test_nobody_listening_is_an_error():
    """A server that cannot be reached stops the run before anything is judged."""
    with pytest.raises(JudgeError, match="must be a server that answers; got 'unreachable'"):
        opened("http://127.0.0.1:9/v1")


def test_digests_tell_models_and_ways_apart():
    """The same model asked otherwise, or another model under the same name, is another judge; the address is not."""
    with serve(says("yes")) as one, serve(says("yes")) as two:
        assert opened(one).digest == opened(two).digest
        assert opened(one).digest != opened(one, ask="text").digest
    other = says("yes")
    other.models["data"][0]["root"] = "another-revision"
    with serve(says("yes")) as one, serve(other) as two:
        assert opened(one).digest != opened(two).digest


def test_a_question_that_cannot_fit_is_not_sent():
    """The server counts the tokens first; a question beyond its context is missing, and no call is spent on it."""
    script = vllm({"n": -2.0, "y": -0.25}, max_model_len=60)
    with serve(script) as url:
        judge = opened(url, ask="logprobs")
        calls = len(script.bodies("/v1/completions"))
        answers = wait_for(judge.ask(questions("short", "long" * 100, options=("n", "y"))))
        assert ["", TOO_LONG] == [answer.reason for answer in answers]
        assert 1 == len(script.bodies("/v1/completions")) - calls


def test_a_set_context_is_believed_where_nobody_counts():
    """A length far beyond the context of the settings is not sent to a server that counts nothing."""
    script = says("yes")
    with serve(script) as url:
        judge = opened(url, context_tokens=128)
        assert TOO_LONG == wait_for(judge.ask(questions("long" * 200)))[0].reason
        assert 1 == len(script.bodies(CHAT))  # the trial of the way


def test_failures_have_their_reasons_side_by_side():
    """One bad question takes no other with it."""

    def reply(path, body, n):
        asked = body["messages"][-1]["content"]
        return (500, {}, "broken", 0.0) if asked == "bad" else chat('{"verdict": "yes"}')

    with serve(Script(reply)) as url:
        answers = wait_for(opened(url).ask(questions("good", "bad", "fine")))
    assert ["", "server error 500", ""] == [answer.reason for answer in answers]


def test_a_lost_key_stops_at_once():
    """When the server stops letting the client in, asking ends with one error."""

    def reply(path, body, n):
        return chat('{"verdict": "yes"}') if n == 1 else (401, {}, {"error": {"message": "key revoked"}}, 0.0)

    with serve(Script(reply)) as url:
        judge = opened(url, key="sk-secret-key")
        with pytest.raises(JudgeError, match="got 401 'key revoked'"):
            wait_for(judge.ask(questions("a", "b")))


def test_the_key_is_in_no_text():
    """Settings show no key."""
    assert "sk-secret" not in repr(ServerSettings(url="http://x/v1", model="m", key="sk-secret"))


def test_the_budget_stops_cleanly_and_is_kept(tmp_path):
    """Calls end at the budget; answers are stored; the same command asks no more until the budget is raised."""
    store = tmp_path / "v.sqlite"
    cache, script = VerdictCache(store), says("yes")
    asked = questions(*(f"right {i}?" for i in range(6)))
    with serve(script) as url:
        with pytest.raises(JudgeBudgetError, match="got 3 of 6 unasked"):
            ask_all(asked, opened(url, store=store, budget=Budget(calls=4)), cache)
        assert 4 == read_spending(store).calls == len(script.bodies(CHAT))
        with pytest.raises(JudgeBudgetError, match="of 3 unasked"):
            ask_all(asked, opened(url, store=store, budget=Budget(calls=4), ask="structured"), cache)
        answers = ask_all(asked, opened(url, store=store, budget=Budget(calls=8)), cache)
    assert 6 == sum(answer.values == (-1.0, 0.0) for answer in answers.values())


@pytest.mark.parametrize(
    ("reply", "is_paid"),
    [((200, {}, chat("yes"), 0.6), True), ((200, {}, "no JSON", 0.0), True), ((503, {}, "busy", 0.0), False)],
    ids=["timed out", "unreadable", "refused"],
)
def test_a_question_that_was_heard_is_paid_for(reply, is_paid, tmp_path):
    """Where the reply is lost the highest cost is counted, since the server may ask for it; a refusal costs nothing."""
    script = Script(lambda path, body, n: chat("yes") if "two greater" in json.dumps(body) else reply)
    manners = Manners(base_s=0.01, max_wait_s=0.1, timeout_s=0.3, attempts=1)
    with serve(script) as url:
        judge = opened(url, ask="text", manners=manners, store=tmp_path / "verdicts.sqlite")
        before = judge.purse.spent.tokens
        assert wait_for(judge.ask(questions("right?")))[0].values is None
        assert is_paid == (judge.purse.spent.tokens > before)


def test_money_is_counted_by_the_price_table(tmp_path):
    """A call costs what its tokens cost, by the server's own count."""
    store = tmp_path / "v.sqlite"
    with serve(says("yes")) as url:
        judge = opened(url, store=store, price=Price(prompt=100.0, reply=1000.0))
        wait_for(judge.ask(questions("a", "b")))
    spent = read_spending(store)
    assert (3, 120, 15) == (spent.calls, spent.prompt_tokens, spent.reply_tokens)
    assert pytest.approx(3 * (40 * 100 + 5 * 1000) / 1e6) == spent.money


def test_two_runs_share_their_verdicts(tmp_path):
    """What one run was told, another run with the same judge does not ask again."""
    cache, script = VerdictCache(tmp_path / "v.sqlite"), says("no")
    with serve(script) as url:
        first = ask_all(questions("a", "b"), opened(url), cache)
        before = len(script.bodies(CHAT))
        second = ask_all(questions("b", "a"), opened(url), cache)
        assert 1 == len(script.bodies(CHAT)) - before  # the trial of the way
    assert {item.question: answer for item, answer in first.items()} == {
        item.question: answer for item, answer in second.items()
    }
