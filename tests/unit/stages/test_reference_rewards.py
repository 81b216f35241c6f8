"""RLPR and VeriFree on a real tiny policy: against the definition, with their caches, filters and refills."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reward_case import byte_worker, context_of, rollouts_of, row

from rangeline.stages.reference_rewards import references_of, score_by_reference_probability, score_by_verifree

COMPLETIONS = [("p", "so 3 and 4\n#### 7"), ("p", "hm\n#### 8"), ("p", "#### 7"), ("p", "no idea")]


@pytest.fixture(scope="module")
def policy():
    """Give one worker and its initial policy; read only."""
    return byte_worker()


def _score(policy, completions=None, rows=None, **over):
    worker, initial = policy
    context = context_of(rows or [row()], completions or COMPLETIONS, worker=worker, initial=initial, **over)
    return context, score_by_reference_probability(context)


def _probability(model, tokenizer, prompt_ids, before, reference):
    """Return the mean probability of a reference's bytes after a text, by the definition and in float64."""
    head = [*prompt_ids, *tokenizer.encode(before, add_special_tokens=False)]
    target = tokenizer.encode(reference, add_special_tokens=False)
    logits = model(torch.tensor([head + target])).logits[0].double()
    chosen = torch.softmax(logits, dim=-1)[len(head) - 1 : -1].gather(-1, torch.tensor(target)[:, None])
    return float(chosen.mean())


@torch.no_grad()
def test_reward_is_the_definition(policy):
    """Rewards are r - r', clipped: r after reasoning, of the policy; r' after the mark alone, of the initial one."""
    worker, initial = policy
    context, scored = _score(policy)
    prompt_ids = context.rollouts.prompt_token_ids_N[0]
    base = _probability(initial, worker.tokenizer, prompt_ids, "#### ", "7")
    expected = [
        min(max(_probability(worker.model, worker.tokenizer, prompt_ids, before, "7") - base, 0), 1)
        for before in ("so 3 and 4\n#### ", "hm\n#### ")
    ]
    np.testing.assert_allclose(scored.intervals.center_N[:2], expected, atol=1e-6)
    assert any(value > 0 for value in expected)


def test_wrong_answers_are_judged_by_their_reasoning_alone(policy):
    """The answer that a rollout wrote changes nothing: the reference stands in its place."""
    _, scored = _score(policy, [("p", "hm\n#### 7"), ("p", "hm\n#### 8")])
    assert scored.intervals.center_N[0] == scored.intervals.center_N[1]


def test_form_decides_zero_or_missing(policy):
    """An answer alone is 0, behind a mark or not, and so is no answer; cut off is missing."""
    completions = [("p", "7"), ("p", "no idea"), ("p", "#### 7"), ("p", "so 3 a")]
    _, scored = _score(policy, completions, finish=["stop", "stop", "stop", "length"])
    assert [0.0] * 3 == scored.intervals.center_N[:3].tolist()
    assert [False, False, False, True] == scored.intervals.missing_N.tolist()


@pytest.mark.parametrize("score", [score_by_reference_probability, score_by_verifree])
@pytest.mark.parametrize(
    ("asked", "completion"),
    [
        (row(reference="-7"), "so 3 - 10\n#### \u22127"),
        (row(reference="1234"), "so 1000 and 234\n#### 1 234"),
        (row(reference="B", suite="multiple_choice", metadata={"options": ["3", "7"]}), "so 3 and 4. Answer: (b)"),
        (row(reference="B", suite="multiple_choice", metadata={"options": ["red", "blue"]}), "so it is. Answer: blue"),
    ],
)
def test_an_answer_in_another_writing_is_missing_not_zero(policy, score, asked, completion):
    """A right answer that was reasoned for, but stands nowhere as the suite writes it, is no failure of its form."""
    worker, initial = policy
    context = context_of([asked], [("p", completion), ("p", "no idea")], worker=worker, initial=initial)
    assert 1.0 == context.verdicts.truth_N[0]
    assert [True, False] == score(context).intervals.missing_N.tolist()


