"""Laws of the page of completions: nothing hostile gets out of its cell, and what is left out is said."""

from rangeline.evaluation.completion_page import completion_page
from rangeline.evaluation.report_text import DASH


def row(**changes):
    """Make one completion."""
    return {
        "prompt_id": "p",
        "prompt": "2 + 2",
        "sample": 0,
        "completion": "four",
        "num_tokens": 1,
        "finish_reason": "stop",
        "source": "verifier",
        "lower": 0.25,
        "upper": 0.75,
        "advantage": 0.5,
        "kept": True,
        **changes,
    }


def test_hostile_texts_are_escaped():
    """Markup in prompts, completions, ids, sources and titles is shown, never obeyed."""
    bad = "<script>alert(1)</script><img src=x onerror=y>"
    page = completion_page([row(prompt=bad, completion=bad, prompt_id=bad, source=bad)], title=bad)
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_hidden_characters_are_written_out():
    """A bidirectional override, a null and a lone surrogate become visible, and the page can be encoded."""
    page = completion_page([row(completion="a\u202eb\x00\ud800")], title="t")
    assert "a⟨U+202E⟩b⟨U+0000⟩⟨U+D800⟩" in page
    assert page.encode()


def test_missing_reward_is_a_dash():
    """A completion without a reward shows a dash, never 0; a point shows as one number, an interval as two."""
    page = completion_page([row(lower=None, upper=None), row(lower=1.0, upper=1.0), row()], title="t")
    assert f"<td>{DASH}</td>" in page
    assert "<td>1</td>" in page
    assert "<td>[0.25, 0.75]</td>" in page


def test_private_texts_are_left_out_and_counted():
    """A row whose text is not to be shown is in no table of the page, and the page says how many there are."""
    page = completion_page([row(), row(prompt_id="secret", prompt=None, completion=None)], title="t")
    assert "secret" not in page
    assert "1 of 2 completions are shown" in page
    assert "1 belong to problems that their owners keep private" in page


def test_long_texts_and_tables_are_cut_and_say_so():
    """A long completion says how much is missing; a long table is cut to its first rows, and the page counts both."""
    page = completion_page([row(completion="x" * 5000)] + [row(sample=i) for i in range(1, 600)], title="t")
    assert "[3,000 more characters not shown]" in page
    assert "400 of 600 completions are shown" in page


def test_what_is_left_out_is_counted_in_characters_of_the_text():
    """Hidden characters are written out after the cut: 3000 of them are 2000 shown and 1000 left out."""
    page = completion_page([row(completion="\u202e" * 3000)], title="t")
    assert 2000 == page.count("⟨U+202E⟩")
    assert "[1,000 more characters not shown]" in page


def test_page_loads_nothing():
    """The page stands alone: no script, and a policy that forbids any."""
    page = completion_page([row()], title="t")
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")


def test_no_completion_is_a_page():
    """An iteration without completions still has its page."""
    assert "0 of 0 completions are shown" in completion_page([], title="t")
