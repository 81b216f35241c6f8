"""What the report says of turned signs and of the judge: each with the numbers that it was read from.

Both are read over all iterations. Rollouts of one iteration share their policy and their intervals, so that iterations,
not rollouts, are the units of the intervals here.
"""

import numpy as np

from rangeline.conformal.coverage import clustered_band
from rangeline.evaluation.report_text import DASH, count_text, share_text
from rangeline.evaluation.report_words import Finding
from rangeline.evaluation.run_summary import RunSummary
from rangeline.evaluation.sampling_metrics import clustered_interval

_FEWEST_ITERATIONS = 5
"""Fewer are no evidence of which way turned signs go."""


def flip_finding(summary: RunSummary) -> Finding | None:
    """Return how many signs the intervals turned against their midpoint, and whether the truth was with them.

    The truth is that of the policy's own rollouts where an oracle knows it, else that of audited rollouts.

    Returns
    -------
    Finding | None
        None where no iteration counted turned signs.
    """
    turned = _total(summary, "advantage/sign_flips")
    if turned is None:
        return None
    credited = _total(summary, "advantage/credited")
    numbers = f"{count_text(turned)} of {count_text(credited)} credited rollouts"
    numbers += f" ({share_text(turned / credited)})" if credited else ""
    mark, verdict, detail = _truth_of_flips(summary)
    headline = f"Signs turned against the midpoint: {verdict}" if turned else "No sign was turned against the midpoint"
    return Finding(mark=mark if turned else "≈", headline=headline, numbers=numbers, detail=detail)


def _truth_of_flips(summary: RunSummary) -> tuple[str, str, str]:
    """Return mark, verdict and detail."""
    whose = "oracle" if _total(summary, "oracle/flips_right") is not None else "audit"
    pairs = list(zip(summary.column(f"{whose}/flips_right"), summary.column(f"{whose}/flips_wrong"), strict=True))
    known = [(str(i), int(right), int(wrong)) for i, (right, wrong) in enumerate(pairs) if None not in (right, wrong)]  # type: ignore[arg-type]
    right, wrong = sum(item[1] for item in known), sum(item[2] for item in known)
    what = "policy rollouts, by the oracle" if whose == "oracle" else "audited rollouts, credited alike"
    if not right + wrong:
        return "?", "truth not known", "No turned sign met a truth that differs from its group's mean."
    value = [side for _, a, b in known for side in [1.0] * a + [0.0] * b]
    owner = [name for name, a, b in known for _ in range(a + b)]
    lower, upper = clustered_band(value, owner, confidence=summary.confidence)
    share = f"{share_text(right / (right + wrong))} ({share_text(lower)} to {share_text(upper)})"
    detail = (
        f"Of {what}: {count_text(right)} turned towards the truth, {count_text(wrong)} away from it, {share} right. "
        "Each counts once, however small its credit."
    )
    if len(set(owner)) < _FEWEST_ITERATIONS:
        return "?", "too few to tell", detail
    if lower > 0.5:
        return "▲", "mostly rightly", detail
    return ("▼", "mostly wrongly", detail) if upper < 0.5 else ("≈", "no clear gain", detail)


def judge_finding(summary: RunSummary) -> Finding | None:
    """Return how far the judge agrees with the truth of audited rollouts, and how often it says nothing.

    Returns
    -------
    Finding | None
        None where no judge was asked.
    """
    if summary.last_known("judge/unknown_share") is None:
        return None
    agreement = np.array([value for value in summary.column("judge/agreement") if value is not None])
    silence = [
        f"{name} {share_text(_mean(summary, key))}"
        for name, key in (("UNKNOWN", "judge/unknown_share"), ("missing", "judge/missing_share"))
    ]
    detail = f"Mean over iterations: {', '.join(silence)} of what it was asked of policy rollouts."
    if not len(agreement):
        return Finding(mark="?", headline="Judge against the truth: not known", numbers=DASH, detail=detail)
    lower, upper = clustered_interval(agreement, confidence=summary.confidence, seed=0, support=(0.0, 1.0))
    numbers = f"{share_text(float(agreement.mean()))} ({share_text(lower)} to {share_text(upper)}) of audited pairs"
    mark, headline = "≈", "Judge hardly tells better from worse"
    if lower is not None and lower > 0.5:
        mark, headline = "✓", "Judge orders rollouts better than a coin"
    elif upper is not None and upper < 0.5:
        mark, headline = "✗", "Judge orders rollouts the wrong way round"
    return Finding(mark=mark, headline=headline, numbers=numbers, detail=detail)


def _total(summary: RunSummary, key: str) -> float | None:
    known = [value for value in summary.column(key) if value is not None]
    return sum(known) if known else None


def _mean(summary: RunSummary, key: str) -> float | None:
    known = [value for value in summary.column(key) if value is not None]
    return sum(known) / len(known) if known else None
