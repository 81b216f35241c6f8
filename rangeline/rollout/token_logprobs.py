"""Log-probabilities and entropies of given tokens under a causal language model, without a [B, L, V] tensor.

Computes log p(token_t | tokens_<t) and the entropy of that distribution at one temperature, in float32.
The formula is log-softmax of the language-model head's logits over the temperature, taken at the token.
Nothing is divided: values are per token, and callers choose their own normaliser.
No method is followed and nothing is left out; rows go through the head in chunks that are computed again in the
backward pass, because logits of a whole batch are larger than everything else a training step holds: a plain linear
head by `head_logprobs`, any other by calling it. Prompts that repeat are read once (`prefix_sharing`).

Shapes: B rows, L tokens (prompt, completion and padding), R kept tokens, H hidden size, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rangeline.errors import BadInputError
from rangeline.rollout.head_logprobs import head_logprobs, is_plain_linear
from rangeline.rollout.prefix_sharing import hidden_before


def token_logprobs(  # noqa: PLR0913 - rows with their masks, and how they are read
    model: Any,
    token_ids_BL: Tensor,
    attention_mask_BL: Tensor,
    keep_mask_BL: Tensor,
    *,
    temperature: float = 1.0,
    chunk_rows: int = 256,
    with_entropy: bool = False,
    share_prefix: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy of every kept token, 0 elsewhere.

    ``logprob_BL[b, t] = log softmax(logits(tokens_<t) / temperature)[token_t]``.

    Parameters
    ----------
    model
        A causal language model of transformers, unwrapped; under DDP or FSDP call this inside the wrapped module's
        forward, since the decoder is called directly.
    token_ids_BL
        int64, [B, L].
    attention_mask_BL
        1 on real tokens, 0 on padding of either side.
    keep_mask_BL
        bool, True where a value is wanted; the first column must be False, nothing comes before it.
    temperature
        Positive; logits are divided by it.
    chunk_rows
        Kept tokens a pass through the head; bounds the memory at ``chunk_rows * V``.
    with_entropy
        True lets gradients flow through the entropy, for an entropy bonus; False gives it detached.
    share_prefix
        False reads every row whole, as a model whose layers are gathered one by one must: a prompt that is read apart
        leaves its last layer without a gradient of its output, which is what brings the weights back.

    Returns
    -------
    tuple of Tensor
        ``logprob_BL`` and ``entropy_BL``, float32 (float64 for a float64 model), exactly 0 where not kept.

    Raises
    ------
    BadInputError
        If shapes differ, the first column is kept, or ``temperature`` or ``chunk_rows`` is not positive.

    Notes
    -----
    Models that rescale or cap their logits after the head (Gemma, Cohere, Granite) are followed.
    """
    keep_BL = keep_mask_BL.bool()
    _check(token_ids_BL, attention_mask_BL, keep_BL, temperature=temperature, chunk_rows=chunk_rows)
    hidden_RH = hidden_before(model, token_ids_BL, attention_mask_BL, keep_BL, share=share_prefix)
    target_R = token_ids_BL[keep_BL]

    head, finish = model.get_output_embeddings(), logit_map(model)
    scale, cap = _scale_and_cap(model)
    if is_plain_linear(head) and not cap:
        logprob_R, entropy_R = head_logprobs(
            head, hidden_RH, target_R, factor=scale / temperature, chunk_rows=chunk_rows
        )
        kept_entropy_R = entropy_R if with_entropy else entropy_R.detach()
        return _scatter([logprob_R.float()], keep_BL), _scatter([kept_entropy_R.float()], keep_BL)

    def chunk(hidden: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return _of_rows(finish(head(hidden)), target, temperature, with_entropy)

    logprobs, entropies = [], []
    for hidden, target in zip(hidden_RH.split(chunk_rows), target_R.split(chunk_rows), strict=True):
        if torch.is_grad_enabled():
            logprob, entropy = checkpoint(chunk, hidden, target, use_reentrant=False, preserve_rng_state=False)
        else:
            logprob, entropy = chunk(hidden, target)
        logprobs.append(logprob)
        entropies.append(entropy)
    return _scatter(logprobs, keep_BL), _scatter(entropies, keep_BL)


def _of_rows(logits_RV: Tensor, target_R: Tensor, temperature: float, with_entropy: bool) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(logits_RV.dtype, torch.float32)
    logprob_RV = torch.log_softmax(logits_RV.to(wide) / temperature, dim=-1)
    logprob_R = logprob_RV.gather(-1, target_R[:, None])[:, 0]
    with torch.set_grad_enabled(with_entropy and torch.is_grad_enabled()):
        # xlogy-like guard: a token of probability 0 has log-probability -inf and adds nothing.
        entropy_R = -(logprob_RV.exp() * logprob_RV.clamp(min=torch.finfo(wide).min)).sum(dim=-1)
    return logprob_R, entropy_R


def _scatter(values: list[Tensor], keep_BL: Tensor) -> Tensor:
    # The first column is never kept, so row-major order of kept tokens equals that of the states before them.
    kept_R = torch.cat(values)
    return torch.zeros(keep_BL.shape, dtype=kept_R.dtype, device=keep_BL.device).masked_scatter(keep_BL, kept_R)


def logit_map(model: Any) -> Callable[[Tensor], Tensor]:
    """Return what the model does to the products of its head: nothing, a scale, or a cap."""
    scale, cap = _scale_and_cap(model)

    def finish(logits: Tensor) -> Tensor:
        scaled = logits if scale == 1.0 else logits * scale
        return torch.tanh(scaled / cap) * cap if cap else scaled

    return finish


def _scale_and_cap(model: Any) -> tuple[float, float | None]:
    config = model.config.get_text_config()
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    return scale, getattr(config, "final_logit_softcapping", None)


def _check(
    token_ids_BL: Tensor, attention_mask_BL: Tensor, keep_BL: Tensor, *, temperature: float, chunk_rows: int
) -> None:
    shapes = [tuple(item.shape) for item in (token_ids_BL, attention_mask_BL, keep_BL)]
    if len(set(shapes)) > 1 or token_ids_BL.ndim != 2:
        msg = f"'token_ids_BL', 'attention_mask_BL' and 'keep_mask_BL' must share one shape [B, L]; got {shapes}."
        raise BadInputError(msg)
    if bool(keep_BL[:, :1].any()):
        row = int(keep_BL[:, 0].nonzero()[0, 0])
        msg = f"'keep_mask_BL' must be False in the first column; got True (row {row}). Nothing precedes that token."
        raise BadInputError(msg)
    for name, value in (("temperature", temperature), ("chunk_rows", chunk_rows)):
        if not value > 0:
            msg = f"'{name}' must be positive; got {value}."
            raise BadInputError(msg)
