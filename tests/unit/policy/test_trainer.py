"""Laws of the policy trainer: what a step does, reports and refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rangeline.errors import ConfigError, MismatchError, NonFiniteError
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings


def weights(trainer):
    """Copy all weights into one vector."""
    return torch.cat([parameter.detach().flatten().clone() for parameter in trainer.model.parameters()])


def trainer_of(model, **settings):
    """Make a trainer that moves visibly in one step."""
    return PolicyTrainer(model, UpdateSettings(**{"learning_rate": 1e-3, **settings}), cpu=True)


def test_update_raises_the_probability_of_good_completions(tiny_model, tiny_batch):
    """After a few updates, good completions are likelier than before and bad ones less likely."""
    trainer, batch = trainer_of(tiny_model()), tiny_batch()
    tokens = trainer.tensors(batch.token_ids_BL, batch.attention_mask_BL, batch.loss_mask_BL)
    before = trainer.logprobs(tokens)[0].detach().sum(1)
    for _ in range(3):
        trainer.update(batch)
    change = trainer.logprobs(tokens)[0].detach().sum(1) - before
    assert np.sign(change.numpy()).astype(int).tolist() == [1, -1, 1, -1]


def test_first_step_has_ratio_one(tiny_model, tiny_batch):
    """Old and current log-probs agree exactly at the first step: ratio 1, nothing clipped."""
    report = trainer_of(tiny_model()).update(tiny_batch())
    assert (report.ratio_max, report.clip_share, report.steps) == (1.0, 0.0, 1)


def test_later_steps_move_away_from_the_old_policy(tiny_model, tiny_batch):
    """With several steps a batch the ratio leaves 1 and the clip becomes active."""
    report = trainer_of(tiny_model(), updates_per_batch=4, learning_rate=1e-2).update(tiny_batch())
    assert report.steps == 4
    assert report.ratio_max > 1.2
    assert report.clip_share > 0


def test_no_signal_takes_no_step(tiny_model, tiny_batch):
    """Without any advantage the update is skipped, even when an entropy term is on."""
    trainer = trainer_of(tiny_model(), entropy_coefficient=0.1)
    before = weights(trainer)
    report = trainer.update(tiny_batch((0.0,) * 4))
    assert (report.skipped, report.steps, report.num_rows) == (True, 0, 4)
    assert torch.equal(before, weights(trainer))


def test_rows_without_advantage_are_not_trained_on(tiny_model, tiny_batch):
    """Active rows are those with advantage; all rows count when a KL or entropy term reads them."""
    values = (1.0, -1.0, 0.0, 0.0)
    assert trainer_of(tiny_model()).update(tiny_batch(values)).active_rows == 2
    assert trainer_of(tiny_model(), entropy_coefficient=0.1).update(tiny_batch(values)).active_rows == 4


def test_mismatch_is_the_gap_to_the_engine(tiny_model, tiny_batch):
    """The mismatch compares sampled with old log-probs at completion tokens."""
    trainer, batch = trainer_of(tiny_model()), tiny_batch()
    tokens = trainer.tensors(batch.token_ids_BL, batch.attention_mask_BL, batch.loss_mask_BL)
    with torch.no_grad():
        old = trainer.logprobs(tokens)[0][tokens.loss_mask_BL]
    report = trainer.update(batch)
    assert (old + 5).abs().mean().item() == pytest.approx(report.mismatch_mean, rel=1e-5)
    assert (old + 5).abs().max().item() == pytest.approx(report.mismatch_max, rel=1e-5)


def test_gradient_is_clipped_to_the_norm(tiny_model, tiny_batch):
    """The report holds the norm before clipping; what reaches the optimiser has the allowed one."""
    trainer = trainer_of(tiny_model(), max_grad_norm=1e-3, betas=(0.5, 0.9))
    report = trainer.update(tiny_batch())
    moments = [trainer.optimizer.state[parameter]["exp_avg"] for parameter in trainer.model.parameters()]
    assert report.grad_norm > 1e-3
    assert pytest.approx(2 * torch.cat([m.flatten() for m in moments]).norm().item(), rel=1e-2) == 1e-3


def test_kl_to_itself_is_zero_and_grows(tiny_model, tiny_batch):
    """At the start the policy is its reference; after updates the KL is positive."""
    settings = UpdateSettings(learning_rate=1e-3, kl_coefficient=0.1)
    trainer = PolicyTrainer(tiny_model(), settings, reference=tiny_model(), cpu=True)
    assert pytest.approx(trainer.update(tiny_batch()).kl, abs=1e-9) == 0.0
    assert trainer.update(tiny_batch()).kl > 0


def test_dropout_is_off(tiny_model, tiny_batch):
    """A model with dropout updates as one without."""
    plain, dropping = trainer_of(tiny_model()), trainer_of(tiny_model(attention_dropout=0.5).train())
    plain.update(tiny_batch())
    dropping.update(tiny_batch())
    assert torch.equal(weights(plain), weights(dropping))


def test_broken_weights_stop_the_update(tiny_model, tiny_batch):
    """A policy that gives NaN is not trained on, and its weights stay as they were."""
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[7] = math.nan
    trainer = trainer_of(model)
    with pytest.raises(NonFiniteError, match="'current log-probs' must be finite"):
        trainer.update(tiny_batch())
    assert not trainer.optimizer.state_dict()["state"]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_infinite_gradient_takes_no_step(tiny_model):
    """A finite loss whose gradient is infinite raises before the weights change."""
    trainer = trainer_of(tiny_model())
    before = weights(trainer)
    with pytest.raises(NonFiniteError, match="'grad_norm' must be finite; got inf"):
        trainer.step(iter([trainer.model.lm_head.weight.sum() * 1e30 * 1e30]))
    assert torch.equal(before, weights(trainer))


def test_learning_rate_of_one_step_does_not_stick(tiny_model, tiny_batch):
    """A step's own learning rate holds for that step alone."""
    trainer = trainer_of(tiny_model())
    trainer.step(iter([trainer.model.lm_head.weight.sum()]), learning_rate=0.5)
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5
    trainer.update(tiny_batch())
    assert trainer.optimizer.param_groups[0]["lr"] == 1e-3