def test_sharing_the_prompt_changes_nothing(policy):
    """Reading the prompt once or with every rollout gives the same rewards."""
    shared = _score(policy)[1].intervals.center_N
    whole = _score(policy, reward={"reference_probability": {"share_prefix": False}})[1].intervals.center_N
    np.testing.assert_allclose(shared, whole, atol=1e-6)


def test_baseline_is_asked_once_and_of_the_initial_policy(policy):
    """What the state holds is not computed again, even when the policy has moved; a new reference is."""
    worker, _ = policy
    _, first = _score(policy)
    known = first.state["baseline"]
    assert 1 == len(known)
    moved = dict.fromkeys(known, 0.0)
    _, again = _score((worker, None), state={"baseline": moved})
    assert moved == again.state["baseline"]
    assert (again.intervals.center_N[:2] >= first.intervals.center_N[:2]).all()
    _, other = _score(policy, rows=[row(reference="9")], state={"baseline": moved})
    assert 2 == len(other.state["baseline"])


def test_without_debiasing_nothing_is_subtracted(policy):
    """The ablation reads no baseline and keeps none."""
    worker, _ = policy
    _, scored = _score((worker, None), reward={"reference_probability": {"debias": False}})
    assert {} == scored.state["baseline"]
    assert (scored.intervals.center_N[:2] > 0).all()


@pytest.mark.parametrize("aggregate", ["mean", "product", "root"])
def test_aggregates_agree_on_one_token(policy, aggregate):
    """A reference of one token has one probability, however it is aggregated."""
    setting = {"reference_probability": {"aggregate": aggregate, "debias": False}}
    expected = _score(policy, reward={"reference_probability": {"debias": False}})[1].intervals.center_N
    np.testing.assert_allclose(_score(policy, reward=setting)[1].intervals.center_N, expected, rtol=1e-6)


def test_product_falls_below_the_mean_on_longer_references(policy):
    """Of several tokens the product is smallest, and the root lies below the mean."""
    values = [
        _score(
            policy, rows=[row(reference="123")], reward={"reference_probability": {"aggregate": name, "debias": False}}
        )
        for name in ("product", "root", "mean")
    ]
    product, root, mean = (scored.intervals.center_N[0] for _, scored in values)
    assert product < root < mean


def test_verifier_can_be_added(policy):
    """The verifier's reward joins the sum with its weight, and the support grows by it."""
    setting = {"reference_probability": {"verifier_weight": 1.0}}
    alone, both = _score(policy)[1].intervals, _score(policy, reward=setting)[1].intervals
    np.testing.assert_allclose(both.center_N - alone.center_N, [1.0, 0.0, 1.0, 0.0], atol=1e-12)
    assert (0.0, 2.0) == both.support


def test_best_of_several_references(policy):
    """With further references in the metadata, the best is never worse than the first, and the mean lies between."""
    several = [row(metadata={"references": ["9", "7"]})]
    assert ["7", "9"] == [item.text for item in references_of(several[0])]
    setting = {"reference_probability": {"debias": False}}
    lone = [_score(policy, rows=[row(reference=r)], reward=setting)[1].intervals.center_N[0] for r in ("7", "9")]
    best = _score(policy, rows=several, reward=setting)[1].intervals.center_N[0]
    mean = _score(policy, rows=several, reward={"reference_probability": {"debias": False, "references": "mean"}})[
        1
    ].intervals.center_N[0]
    assert (pytest.approx(max(lone), rel=1e-5), pytest.approx(np.mean(lone), rel=1e-5)) == (best, mean)


def test_worked_solution_is_no_part_of_the_reference(policy):
    """Of a reference that holds its solution, only the answer is scored, after the mark alone."""
    (found,) = references_of(row(reference="3 + 4 = 7\n#### 7"))
    assert ("7", "#### ") == (found.text, found.lead)


FILTER = {
    "reward": {"reference_probability": {"debias": False, "filter": {"record_from": 1, "filter_from": 2, "beta": 1.0}}}
}
FLAT, WIDE = [("p", "a\n#### 7"), ("p", "a\n#### 7")], [("q", "b\n#### 7"), ("q", "so 3 and 4 make\n#### 7")]


