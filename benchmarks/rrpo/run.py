"""Does the anchor contrast rank right rollouts above wrong ones? On the labelled pools of a calibrated workspace.

Run from the repository root, after `rangeline calibrate`: `python -m benchmarks.rrpo.run [--prompts 96]`. For each way
to lead anchors (conditions with the reference, and without it) it makes anchors of the first prompts of the source and
calibration pools, trains the metric head on them, and scores the rollouts that calibration sampled and verified. These
took no part in training. The share of pairs of a right and a wrong rollout of one prompt that are ranked right, ties
counted half, is the area under the ROC curve inside a prompt; its interval resamples prompts.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig, build_config, merge
from rangeline.lineage import write_json
from rangeline.prompts.pools import POOLS
from rangeline.records import FloatArray, RolloutSet
from rangeline.rewards.anchor_contrast import contrast_report, contrast_scores, standardised
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.head_training import HeadSettings, train_head
from rangeline.rewards.metric_head import MetricHead
from rangeline.rollout.representation import HiddenArray, mean_hidden
from rangeline.rollout.selection import join_rollouts, take_rollouts
from rangeline.seeds import stream
from rangeline.stages.anchor_shards import load_anchors
from rangeline.stages.anchors import anchors as make_anchors
from rangeline.stages.calibration import read_truth
from rangeline.stages.calibration_rollouts import JUDGED_POOLS
from rangeline.stages.data import read_pool, write_prompts
from rangeline.stages.judging import load_sampler, verify_rollouts
from rangeline.stages.tables import read_rollouts, read_table
from rangeline.stages.workspace import Workspace, open_workspace

ROOT = Path(__file__).resolve().parents[2]
WANTED_AUC = 0.6
_RESAMPLES = 2000


def pair_shares(score_N: FloatArray, truth_N: FloatArray, prompt_id_N: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Return, for each prompt with right and wrong rollouts, the pairs ranked right and the number of pairs."""
    found = {}
    usable_N = np.isfinite(score_N) & np.isfinite(truth_N)
    ids = np.array(prompt_id_N, dtype=object)
    for prompt_id in dict.fromkeys(prompt_id_N):
        own = usable_N & (ids == prompt_id)
        right, wrong = score_N[own & (truth_N == 1)], score_N[own & (truth_N == 0)]
        if right.size and wrong.size:
            above = right[:, None] - wrong[None, :]
            found[prompt_id] = (float(np.where(above == 0, 0.5, above > 0).sum()), int(above.size))
    return found


def auc_of(score_N: FloatArray, truth_N: FloatArray, prompt_id_N: Sequence[str], *, seed: int) -> dict[str, Any]:
    """Return the AUC inside prompts with a 95 % interval over prompts, its pairs, and the AUC over all rows."""
    pairs = list(pair_shares(score_N, truth_N, prompt_id_N).values())
    if not pairs:
        return {"auc": None, "lower": None, "upper": None, "prompts": 0, "pairs": 0, "pooled_auc": None}
    right_P, total_P = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    draws = stream(seed, "rrpo/bootstrap").integers(len(pairs), size=(_RESAMPLES, len(pairs)))
    resampled = right_P[draws].sum(axis=1) / total_P[draws].sum(axis=1)
    everything = pair_shares(score_N, truth_N, ["all"] * len(prompt_id_N))["all"]
    return {
        "auc": float(right_P.sum() / total_P.sum()),
        "lower": float(np.quantile(resampled, 0.025)),
        "upper": float(np.quantile(resampled, 0.975)),
        "prompts": len(pairs),
        "pairs": int(total_P.sum()),
        "pooled_auc": everything[0] / everything[1],
    }