def rates(trainer, batch, num):
    """Update some times; return the learning rate of every step."""
    return [item.learning_rate for _ in range(num) for item in trainer.update(batch).by_step]


def test_learning_rate_follows_the_schedule(tiny_model, tiny_batch):
    """Rates rise over the warm-up and fall to the end, by optimiser steps and not by batches."""
    settings = {"schedule": "linear", "warmup_steps": 2, "schedule_steps": 6, "updates_per_batch": 2}
    found = rates(trainer_of(tiny_model(), **settings), tiny_batch(), 3)
    assert [0.5e-3, 1e-3, 1e-3, 0.75e-3, 0.5e-3, 0.25e-3] == pytest.approx(found)


def test_schedule_goes_on_with_the_optimisers_state(tiny_model, tiny_batch):
    """A trainer that is given another's optimiser state goes on at its step: the schedule keeps no state itself."""
    settings = {"schedule": "cosine", "schedule_steps": 8}
    whole = rates(trainer_of(tiny_model(), **settings), tiny_batch(), 4)
    first, second = trainer_of(tiny_model(), **settings), trainer_of(tiny_model(), **settings)
    begun = rates(first, tiny_batch(), 2)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    assert whole == begun + rates(second, tiny_batch(), 2)
    assert 4 == second.num_steps


def test_report_holds_every_step(tiny_model, tiny_batch):
    """Steps are numbered over the trainer's life; the update's numbers are means and extremes over its steps."""
    trainer = trainer_of(tiny_model(), updates_per_batch=4, learning_rate=1e-2, max_grad_norm=0.05)
    trainer.update(tiny_batch())
    report = trainer.update(tiny_batch())
    assert [5, 6, 7, 8] == [item.step for item in report.by_step]
    assert 1.0 == report.by_step[0].terms.ratio_max < report.by_step[-1].terms.ratio_max
    for name in ("loss", "grad_norm", "grad_norm_clipped"):
        values = [getattr(item, name) for item in report.by_step]
        assert sum(values) / 4 == pytest.approx(getattr(report, name))
    assert report.ratio_max == max(item.terms.ratio_max for item in report.by_step)
    assert report.by_step[0].grad_norm > 0.05
    assert [min(item.grad_norm, 0.05) for item in report.by_step] == [item.grad_norm_clipped for item in report.by_step]


@pytest.mark.parametrize(("passes", "parts", "steps"), [(4, 1, 4), (1, 2, 2), (2, 2, 4), (1, 4, 2)])
def test_updates_of_a_batch_are_passes_times_parts(tiny_model, tiny_batch, passes, parts, steps):
    """A batch of two prompts gives at most two parts a pass; every token is seen once a pass."""
    report = trainer_of(tiny_model(), updates_per_batch=passes, mini_batches=parts).update(tiny_batch())
    assert steps == report.steps
    assert (4, 10) == (report.active_rows, report.num_tokens)


def test_old_logprobs_are_from_before_the_first_part(tiny_model, tiny_batch):
    """The second part's old policy is the one that sampled: its ratios have left 1 by the time of its step."""
    report = trainer_of(tiny_model(), mini_batches=2, learning_rate=1e-2).update(tiny_batch())
    first, second = report.by_step
    assert 1.0 == pytest.approx(first.terms.ratio_max, abs=1e-6)
    assert second.terms.ratio_max > 1.01 or second.terms.ratio_min < 0.99


def test_part_without_signal_takes_no_step(tiny_model, tiny_batch):
    """A part whose advantages are all 0 is passed over; the others still step."""
    report = trainer_of(tiny_model(), mini_batches=2).update(tiny_batch((0.0, 0.0, 0.5, -0.5)))
    assert (1, 2) == (report.steps, report.active_rows)


def test_each_part_divides_by_its_own_counts(tiny_model, tiny_batch):
    """A part's gradient is that of a batch that holds its rows alone."""
    whole = tiny_batch((1.0, -1.0, 0.0, 0.0))
    halved = trainer_of(tiny_model(), mini_batches=2).update(whole)
    full = trainer_of(tiny_model()).update(whole)
    assert 2 * full.grad_norm == pytest.approx(halved.grad_norm, rel=1e-5)