def test_filter_drops_flat_prompts_and_draws_others(policy):
    """A prompt whose rollouts earn alike leaves; another is drawn in its place, and both are told."""
    worker, _ = policy
    other = [row("q")]
    asked = []

    def draw(count, first):
        asked.append((count, first))
        return rollouts_of(worker, other, WIDE), {"q": other[0]}

    state = {"filter": {"recorded": [1e-9], "ema": None, "previous": None}}
    _, scored = _score(policy, FLAT, number=2, draw=draw, state=state, **FILTER)
    assert [(1, 0)] == asked
    assert [False, False, True, True] == scored.kept_N.tolist()
    assert ("p", "p", "q", "q") == scored.rollouts.prompt_id_N == scored.intervals.prompt_id_N
    assert ("full", 2, 1) == tuple(scored.facts[name] for name in ("filter_end", "drawn_prompts", "kept_prompts"))


def test_exhausted_pool_and_spent_refills_end_differently(policy):
    """No further prompt, only flat ones to draw, and nothing kept at all are told apart."""
    worker, _ = policy
    state = {"filter": {"recorded": [0.5], "ema": None, "previous": None}}
    _, nothing = _score(policy, FLAT, number=2, state=state, **FILTER)
    assert ("nothing kept", 0) == (nothing.facts["filter_end"], nothing.facts["kept_prompts"])
    drawn = []

    def flat(count, first):
        drawn.append(first)
        name = f"f{len(drawn)}"
        return rollouts_of(worker, [row(name)], [(name, "a\n#### 7")] * 2), {name: row(name)}

    state = {"filter": {"recorded": [1e-9], "ema": None, "previous": None}}
    two = [*WIDE, *FLAT]
    _, spent = _score(policy, two, rows=[row("p"), row("q")], number=2, draw=flat, state=state, **FILTER)
    assert ("refills spent", 1, [0, 1, 2, 3]) == (spent.facts["filter_end"], spent.facts["kept_prompts"], drawn)
    _, exhausted = _score(policy, two, rows=[row("p"), row("q")], number=2, state=state, **FILTER)
    assert "pool exhausted" == exhausted.facts["filter_end"]


def test_ema_sees_all_that_was_drawn(policy):
    """What the filter drops counts in the mean spread that moves the EMA."""
    state = {"filter": {"recorded": [0.5], "ema": None, "previous": None}}
    _, scored = _score(policy, [*FLAT, *WIDE], rows=[row("p"), row("q")], number=2, state=state, **FILTER)
    assert [False] * 4 == scored.kept_N.tolist()
    assert scored.facts["mean_group_std"] == scored.state["filter"]["previous"] > 0


def test_verifree_gives_reasoning_a_gradient_and_the_reference_a_weight(policy):
    """Only reasoning tokens are trained; the reference follows them as a text to learn, weighted by its likelihood."""
    worker, initial = policy
    context = context_of([row()], COMPLETIONS, worker=worker, initial=initial)
    scored = score_by_verifree(context)
    assert [len("so 3 and 4\n#### "), len("hm\n#### ")] == list(scored.trained_tokens_N[:2])
    assert [len(ids) for ids in context.rollouts.token_ids_N[2:]] == list(scored.trained_tokens_N[2:])
    assert 2 == len(scored.taught)
    first = scored.taught[0]
    whole = worker.tokenizer.decode([*first.prompt_ids, *first.target_ids])
    assert whole.endswith("so 3 and 4\n#### 7")
    assert scored.intervals.center_N[0] == first.weight > 0
    assert [0.0, 0.0] == scored.intervals.center_N[2:].tolist()


def test_verifree_without_its_second_term_teaches_nothing(policy):
    """The ablation keeps the rewards and drops the texts."""
    worker, initial = policy
    context = context_of(
        [row()], COMPLETIONS, worker=worker, initial=initial, reward={"verifree": {"reference_term": False}}
    )
    assert () == score_by_verifree(context).taught
    whole = score_by_verifree(replace(context, config=context.config.model_copy()))
    np.testing.assert_array_equal(whole.intervals.center_N, score_by_verifree(context).intervals.center_N)
