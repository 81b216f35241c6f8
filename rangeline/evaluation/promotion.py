"""The accuracy gate of a promotion: may a new policy take the place of the one that serves.

Computes from the paired change of accuracy whether it did not fall. Formula: open where the mean change over shared
prompts is at least 0 and the lower bound of its interval, from resampling prompts, is at least -m, so that a fall of
more than m is ruled out at the interval's level. The mean is divided by the shared prompts. Left out is a test of
improvement: a policy that is as good may take over, since it has learned from newer data.
"""

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison import PairedDifference


def accuracy_gate(change: PairedDifference | None, *, max_fall: float) -> tuple[bool | None, str]:
    """Return whether accuracy did not fall, None where that cannot be told, and the reason in words.

    Parameters
    ----------
    change
        From the policy that serves to the new one, by prompt; None where no prompt has both rewards.
    max_fall
        m, the fall of mean accuracy that must be ruled out, in (0, 1).

    Returns
    -------
    tuple
        True only where both conditions hold; None, which is never open, without an interval.

    Raises
    ------
    BadInputError
        If `max_fall` is not in (0, 1).

    Notes
    -----
    A test of non-inferiority, paired and clustered by prompt; that the point estimate must not fall either is ours: it
    keeps many nights from giving up m each.
    """
    if not 0 < max_fall < 1:
        msg = f"'max_fall' must be in (0, 1); got {max_fall}. Give the fall of accuracy that must be ruled out."
        raise BadInputError(msg)
    if change is None or change.lower is None or change.upper is None:
        return None, "accuracy cannot be compared: no prompt has rewards of both policies"
    shown = f"{change.mean:+.3f} [{change.lower:+.3f}, {change.upper:+.3f}] over {change.num_shared} prompts"
    if change.mean < 0:
        return False, f"accuracy fell by {shown}"
    if change.lower < -max_fall:
        return False, f"a fall of more than {max_fall:g} is not ruled out: {shown}; evaluate on more prompts"
    return True, f"accuracy did not fall: {shown}"