@pytest.mark.parametrize("parts", [1, 2])
def test_rollouts_of_another_policy_stop_the_update(tiny_model, tiny_batch, parts):
    """Above the allowed mismatch no step is taken, weights and optimiser stay as they were, and gradients are gone."""
    trainer = trainer_of(tiny_model(), max_mismatch=1e-3, mini_batches=parts)
    before = weights(trainer)
    with pytest.raises(MismatchError, match=r"'mismatch_mean' must be at most 0\.001"):
        trainer.update(tiny_batch())
    assert torch.equal(before, weights(trainer))
    assert 0 == trainer.num_steps
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@pytest.mark.parametrize("correction", ["token", "sequence"])
def test_correction_of_a_true_sampler_changes_nothing(tiny_model, tiny_batch, correction):
    """Where the sampler's log-probs are the trainer's, every factor is 1 and the update is the uncorrected one."""
    plain = trainer_of(tiny_model())
    batch = own_logprobs(plain, tiny_batch())
    plain.update(batch)
    corrected = trainer_of(tiny_model(), correction=correction)
    report = corrected.update(batch)
    assert (1.0, 1.0) == pytest.approx((report.importance_factor_min, report.importance_factor_max), abs=1e-6)
    assert torch.allclose(weights(plain), weights(corrected), atol=1e-7)


def own_logprobs(trainer, batch):
    """Replace the sampled log-probs by the trainer's own."""
    with torch.no_grad():
        own, _ = trainer.logprobs(trainer.tensors(batch.token_ids_BL, batch.attention_mask_BL, batch.loss_mask_BL))
    return replace(batch, sampled_logprobs_BL=own.numpy())


def test_correction_halves_what_the_sampler_doubled(tiny_model, tiny_batch):
    """A sampler twice as likely to draw every token halves the gradient; raw and corrected numbers are told."""
    plain = trainer_of(tiny_model())
    batch = own_logprobs(plain, tiny_batch())
    full = plain.update(batch)
    doubled = replace(batch, sampled_logprobs_BL=batch.sampled_logprobs_BL + np.float32(math.log(2)))
    half = trainer_of(tiny_model(), correction="token").update(doubled)
    assert full.grad_norm / 2 == pytest.approx(half.grad_norm, rel=1e-5)
    assert (math.log(2), 0.0) == pytest.approx((half.mismatch_mean, half.mismatch_mean_corrected), abs=1e-6)
    assert (0.5, 0.5) == pytest.approx((half.importance_ratio_mean, half.importance_factor_mean), rel=1e-5)


def test_bfloat16_forward_keeps_float32_weights(tiny_model, tiny_batch):
    """Mixed precision still starts at ratio 1 and leaves weights and optimiser in float32."""
    trainer = trainer_of(tiny_model(), mixed_precision="bf16")
    report = trainer.update(tiny_batch())
    assert (report.ratio_max, report.skipped) == (1.0, False)
    assert {torch.float32} == {parameter.dtype for parameter in trainer.model.parameters()}
    full = trainer_of(tiny_model()).update(tiny_batch())
    assert report.entropy != full.entropy
    assert full.entropy == pytest.approx(report.entropy, rel=0.05)


def test_missing_reference_is_refused(tiny_model):
    """A KL term without a reference policy is a mistake of the caller."""
    with pytest.raises(ConfigError, match="'reference' must be a model when kl_coefficient is positive"):
        PolicyTrainer(tiny_model(), UpdateSettings(kl_coefficient=0.1), cpu=True)


def test_silently_single_process_is_refused(tiny_model):
    """Two processes asked and one started is an error, not a slow run."""
    with pytest.raises(ConfigError, match="must equal the started processes; got 1 for 2 asked"):
        PolicyTrainer(tiny_model(), UpdateSettings(), cpu=True, num_processes=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("betas", (0.9, 1.0)),
        ("clip_low", 1.1),
        ("clip_high", -0.1),
        ("kl_coefficient", -1.0),
        ("entropy_coefficient", math.inf),
        ("updates_per_batch", 0),
        ("micro_batch_tokens", 0),
        ("max_grad_norm", 0.0),
        ("aggregation", "mean"),
        ("temperature", 0.0),
        ("mixed_precision", "fp16"),
        ("schedule", "step"),
        ("schedule", "cosine"),
        ("warmup_steps", -1),
        ("dual_clip", 1.2),
        ("dual_clip", math.inf),
        ("kl_form", "k4"),
        ("correction", "row"),
        ("correction_cap", 0.0),
        ("max_mismatch", 0.0),
        ("mini_batches", 0),
        ("chunk_rows", 0),
    ],
)
def test_settings_out_of_range_are_refused(name, value):
    """Each setting names its rule and the value it got; a schedule that falls names the steps it lacks."""
    told = "schedule_steps" if value == "cosine" else name
    with pytest.raises(ConfigError, match=f"'{told}' must .*; got"):
        UpdateSettings(**{name: value})
