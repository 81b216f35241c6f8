"""Laws of the client: every kind of failure has its error, told by a small server that plays vLLM's part."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rangeline.errors import EngineDiedError, RolloutError, StaleWeightsError, WeightSyncError
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_engine import MOST_AT_ONCE, VllmEngine, group_seed

KEY = {"run_seed": 3, "iteration": 1, "purpose": "policy"}
PLACE = Path("/root/new")
PROMPTS = [EncodedPrompt(prompt_id="p", token_ids=(5, 6))]


class Words:
    """A tokenizer that writes ids as words."""

    @staticmethod
    def decode(ids, skip_special_tokens):
        """Join the ids."""
        return " ".join(map(str, ids))


def sample(ids=(7, 8), *, reason="length", version="v", values=None):
    """Return one choice as vLLM words it."""
    values = [-0.5] * len(ids) if values is None else values
    return {
        "finish_reason": reason,
        "token_ids": list(ids),
        "weight_versions": [{"version": version, "start": 0, "end": len(ids)}],
        "logprobs": {"content": [{"logprob": value} for value in values]},
    }


@pytest.fixture
def played():
    """Run a server whose replies are set by path: a status and a body, or a function of the request's body."""
    replies = {
        "/health": (200, {}),
        "/is_paused": (200, {"is_paused": False}),
        "/v1/models": (200, {"data": [{"max_model_len": 16}]}),
    }
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._reply({})

        def do_POST(self):
            self._reply(json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}"))

        def _reply(self, body):
            path = self.path.split("?")[0]
            asked.append((path, body))
            status, content = replies[path](body) if callable(replies[path]) else replies[path]
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        client = VllmClient(f"http://127.0.0.1:{server.server_address[1]}", timeout_s=10)
        client.replies, client.asked = replies, asked
        yield client
        client.close()
        server.shutdown()


def answer(client, *choices, prompt=(5, 6)):
    """Let the server give these choices, as many as are asked for."""

    def reply(body):
        count = body["sampling_params"]["n"]
        listed = [{**choices[i % len(choices)], "index": i} for i in range(count)]
        return 200, {"prompt_token_ids": list(prompt), "choices": listed[::-1]}

    client.replies["/inference/v1/generate"] = reply


def engine(client, version="v"):
    """Return an engine of weights `v`."""
    return VllmEngine(client, Words(), stop_ids=frozenset({0, 9}), policy_version=4, weight_version=version)


def generate(client, size=2, **changes):
    """Sample the one prompt."""
    plan = SamplingPlan(**{"group_size": size, "temperature": 1.0, "max_tokens": 2, **changes})
    return engine(client).generate(PROMPTS, plan, **KEY)


def test_nothing_is_left_to_the_servers_own_settings(played):
    """Temperature, filters, seed, stop ids and cap are all sent, so that no default of the server's takes part."""
    answer(played, sample())
    rollouts = generate(played)
    sent = next(body for path, body in played.asked if path == "/inference/v1/generate")
    expected = {
        "n",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "max_tokens",
        "logprobs",
        "ignore_eos",
        "stop_token_ids",
    }
    assert expected <= set(sent["sampling_params"])
    assert [0, 9] == sent["sampling_params"]["stop_token_ids"]
    assert (4, ("7 8", "7 8")) == (rollouts.policy_version, rollouts.completion_N)


def test_groups_never_share_a_seed():
    """Group seeds are multiples of the group's size, so that the seeds of two groups are all equal or all apart."""
    seeds = {group_seed(0, "policy", i, f"p{i}", group_size=8) for i in range(200)}
    assert 200 == len(seeds)
    assert {0} == {seed % 8 for seed in seeds}
    assert max(seeds) + 8 < 2**63


def test_large_groups_are_asked_for_in_parts(played):
    """A group above the server's most is drawn in several requests whose seeds go on from each other."""
    answer(played, sample())
    assert MOST_AT_ONCE + 5 == len(generate(played, MOST_AT_ONCE + 5))
    parts = [body["sampling_params"] for path, body in played.asked if path == "/inference/v1/generate"]
    assert [MOST_AT_ONCE, 5] == [part["n"] for part in parts]
    assert MOST_AT_ONCE == parts[1]["seed"] - parts[0]["seed"]


