"""Loss and gradient of TRL's GRPOTrainer, fed Range-GRPO advantages as rewards, against this project's own update.

TRL samples, calls `RangeReward`, and computes its loss with `scale_rewards="none"` under each of the loss types
`dr_grpo`, `grpo` and `dapo`. The same rollouts and intervals go through `policy.batch` and `policy.trainer`: the
first step of a batch. A second loss is taken off the old policy, with clip-higher, a dual clip, the k3 term and
truncated importance factors, and the entropy bonus where both weigh tokens alike (`dapo`); TRL's own logs of it are
compared too. All must agree to 1e-5, the gradient on the scale of its largest entry. It ends with exit code 1 where
they do not. Run by `make bench-trl`, in an environment of its own: TRL caps other versions than the rest of the
project needs.
"""

import math
import platform
import string
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from rangeline.advantages import compute_advantages
from rangeline.integrations.trl import RangeReward
from rangeline.lineage import write_json
from rangeline.policy.batch import Aggregation, PolicyBatch, build_batch, token_weights
from rangeline.policy.objective import TokenTerms, policy_loss
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import FinishReason, RewardIntervals, RolloutSet
from rangeline.rollout.token_logprobs import token_logprobs

TOLERANCE = 1e-5
MAX_TOKENS, GROUP, PROMPTS = 8, 4, 3
AGGREGATIONS: tuple[Aggregation, ...] = ("dr_grpo", "grpo", "dapo")
FAR = {"low": 0.2, "high": 0.28, "delta": 1.6, "beta": 0.1, "entropy": 0.01, "cap": 1.5}
"""Settings of the loss off the old policy."""
TRL_LOGS = {
    "kl": "kl",
    "entropy": "entropy",
    "clip_ratio/low_mean": "clip_low_share",
    "clip_ratio/high_mean": "clip_high_share",
    "clip_ratio/region_mean": "clip_share",
    "clip_ratio/low_min": "clip_low_min",
    "clip_ratio/high_max": "clip_high_max",
}
"""TRL's names of what both log, and this project's."""


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
    """TRL's trainer, which keeps inputs, loss and gradient of its first step, and of a loss off the old policy."""

    seen: dict[str, Any] | None = None

    def compute_loss(self, model: Any, inputs: Any, **options: Any) -> Any:
        """Compute TRL's loss, and keep what it came from."""
        loss = super().compute_loss(model, inputs, **options)
        if self.seen is None:
            gradient = flat_gradient(loss, model)
            self.seen = {"inputs": inputs, "loss": float(loss.detach()), "gradient": gradient}
            self.seen["far"] = self.far_loss(model, inputs)
        return loss

    def far_loss(self, model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Compute TRL's loss with every term on, around log-probs that are not the policy's own."""
        with torch.no_grad():
            current, _, _ = self._get_per_token_logps_and_entropies(
                model,
                torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                inputs["completion_ids"].size(1),
            )
        draw = torch.Generator().manual_seed(3)
        noise = [torch.randn(current.shape, generator=draw) for _ in range(3)]
        advantages = inputs["advantages"]
        given = {
            **inputs,
            # TRL takes the mean off once more, which leaves rounding with a sign where an advantage is 0.
            "advantages": torch.where(advantages.abs() < 1e-7, 0.0, advantages),
            "old_per_token_logps": current + 0.5 * noise[0],
            "ref_per_token_logps": current + 0.5 * noise[1],
            "importance_sampling_ratio": noise[2].exp().clamp(max=FAR["cap"]),
        }
        bonus = FAR["entropy"] if self.loss_type == "dapo" else 0.0
        changes = {
            "beta": FAR["beta"],
            "epsilon_low": FAR["low"],
            "epsilon_high": FAR["high"],
            "use_vllm": True,
            "vllm_importance_sampling_correction": True,
            "entropy_coef": bonus,
            "_entropy_bonus_enabled": bonus > 0,
        }
        before = {name: getattr(self, name) for name in changes}
        self.args.delta, self.__dict__ = FAR["delta"], {**self.__dict__, **changes}
        loss = super().compute_loss(model, given)
        logs = self._metrics["train" if self.model.training else "eval"]
        found = {
            "inputs": given,
            "loss": float(loss.detach()),
            "gradient": flat_gradient(loss, model),
            "logs": {name: logs[name].pop() for name in TRL_LOGS},
        }
        self.args.delta = None
        self.__dict__.update(before)
        return found


def flat_gradient(loss: Any, model: Any) -> Any:
    """Return the gradient of a loss as one vector."""
    parts = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    return torch.cat([part.flatten() for part in parts]).detach().clone()


def run_trl(reward: RangeReward, aggregation: Aggregation) -> tuple[dict[str, Any], Any, Any]:
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
            loss_type=aggregation,
            beta=0.0,
            use_bias_correction_kl=False,
            max_steps=1,
            use_cpu=True,
            bf16=False,
            report_to=[],
            disable_tqdm=True,
            seed=1,
        )
        trainer = RecordingTrainer(
            model=model, reward_funcs=reward, args=settings, train_dataset=rows, processing_class=tokenizer
        )
        trainer.train()
    if trainer.seen is None:
        sys.exit("TRL must take a step; got none.")
    return trainer.seen, begun, tokenizer


def our_batch(inputs: Mapping[str, Any], tokenizer: Any) -> PolicyBatch:
    """Put TRL's rollouts through this project, up to the batch that is trained on."""
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
    stop: FinishReason = "stop"
    rollouts = RolloutSet(
        prompt_id_N=ids,
        sample_N=tuple(range(num)),
        completion_N=tuple(texts),
        prompt_token_ids_N=tuple(prompts),
        token_ids_N=tuple(completions),
        sampled_logprobs_N=tuple((-1.0,) * len(row) for row in completions),
        finish_reason_N=(stop,) * num,
        policy_version=0,
    )
    advantages = compute_advantages(scripted_intervals(ids, texts, {}), estimator="range")
    return build_batch(rollouts, advantages, pad_id=0, max_tokens=MAX_TOKENS)


def our_first_step(batch: PolicyBatch, model: Any, aggregation: Aggregation) -> tuple[float, Any]:
    """Return loss and gradient of the first step of this project's trainer."""
    settings = UpdateSettings(betas=(0.5, 0.9), max_grad_norm=math.inf, aggregation=aggregation)
    trainer = PolicyTrainer(model, settings, cpu=True)
    report = trainer.update(batch)
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.model.parameters()]
    return report.loss, torch.cat([moment.flatten() for moment in moments]) * 2


