"""Loss and gradient of TRL's GRPOTrainer, fed Range-GRPO advantages as rewards, against this project's own update.

TRL samples, calls `RangeReward`, and computes its loss with `scale_rewards="none"` and `loss_type="dr_grpo"`. The same
rollouts and intervals go through `policy.batch` and `policy.trainer`. Both must agree to 1e-5, the gradient on the
scale of its largest entry. It ends with exit code 1 where they do not. Run by `make bench-trl`, in an environment of
its own: TRL caps other versions than the rest of the project needs.
"""

import math
import string
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rangeline.advantages import compute_advantages
from rangeline.integrations.trl import RangeReward
from rangeline.policy.batch import build_batch
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import RewardIntervals, RolloutSet

TOLERANCE = 1e-5
MAX_TOKENS, GROUP, PROMPTS = 8, 4, 3


def tiny_policy() -> tuple[Any, Any]:
    """Return a random Llama of two layers, and a tokenizer of characters."""
    letters = [*string.digits, *string.ascii_letters, *" \n.,:;?!+-=*/'\"()#"]
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<s>", "</s>", "<unk>", *letters])}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config), tokenizer


def scripted_intervals(ids: Sequence[str], texts: Sequence[str], columns: Mapping[str, Any]) -> RewardIntervals:
    """Give each completion an interval that depends on its prompt and text alone, and none to every seventh or so."""
    keys = [zlib.crc32(f"{prompt}|{text}".encode()) for prompt, text in zip(ids, texts, strict=True)]
    ends = np.array([np.sort(np.random.default_rng(key).random(2)) for key in keys])
    return RewardIntervals(
        prompt_id_N=tuple(ids),
        lower_N=ends[:, 0],
        upper_N=ends[:, 1],
        unbounded_N=np.zeros(len(keys), dtype=bool),
        missing_N=np.array([key % 7 == 0 for key in keys]),
        support=(0.0, 1.0),
        source="scripted",
    )


class RecordingTrainer(GRPOTrainer):
    """TRL's trainer, which keeps the inputs, the loss and the gradient of its first step."""

    seen: dict[str, Any] | None = None

    def compute_loss(self, model: Any, inputs: Any, **options: Any) -> Any:
        """Compute TRL's loss, and keep what it came from."""
        loss = super().compute_loss(model, inputs, **options)
        if self.seen is None:
            parts = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
            gradient = torch.cat([part.flatten() for part in parts]).detach().clone()
            self.seen = {"inputs": inputs, "loss": float(loss.detach()), "gradient": gradient}
        return loss


def run_trl(reward: RangeReward) -> tuple[dict[str, Any], Any, Any]:
    """Train one step with TRL; return what it saw, and the policy and tokenizer it began with."""
    model, tokenizer = tiny_policy()
    begun = deepcopy(model).eval()
    rows = Dataset.from_dict({"prompt": [f"{i} + {i} = " for i in range(PROMPTS)]})
    with tempfile.TemporaryDirectory() as scratch:
        settings = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=GROUP * PROMPTS,
            num_generations=GROUP,
            max_completion_length=MAX_TOKENS,
            scale_rewards="none",
            loss_type="dr_grpo",
            beta=0.0,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            seed=1,
        )
        trainer = RecordingTrainer(
            model=model, reward_funcs=reward, args=settings, train_dataset=rows, processing_class=tokenizer
        )
        trainer.train()
    if trainer.seen is None:
        sys.exit("TRL must take a step; got none.")
    return trainer.seen, begun, tokenizer


def run_ours(inputs: Mapping[str, Any], model: Any, tokenizer: Any) -> tuple[np.ndarray[Any, Any], float, Any]:
    """Put TRL's rollouts through this project; return advantages, loss and gradient."""
    prompts, completions = (
        [
            tuple(row[mask.bool()].tolist())
            for row, mask in zip(inputs[f"{name}_ids"], inputs[f"{name}_mask"], strict=True)
        ]
        for name in ("prompt", "completion")
    )
    ids = tuple(tokenizer.decode(list(prompt), skip_special_tokens=True) for prompt in prompts)
    texts = [tokenizer.decode(list(row), skip_special_tokens=True) for row in completions]
    num = len(ids)
    rollouts = RolloutSet(
        prompt_id_N=ids,
        sample_N=tuple(range(num)),
        completion_N=tuple(texts),
        prompt_token_ids_N=tuple(prompts),
        token_ids_N=tuple(completions),
        sampled_logprobs_N=tuple((-1.0,) * len(row) for row in completions),
        finish_reason_N=("stop",) * num,
        policy_version=0,
    )
    advantages = compute_advantages(scripted_intervals(ids, texts, {}), estimator="range")
    batch = build_batch(rollouts, advantages, pad_id=0, max_tokens=MAX_TOKENS)
    trainer = PolicyTrainer(model, UpdateSettings(betas=(0.5, 0.9), max_grad_norm=math.inf), cpu=True)
    report = trainer.update(batch)
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.model.parameters()]
    return advantages.value_N, report.loss, torch.cat([moment.flatten() for moment in moments]) * 2


def main() -> None:
    """Compare, and say what was compared; exit with 1 where the two differ."""
    seen, begun, tokenizer = run_trl(RangeReward(scripted_intervals))
    advantages, loss, gradient = run_ours(seen["inputs"], begun, tokenizer)
    scale = float(seen["gradient"].abs().max())
    gaps = {
        "advantage": float(np.abs(seen["inputs"]["advantages"].numpy() - advantages).max()),
        "loss": abs(seen["loss"] - loss),
        "gradient": float((seen["gradient"] - gradient).abs().max()) / scale,
    }
    sys.stdout.write(
        f"{len(advantages)} completions, {int((advantages != 0).sum())} with an advantage; loss {loss:.6e}, largest "
        f"gradient entry {scale:.3e}\n"
    )
    for name, gap in gaps.items():
        sys.stdout.write(f"{name:<10} differs by {gap:.2e} (allowed {TOLERANCE:.0e})\n")
    if scale == 0 or not np.any(advantages) or max(gaps.values()) > TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main()
