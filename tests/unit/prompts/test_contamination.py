"""Wording shared by training and evaluation prompts."""

from rangeline.prompts.contamination import contaminated_prompts

PASSAGE = "the quick brown fox jumps over the lazy dog near the river bank"


def _contaminated(training, evaluation):
    return contaminated_prompts(training, {prompt_id: prompt_id for prompt_id in training}, evaluation)


def test_eight_common_words_contaminate_and_seven_do_not():
    """A shared run of eight words is a leak, one of seven is not."""
    words = PASSAGE.split()
    eight = "Once upon a time " + " ".join(words[:8]) + " again"
    seven = "Once upon a time " + " ".join(words[:7]) + " again"
    assert {"eight": "the quick brown fox jumps over the lazy"} == _contaminated(
        {"eight": eight, "seven": seven}, [PASSAGE]
    )


def test_short_text_contaminates_when_it_occurs_whole():
    """A text under eight words leaks when all of it occurs in an evaluation prompt, in form or not."""
    training = {"in": "Calculate 12 + 7.", "out": "Calculate 12 + 9."}
    assert {"in": "calculate 12 + 7"} == _contaminated(training, ["Please calculate 12 + 7 and say it."])


def test_template_wording_is_no_leak():
    """Wording that more than ten training clusters share, numbers masked, is a template; up to ten it is a leak."""
    template = "State the final answer to the following arithmetic problem: {} + 1 ="
    training = {f"p{i}": template.format(i) for i in range(11)}
    assert {} == _contaminated(training, [template.format(99)])
    fewer = dict(list(training.items())[:10])
    assert list(fewer) == list(_contaminated(fewer, [template.format(99)]))


def test_no_evaluation_contaminates_nothing():
    """Without evaluation prompts, or without training prompts, nothing is shared."""
    assert {} == _contaminated({"a": PASSAGE}, [])
    assert {} == _contaminated({}, [PASSAGE])
