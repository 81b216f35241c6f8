"""KL estimators: what one sampled token says of the distance between the policy and the frozen reference.

It computes one number a token from two log-probs, in one of three forms that are chosen by name.
With d = log pi - log pi_ref: k1 = d; k2 = d^2 / 2; k3 = exp(-d) - 1 + d.
Nothing is divided: the objective weighs tokens as it weighs their advantages.
The exact sum over the vocabulary is left out, because it needs the reference's whole distribution at every token; so
is k1 inside the reward, which would make advantages depend on the reference policy.

For tokens drawn from pi, k1 and k3 have the mean KL(pi || pi_ref), and k2 only nearly so. As a term of the loss their
gradients differ: in the mean k1 has none at all, k2 has that of KL(pi || pi_ref), k3 that of KL(pi_ref || pi).

Shapes: B rows, L tokens.
"""

from typing import Literal

from torch import Tensor

from rangeline.errors import BadInputError

KlForm = Literal["k1", "k2", "k3"]

# exp(20) is 5e8: a larger ratio says that the numbers broke down, and exp(88) overflows float32.
MAX_LOG_RATIO = 20.0


def kl_per_token(current_BL: Tensor, reference_BL: Tensor, form: KlForm) -> Tensor:
    """Return the KL estimate of each token; its gradient flows to the current log-probs.

    Parameters
    ----------
    current_BL, reference_BL
        Log-probs of the sampled tokens; finite.
    form
        `k1`: d. `k2`: d^2 / 2. `k3`: exp(-d) - 1 + d.

    Returns
    -------
    Tensor
        Shape (B, L); k2 and k3 are at least 0, k1 has either sign.

    Raises
    ------
    BadInputError
        When the form is unknown.

    Notes
    -----
    Schulman, Approximating KL divergence (2020); k3 in the loss: DeepSeekMath (2024) eq. 4. The bound on d is ours.
    """
    gap_BL = (current_BL - reference_BL).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if form == "k1":
        return gap_BL
    if form == "k2":
        return gap_BL.square() / 2
    if form == "k3":
        return (-gap_BL).exp() - 1.0 + gap_BL
    msg = f"'kl_form' must be k1, k2 or k3; got '{form}' (policy settings). Choose one of them."
    raise BadInputError(msg)
