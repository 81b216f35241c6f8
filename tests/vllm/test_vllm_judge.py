"""Laws of judging through a real vLLM server: what a schema binds is a verdict, and raw scores need no parsing."""

import httpx
import pytest
from served import tied_model

from rangeline.judge.client import OptionRequest, wait_for
from rangeline.judge.server_client import ServerJudge, ServerSettings

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

ASKED = [
    OptionRequest(system="", question=text, options=("no", "yes")) for text in ("right?", "wrong?", "so?", "not so?")
]


@pytest.fixture
def settings(vllm_served):
    """Serve a random model, and return how it is reached as a judge."""
    vllm_served.hold(*tied_model(seed=3))
    url = f"{vllm_served.client.url}/v1"
    name = httpx.get(f"{url}/models", trust_env=False).json()["data"][0]["id"]
    return {"url": url, "model": name}


def test_a_schema_makes_any_model_give_a_verdict(settings):
    """Weights that know nothing write one of the options where the schema binds them: each answer is one pick."""
    judge = ServerJudge(ServerSettings(**settings, ask="structured", max_tokens=64))
    assert ("structured", "picks") == (judge.mode, judge.gives)
    answers = wait_for(judge.ask(ASKED))
    assert ["" for _ in ASKED] == [answer.reason for answer in answers]
    assert all(answer.values in ((0.0, -1.0), (-1.0, 0.0)) for answer in answers)


def test_free_text_of_such_a_model_is_missing(settings):
    """The same weights without the schema write nothing that could be read: missing with a reason, never a level."""
    judge = ServerJudge(ServerSettings(**settings, ask="text", max_tokens=16))
    assert all(answer.values is None and answer.reason for answer in wait_for(judge.ask(ASKED)))