def test_greedy_groups_are_asked_for_once(played):
    """At temperature 0 one completion is asked for and repeated."""
    answer(played, sample())
    assert 3 == len(generate(played, 3, temperature=0.0))


@pytest.mark.parametrize(
    ("choice", "kind", "match"),
    [
        (sample(version="old"), StaleWeightsError, r"must come from weights 'v'; got \['old'\] .prompt 'p'"),
        (sample(reason="abort"), RolloutError, "'finish_reason' must be stop or length; got 'abort' .prompt 'p'"),
        (sample(values=[-0.5]), RolloutError, "got 1 log-probabilities for 2 tokens"),
        (sample(values=[-0.5, float("nan")]), RolloutError, "'logits' must be numbers; got 2 log-probabilities"),
    ],
)
def test_samples_that_cannot_be_used_are_refused(played, choice, kind, match):
    """Other weights, an aborted completion and values that are no numbers are errors, never rollouts."""
    answer(played, choice)
    with pytest.raises(kind, match=match):
        generate(played)


def test_prompts_that_come_back_changed_are_refused(played):
    """A server that read other token ids than those sent, such as one more at the start, is of no use."""
    answer(played, sample(), prompt=(1, 5, 6))
    with pytest.raises(RolloutError, match=r"must read the token ids it is sent; got others back .prompt 'p'"):
        generate(played)


def test_too_few_choices_are_refused(played):
    """A group that comes back short is an error."""
    played.replies["/inference/v1/generate"] = (
        200,
        {"prompt_token_ids": [5, 6], "choices": [{**sample(), "index": 0}]},
    )
    with pytest.raises(RolloutError, match=r"must give 2 rollouts; got 1 .prompt 'p'"):
        generate(played)


def test_a_paused_server_is_not_waited_for(played):
    """A paused server would keep requests for ever: sampling is refused at once."""
    played.replies["/is_paused"] = (200, {"is_paused": True})
    with pytest.raises(StaleWeightsError, match="it is paused, as a failed weight update leaves it"):
        generate(played)


def test_refusals_death_and_failures_are_told_apart(played):
    """A refused request names its reason; an unwell server is dead; one that is well after a failure is not."""
    played.replies["/inference/v1/generate"] = (400, {"error": {"message": "out of vocabulary"}})
    with pytest.raises(RolloutError, match=r"400: out of vocabulary .prompt 'p'"):
        generate(played)
    played.replies["/inference/v1/generate"] = (500, {"detail": "boom"})
    with pytest.raises(RolloutError, match=r"500: .*boom") as well:
        generate(played)
    assert not isinstance(well.value, EngineDiedError)
    played.replies["/health"] = (503, {})
    with pytest.raises(EngineDiedError, match=r"must be well; got .*boom"):
        generate(played)


def test_a_server_that_is_gone_is_dead():
    """Nobody at the address is a dead engine, and health says so without an error."""
    client = VllmClient("http://127.0.0.1:9", timeout_s=2)
    assert not client.is_healthy
    with pytest.raises(EngineDiedError, match="must answer; got ConnectError"):
        client.pause()


def test_updates_are_refused_or_break_by_name(played):
    """A refused checkpoint says that nothing was changed; a load that fails midway says that it broke."""
    played.replies["/collective_rpc"] = (200, {"results": [{"state": "refused", "reason": "no marker."}]})
    with pytest.raises(WeightSyncError, match=r"refused: no marker. Nothing was changed") as refused:
        played.load_checkpoint(PLACE)
    played.replies["/collective_rpc"] = (500, {"error": {"message": "out of memory"}})
    with pytest.raises(WeightSyncError, match=r"the update broke: .*out of memory") as broken:
        played.load_checkpoint(PLACE)
    assert ("update refused", "update broken") == (refused.value.state, broken.value.state)


def test_a_prefix_cache_that_stays_is_an_error(played):
    """The server answers 200 to a reset that did not happen; the body is what counts."""
    played.replies["/reset_prefix_cache"] = (200, {"success": False})
    with pytest.raises(WeightSyncError, match="prefix cache must be reset"):
        played.reset_prefix_cache()


def test_a_server_of_another_kind_says_what_it_lacks(played):
    """A server without Rangeline's worker side refuses to describe itself."""
    played.replies["/collective_rpc"] = (404, {"detail": "Not Found"})
    with pytest.raises(RolloutError, match=r"404: .*Not Found.* .what it holds"):
        played.describe()
