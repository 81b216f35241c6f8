"""Log-probabilities of given tokens: refusals, dtypes, and models that change their logits after the head."""

import pytest
import torch
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, LlamaConfig

from rangeline.errors import BadInputError
from rangeline.rollout.reading import position_ids
from rangeline.rollout.token_logprobs import token_logprobs

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IDS = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
KEEP = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]).bool()


def model_of(config):
    """Return a random model of a configuration."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES),
        Gemma2Config(**SIZES, final_logit_softcapping=2.0),
        GraniteConfig(**SIZES, logits_scaling=3.0),
        CohereConfig(**SIZES, logit_scale=0.25),
    ],
    ids=["llama", "gemma2", "granite", "cohere"],
)
def test_values_follow_the_models_own_logits(config):
    """Scales and caps behind the head are part of the log-probabilities."""
    model = model_of(config)
    logits = model(input_ids=IDS, attention_mask=MASK).logits.float()
    plain = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, IDS[:, 1:, None])[..., 0]
    logprob, _ = token_logprobs(model, IDS, MASK, KEEP)
    torch.testing.assert_close(plain[KEEP[:, 1:]], logprob[KEEP], atol=1e-5, rtol=1e-5)


def test_entropy_has_a_gradient_only_when_asked():
    """The entropy is detached by default; the log-probability never is."""
    model = model_of(LlamaConfig(**SIZES))
    logprob, entropy = token_logprobs(model, IDS, MASK, KEEP)
    assert (True, False) == (logprob.requires_grad, entropy.requires_grad)
    assert token_logprobs(model, IDS, MASK, KEEP, with_entropy=True)[1].requires_grad


def test_nothing_kept_gives_zeros():
    """With no kept token all values are exactly 0."""
    logprob, entropy = token_logprobs(model_of(LlamaConfig(**SIZES)), IDS, MASK, torch.zeros_like(KEEP))
    assert (0.0, 0.0) == (logprob.abs().sum().item(), entropy.abs().sum().item())


def test_autocast_gives_float32_and_a_gradient():
    """Under autocast values are float32, near the exact ones, and the backward pass works."""
    model = model_of(LlamaConfig(**SIZES))
    exact, _ = token_logprobs(model, IDS, MASK, KEEP)
    with torch.autocast("cpu", torch.bfloat16):
        logprob, _ = token_logprobs(model, IDS, MASK, KEEP)
        logprob.sum().backward()
    assert torch.float32 == logprob.dtype
    torch.testing.assert_close(exact, logprob, atol=0.1, rtol=0.1)


def test_positions_skip_padding():
    """Real tokens count from 0 on either side of the padding."""
    assert [[0, 1, 2, 2], [0, 0, 0, 1]] == position_ids(torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1]])).tolist()


def test_first_column_cannot_be_kept():
    """The first token has nothing before it."""
    with pytest.raises(BadInputError, match=r"'keep_mask_BL' must be False in the first column; got True \(row 1\)"):
        token_logprobs(None, IDS, MASK, torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]))


def test_shapes_must_agree():
    """Ids and masks share one shape."""
    with pytest.raises(BadInputError, match="must share one shape"):
        token_logprobs(None, IDS, MASK[:1], KEEP)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("temperature", -1.0), ("chunk_rows", 0)])
def test_scales_must_be_positive(name, value):
    """Temperature and chunk size are positive."""
    with pytest.raises(BadInputError, match=f"'{name}' must be positive; got {value}"):
        token_logprobs(None, IDS, MASK, KEEP, **{name: value})


def test_equal_rows_have_equal_values_and_every_gradient():
    """Rows that read the same tokens are read once: values are those of each row alone, gradients add up over rows."""
    ids, keep = IDS[[0, 0, 1, 0]].clone(), KEEP[[0, 0, 1, 0]]
    ids[1, 3] = 9
    together, apart = model_of(LlamaConfig(**SIZES)), model_of(LlamaConfig(**SIZES))
    logprob, _ = token_logprobs(together, ids, MASK[[0, 0, 1, 0]], keep)
    logprob.sum().backward()
    for i in range(4):
        alone, _ = token_logprobs(apart, ids[i : i + 1], MASK[[0, 0, 1, 0]][i : i + 1], keep[i : i + 1])
        torch.testing.assert_close(alone[0], logprob[i], atol=1e-6, rtol=1e-5)
        alone.sum().backward()
    for a, b in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-4)


def test_a_wrapped_head_gives_what_a_plain_one_gives():
    """A head with a hook is called, a plain one is read: same values, same gradient."""
    results = []
    for is_hooked in (False, True):
        model = model_of(LlamaConfig(**SIZES))
        if is_hooked:
            model.lm_head.register_forward_hook(lambda module, inputs, output: output)
        logprob, entropy = token_logprobs(model, IDS, MASK, KEEP, temperature=0.7, with_entropy=True)
        (logprob.sum() + entropy.sum()).backward()
        results.append([logprob, entropy, *(p.grad for p in model.parameters() if p.grad is not None)])
    for plain, hooked in zip(*results, strict=True):
        torch.testing.assert_close(plain, hooked, atol=1e-5, rtol=1e-5)