def nearest_sides(hidden_NH: HiddenArray, prompt_id_N: Sequence[str], anchors: AnchorSet) -> FloatArray:
    """Return a score without a head: mean cosine to the positive anchors minus that to the negative ones."""

    def unit(array: HiddenArray) -> FloatArray:
        wide = array.astype(np.float64)
        return np.asarray(wide / np.linalg.norm(wide, axis=-1, keepdims=True))

    place = {prompt_id: p for p, prompt_id in enumerate(anchors.prompt_id_P)}
    centre = anchors.query_PMH.reshape(-1, hidden_NH.shape[1]).mean(axis=0)
    index = [place[prompt_id] for prompt_id in prompt_id_N]
    sides = [unit(part - centre).mean(axis=1)[index] for part in (anchors.positive_PKH, anchors.negative_PKH)]
    own_NH = unit(hidden_NH - centre)
    return np.asarray((own_NH * (sides[0] - sides[1])).sum(axis=1))


def first_prompts(source: Workspace, target: Path, count: int) -> Workspace:
    """Make a workspace with the first prompts of the judged pools, and the starting policy of another."""
    small = Workspace(target)
    shutil.copytree(source.warmup, small.warmup)
    shutil.copytree(source.pools, small.pools)
    for pool in POOLS:
        rows = read_pool(source, pool)[: count // 2] if pool in JUDGED_POOLS else ()
        write_prompts(small.pools / f"{pool}.parquet", rows)
    return small


def labelled_rollouts(source: Workspace, small: Workspace) -> tuple[RolloutSet, FloatArray]:
    """Return what calibration sampled for the prompts of the smaller workspace, with the verified rewards."""
    sets, truths = [], []
    for pool in JUDGED_POOLS:
        wanted = {row.prompt_id for row in read_pool(small, pool)}
        rollouts = read_rollouts(source.calibration / f"{pool}_rollouts.parquet")
        rows = [i for i, prompt_id in enumerate(rollouts.prompt_id_N) if prompt_id in wanted]
        sets.append(take_rollouts(rollouts, rows))
        truths.append(read_truth(source.calibration / f"{pool}_truth.parquet")[rows])
    return join_rollouts(sets), np.concatenate(truths)


def anchor_accuracy(small: Workspace) -> dict[str, float | None]:
    """Return the share of right completions among queries and among the anchors of each side."""
    table = read_table(small.anchors / "index.parquet").to_pydict()
    rows = {row.prompt_id: row for pool in JUDGED_POOLS for row in read_pool(small, pool)}
    num = len(table["prompt_id"])
    rollouts = RolloutSet(
        prompt_id_N=tuple(table["prompt_id"]),
        sample_N=(0,) * num,
        completion_N=tuple(table["completion"]),
        prompt_token_ids_N=((0,),) * num,
        token_ids_N=tuple(tuple(ids) for ids in table["token_ids"]),
        sampled_logprobs_N=tuple((0.0,) * len(ids) for ids in table["token_ids"]),
        finish_reason_N=tuple(table["finish_reason"]),
        policy_version=0,
    )
    truth_N, role_N = verify_rollouts(rollouts, rows).truth_N, np.array(table["role"])
    shares = {}
    for role in ("query", "positive", "negative"):
        own = truth_N[(role_N == role) & np.isfinite(truth_N)]
        shares[role] = float(own.mean()) if own.size else None
    return shares


def measure(
    small: Workspace, config: PipelineConfig, scored: tuple[RolloutSet, FloatArray, HiddenArray]
) -> dict[str, Any]:
    """Make anchors and a head, score the labelled rollouts, and return what was found."""
    rollouts, truth_N, hidden_NH = scored
    make_anchors(small, config, lambda *_: None)
    made = load_anchors(small.anchors)
    settings = HeadSettings(**config.metric_head.model_dump())
    head, report = train_head(made, settings, seed=config.seed)
    untrained = train_head(
        made, HeadSettings(**{**asdict(settings), "max_epochs": 1, "learning_rate": 1e-12}), seed=config.seed
    )[0]

    def scores(which: MetricHead) -> FloatArray:
        return contrast_scores(hidden_NH, rollouts.prompt_id_N, head=which, anchors=made)

    score_N = scores(head)
    wanted = {
        "trained head": score_N,
        "trained head, standardised": standardised(score_N, rollouts.prompt_id_N),
        "untrained head": scores(untrained),
        "no head, cosine": nearest_sides(hidden_NH, rollouts.prompt_id_N, made),
    }
    return {
        "auc": {name: auc_of(v, truth_N, rollouts.prompt_id_N, seed=config.seed) for name, v in wanted.items()},
        "scores": asdict(contrast_report(score_N, rollouts.prompt_id_N)),
        "right_share": anchor_accuracy(small),
        "head": asdict(report),
    }


def render(result: dict[str, Any]) -> str:
    """Return the table of one result, verdict first."""
    lines = []
    for name, found in result["conditions"].items():
        auc = found["auc"]["trained head"]
        verdict = "met" if auc["auc"] is not None and auc["auc"] > WANTED_AUC else "NOT met"
        lines.append(f"conditions {name}: AUC > {WANTED_AUC} {verdict}")
    lines += ["", "| conditions | score | AUC inside prompts | 95 % | prompts, pairs | AUC over all rows |"]
    lines.append("|---|---|---|---|---|---|")
    for name, found in result["conditions"].items():
        for score, auc in found["auc"].items():
            if auc["auc"] is not None:
                lines.append(
                    f"| {name} | {score} | {auc['auc']:.3f} | {auc['lower']:.3f} to {auc['upper']:.3f} | "
                    f"{auc['prompts']}, {auc['pairs']} | {auc['pooled_auc']:.3f} |"
                )
    lines += ["", "| conditions | right: queries | positive | negative | held-out anchors in order | held-out loss |"]
    lines.append("|---|---|---|---|---|---|")
    for name, found in result["conditions"].items():
        head, losses = found["head"], found["head"]["held_out_by_epoch"]
        shares = [found["right_share"][role] for role in ("query", "positive", "negative")]
        right = " | ".join("-" if share is None else f"{share:.3f}" for share in shares)
        lines.append(
            f"| {name} | {right} | {head['anchor_auc']:.3f} | {losses[0]:.3f} to {losses[head['best_epoch']]:.3f} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Run the measurement and write its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workspace", type=Path, default=ROOT, help="a calibrated workspace")
    parser.add_argument("--prompts", type=int, default=96, help="labelled prompts, half from each judged pool")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    chosen = parser.parse_args(arguments)
    source, settings = open_workspace(chosen.workspace)
    result: dict[str, Any] = {"model": settings.policy.model, "prompts": chosen.prompts, "conditions": {}}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        small = first_prompts(source, Path(folder), chosen.prompts)
        place = source.root / settings.anchors.conditions
        shutil.copytree(place if place.is_dir() else ROOT / "conditions", small.root / settings.anchors.conditions)
        rollouts, truth_N = labelled_rollouts(source, small)
        values = merge(settings.model_dump(mode="json"), {"policy": {"sampler_dtype": "float32"}})
        reader, _ = load_sampler(build_config(values, source="benchmark"), source.warmup / "policy")
        hidden_NH = mean_hidden(reader.model, rollouts)
        result["rollouts"], result["right_share"] = len(rollouts), float(np.nanmean(truth_N))
        for name, use_references in (("with reference", True), ("without reference", False)):
            over = {"anchors": {"pools": list(JUDGED_POOLS), "use_references": use_references}}
            config = build_config(merge(settings.model_dump(mode="json"), over), source="benchmark")
            result["conditions"][name] = measure(small, config, (rollouts, truth_N, hidden_NH))
    result["seconds"] = round(time.monotonic() - started, 1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_json(chosen.out / "rrpo.json", result)
    table = render(json.loads((chosen.out / "rrpo.json").read_text(encoding="utf-8")))
    (chosen.out / "rrpo.md").write_text(
        f"# Anchor contrast against verified correctness\n\n{len(rollouts)} verified rollouts of {chosen.prompts} "
        f"prompts, {settings.policy.model} after warm-up, seed {settings.seed}.\n\n{table}",
        encoding="utf-8",
    )
    sys.stdout.write(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