def our_far_loss(batch: PolicyBatch, model: Any, given: Mapping[str, Any], aggregation: Aggregation) -> dict[str, Any]:
    """Return this project's loss, gradient and numbers with every term on, in the padding that TRL uses."""
    prompt, mask = given["prompt_mask"], given["completion_mask"].bool()
    nothing = torch.zeros(prompt.shape)

    def beside(values: Any) -> Any:
        return torch.cat([nothing, values], dim=1)

    bonus = FAR["entropy"] if aggregation == "dapo" else 0.0
    mask_BL = torch.cat([nothing.bool(), mask], dim=1)
    current_BL, entropy_BL = token_logprobs(
        model,
        torch.cat([given["prompt_ids"], given["completion_ids"]], dim=1),
        torch.cat([prompt, given["completion_mask"]], dim=1),
        mask_BL,
        with_entropy=bonus > 0,
    )
    loss, said = policy_loss(
        TokenTerms(
            current_BL=current_BL,
            old_BL=beside(given["old_per_token_logps"]),
            reference_BL=beside(given["ref_per_token_logps"]),
            entropy_BL=entropy_BL,
            mask_BL=mask_BL,
            advantage_B=torch.tensor(batch.advantage_B),
            weight_B=torch.tensor(token_weights(batch, aggregation)),
            factor_BL=beside(given["importance_sampling_ratio"]),
        ),
        clip_low=FAR["low"],
        clip_high=FAR["high"],
        dual_clip=FAR["delta"],
        kl_coefficient=FAR["beta"],
        entropy_coefficient=bonus,
    )
    return {"loss": float(loss.detach()), "gradient": flat_gradient(loss, model), "terms": said}


def gaps_of(aggregation: Aggregation) -> dict[str, float]:
    """Return by how much each number differs under one aggregation; gradients by their largest entry."""
    seen, begun, tokenizer = run_trl(RangeReward(scripted_intervals), aggregation)
    batch = our_batch(seen["inputs"], tokenizer)
    far = our_far_loss(batch, deepcopy(begun), seen["far"]["inputs"], aggregation)
    loss, gradient = our_first_step(batch, begun, aggregation)
    theirs = seen["far"]
    scale, far_scale = float(seen["gradient"].abs().max()), float(theirs["gradient"].abs().max())
    clipped = min(far["terms"].clip_low_share, far["terms"].clip_high_share, far["terms"].dual_clip_share)
    if scale == 0 or not np.any(batch.advantage_B) or clipped == 0:
        sys.exit("The batch must have advantages, a gradient and clipped tokens; got none. Take another seed.")
    return {
        "advantage": float(np.abs(seen["inputs"]["advantages"].numpy() - batch.advantage_B).max()),
        "loss": abs(seen["loss"] - loss),
        "gradient": float((seen["gradient"] - gradient).abs().max()) / scale,
        "far loss": abs(theirs["loss"] - far["loss"]),
        "far gradient": float((theirs["gradient"] - far["gradient"]).abs().max()) / far_scale,
        **{f"far {name}": abs(theirs["logs"][name] - getattr(far["terms"], mine)) for name, mine in TRL_LOGS.items()},
    }


def main() -> None:
    """Compare, and say what was compared; exit with 1 where the two differ."""
    worst, table = 0.0, {}
    for aggregation in AGGREGATIONS:
        gaps = table[aggregation] = gaps_of(aggregation)
        sys.stdout.write(f"{aggregation}: {GROUP * PROMPTS} completions\n")
        for name, gap in gaps.items():
            sys.stdout.write(f"  {name:<28} differs by {gap:.2e} (allowed {TOLERANCE:.0e})\n")
        worst = max(worst, *gaps.values())
    versions = {name: version(name) for name in ("torch", "transformers", "trl")}
    facts = {"allowed": TOLERANCE, "machine": platform.platform(), "versions": versions, "differs_by": table}
    write_json(Path(__file__).parents[1] / "results" / "trl_parity.json", facts)
    if not worst <= TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main()
