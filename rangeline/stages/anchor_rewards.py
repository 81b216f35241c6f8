"""Score rollouts by the frozen anchors and metric head of a workspace, and say how far the rollouts have drifted."""

from dataclasses import asdict

from rangeline.errors import AnchorError
from rangeline.lineage import MANIFEST_NAME, artifact_ref, read_manifest
from rangeline.rewards.anchor_contrast import anchor_contrast_intervals, contrast_report, contrast_scores
from rangeline.rewards.representation_drift import drift_report
from rangeline.rollout.representation import mean_hidden
from rangeline.stages.anchor_shards import load_anchors, load_head
from rangeline.stages.rewarding import RewardContext, Scored
from rangeline.stages.workspace import Workspace


def score_by_anchor_contrast(context: RewardContext) -> Scored:
    """Contrast each rollout with its prompt's anchors, as the frozen starting policy represents them.

    Raises
    ------
    AnchorError
        When anchors or head are absent or made from another starting policy, or no prompt has anchors.
    """
    workspace, settings = context.workspace, context.config.reward.anchor_contrast
    require_current(workspace)
    anchors, head = load_anchors(workspace.anchors), load_head(workspace.metric_head)
    rollouts = context.rollouts
    prompt_ids = rollouts.prompt_id_N
    if not set(prompt_ids) & set(anchors.prompt_id_P):
        msg = (
            f"Prompts to score must have anchors; got none of {len(set(prompt_ids))} (first '{prompt_ids[0]}', "
            f"iteration {context.number}). Add their pool to anchors.pools and run 'rangeline anchors'."
        )
        raise AnchorError(msg)
    hidden_NH = mean_hidden(context.require_models().initial, rollouts)
    score_N = contrast_scores(hidden_NH, prompt_ids, head=head, anchors=anchors)
    drift = drift_report(hidden_NH, prompt_ids, anchors=anchors, threshold=settings.max_drift)
    return Scored(
        intervals=anchor_contrast_intervals(score_N, prompt_ids, delta=settings.delta),
        facts={
            **{f"contrast_{name}": value for name, value in asdict(contrast_report(score_N, prompt_ids)).items()},
            "drift_mmd2": drift.mmd2,
            "drift_cosine": drift.cosine,
            "drift_prompts": drift.num_prompts,
            "drift_alarm": int(drift.alarm),
        },
    )


def require_current(workspace: Workspace) -> None:
    """Check that the anchors come from the present starting policy, and the head from the present anchors.

    Raises
    ------
    AnchorError
        When either was made from something else, or not at all.
    """
    for made, source in (("anchors", "warmup"), ("metric_head", "anchors")):
        folder, above = getattr(workspace, made), getattr(workspace, source) / MANIFEST_NAME
        if not (folder / MANIFEST_NAME).is_file():
            msg = f"'{made}' must be made first; got no '{folder / MANIFEST_NAME}'. Run 'rangeline anchors'."
            raise AnchorError(msg)
        now = artifact_ref(above, workspace.root)
        if now.sha256 not in {ref.sha256 for ref in read_manifest(folder / MANIFEST_NAME).parents}:
            msg = (
                f"'{made}' must come from the present '{source}', {now.sha256[:12]}; got another ('{folder}'). Run "
                "'rangeline anchors' again."
            )
            raise AnchorError(msg)
