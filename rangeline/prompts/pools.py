"""Split prompts into pools by cluster, keep old prompts where they were, and prove that pools are disjoint.

A cluster of near duplicates goes to one pool: the point sha256(key, cluster) / 2^64 in [0, 1) is cut by the cumulative
shares, so each share is a share of clusters, not of rows. Rows reserved for a pool decide for their cluster,
then labelled rows. What fits nowhere is excluded with its reason. Stratifying by domain is left out: a hash that looks
at nothing but the cluster is what keeps old prompts in place when prompts are added.
"""

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rangeline.errors import PoolError
from rangeline.prompts.contamination import contaminated_prompts
from rangeline.prompts.duplicates import text_of
from rangeline.records import PromptRow

POOLS = ("policy", "source", "calibration", "ratio", "warmup", "audit", "evaluation")
LABELLED_POOLS = ("warmup", "source", "calibration", "audit", "evaluation")
UNLABELLED_POOLS = ("policy", "ratio")
TRAINING_POOLS = ("policy", "source", "calibration", "ratio", "warmup")

SHARE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one prompt went."""

    row: PromptRow
    cluster: str
    pool: str | None
    """None where the prompt is excluded."""
    reason: str = ""
    """Why it is excluded; empty where it has a pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSplit:
    """Every prompt with its pool, or with the reason for its exclusion."""

    placements: tuple[Placement, ...]
    """One for each prompt, sorted by prompt id."""

    def rows(self, pool: str) -> tuple[PromptRow, ...]:
        """Return the prompts of a pool, sorted by prompt id."""
        return tuple(item.row for item in self.placements if item.pool == pool)

    @property
    def excluded(self) -> tuple[Placement, ...]:
        """Prompts in no pool."""
        return tuple(item for item in self.placements if item.pool is None)

    @property
    def pool_of(self) -> dict[str, str]:
        """Pool of each prompt id that has one; what a later split takes as `previous`."""
        return {item.row.prompt_id: item.pool for item in self.placements if item.pool is not None}

    @property
    def counts(self) -> dict[str, int]:
        """Prompts in each pool, all seven pools named."""
        found = Counter(item.pool for item in self.placements)
        return {pool: found[pool] for pool in POOLS}


def _check_shares(name: str, shares: Mapping[str, float], known: tuple[str, ...]) -> None:
    for pool, share in shares.items():
        if pool not in known:
            msg = f"'{name}' must name pools among {', '.join(known)}; got '{pool}'. Correct the shares."
            raise PoolError(msg)
        if not (math.isfinite(share) and share >= 0):
            msg = f"'{name}.{pool}' must be in [0, 1]; got {share}. Correct the share."
            raise PoolError(msg)
    total = math.fsum(shares.values())
    if abs(total - 1) > SHARE_TOLERANCE:
        msg = f"'{name}' must sum to 1; got {total:.12g} ({dict(shares)}). Correct the shares."
        raise PoolError(msg)


def _hashed_pool(key: str, cluster: str, shares: Mapping[str, float], order: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{key}\0{cluster}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64
    used = [pool for pool in order if shares.get(pool, 0) > 0]
    edges = itertools.accumulate(shares[pool] for pool in used)
    # Rounding may leave the last edge below 1; the last pool takes what is left.
    return next((pool for pool, edge in zip(used, edges, strict=True) if point < edge), used[-1])


def _misfit(row: PromptRow, pool: str) -> str:
    """Say why a row must not be in the pool of its cluster; empty where it may."""
    if row.share != "train" and pool != row.share:
        return f"reserved for {row.share}, but it or a near duplicate is in pool '{pool}'"
    if row.reference is None and pool in LABELLED_POOLS:
        return f"has no reference, but it or a near duplicate is in labelled pool '{pool}'"
    if row.reference is not None and pool in UNLABELLED_POOLS:
        return f"has a reference, but it or a near duplicate is in unlabelled pool '{pool}'"
    return ""


def _place(row: PromptRow, cluster: str, pool: str) -> Placement:
    reason = _misfit(row, pool)
    return Placement(row=row, cluster=cluster, pool=None if reason else pool, reason=reason)


def _place_cluster(
    members: Sequence[PromptRow], cluster: str, new_pool: str, previous: Mapping[str, str]
) -> Iterator[Placement]:
    """Place a cluster: in the pool of its old members, else in the new pool.

    A new row may join clusters that were in different pools. Then the old rows stay, as the separate clusters they are
    without it, and the new rows of the cluster are excluded.
    """
    old = {row.prompt_id: previous[row.prompt_id] for row in members if row.prompt_id in previous}
    pools = sorted(set(old.values()))
    for row in members:
        if len(pools) < 2:
            yield _place(row, cluster, pools[0] if pools else new_pool)
        elif row.prompt_id in old:
            yield _place(row, f"{cluster}/{old[row.prompt_id]}", old[row.prompt_id])
        else:
            reason = f"near duplicate of prompts in several pools: {', '.join(pools)}"
            yield Placement(row=row, cluster=cluster, pool=None, reason=reason)


def _protect_old(placements: Sequence[Placement], old: Mapping[str, str]) -> list[Placement]:
    """Exclude new evaluation prompts that share words with old training prompts, which would lose their pool else."""
    training = [item for item in placements if item.pool in TRAINING_POOLS and item.row.prompt_id in old]
    text = {item.row.prompt_id: text_of(item.row) for item in training}
    clusters = {item.row.prompt_id: item.cluster for item in training}
    new = [item for item in placements if item.pool == "evaluation" and item.row.prompt_id not in old]
    if not text or not contaminated_prompts(text, clusters, (text_of(item.row) for item in new)):
        return list(placements)
    guilty = {item.row.prompt_id for item in new if contaminated_prompts(text, clusters, [text_of(item.row)])}
    reason = "its words occur in older training prompts (was for pool 'evaluation')"
    return [replace(item, pool=None, reason=reason) if item.row.prompt_id in guilty else item for item in placements]


def _decontaminate(placements: Sequence[Placement]) -> Iterator[Placement]:
    training = {item.row.prompt_id: item for item in placements if item.pool in TRAINING_POOLS}
    shared_words = contaminated_prompts(
        {prompt_id: text_of(item.row) for prompt_id, item in training.items()},
        {prompt_id: item.cluster for prompt_id, item in training.items()},
        (text_of(item.row) for item in placements if item.pool == "evaluation"),
    )
    for item in placements:
        words = shared_words.get(item.row.prompt_id)
        if words is None:
            yield item
        else:
            reason = f"words {words!r} occur in an evaluation prompt (was for pool '{item.pool}')"
            yield Placement(row=item.row, cluster=item.cluster, pool=None, reason=reason)


def split_pools(
    rows: Sequence[PromptRow],
    *,
    cluster_N: Sequence[str],
    labelled_shares: Mapping[str, float],
    unlabelled_shares: Mapping[str, float],
    key: str,
    previous: Mapping[str, str] | None = None,
) -> PoolSplit:
    """Split prompts into pools, cluster by cluster, by a keyed hash.

    Parameters
    ----------
    rows
        N prompts with distinct ids; a `share` other than train sends a row and its cluster to that pool.
    cluster_N
        Cluster key of each row, from `near_duplicate_clusters`.
    labelled_shares
        Share of labelled clusters for warmup, source, calibration, audit, evaluation; in [0, 1], sum 1; absent is 0.
    unlabelled_shares
        Share of unlabelled clusters for policy and ratio; in [0, 1], sum 1; absent is 0.
    key
        Key of the hash; another key gives another split.
    previous
        Pool of each prompt id in an earlier split. Those prompts keep their pool, and new near duplicates join them;
        a prompt whose reference or share no longer suits its old pool is excluded, never moved.

    Returns
    -------
    PoolSplit
        Every prompt, with a pool or with the reason for its exclusion.

    Raises
    ------
    PoolError
        If shares are negative, do not sum to 1 or name another pool; if lengths differ; if an id occurs twice; if
        `previous` names an unknown pool.

    Notes
    -----
    Training prompts are decontaminated against evaluation by `contaminated_prompts`; where only the evaluation prompt
    is new, it is the one that is excluded. The hashed split by cluster and
    the rules for reserved and old rows are ours.
    """
    _check_shares("labelled_shares", labelled_shares, LABELLED_POOLS)
    _check_shares("unlabelled_shares", unlabelled_shares, UNLABELLED_POOLS)
    old = previous or {}
    _check_rows(rows, cluster_N, old)
    members: dict[str, list[PromptRow]] = defaultdict(list)
    for row, cluster in zip(rows, cluster_N, strict=True):
        members[cluster].append(row)
    placed: list[Placement] = []
    for cluster, group in members.items():
        reserved = {row.share for row in group} - {"train"}
        is_labelled = any(row.reference is not None for row in group)
        shares, order = (labelled_shares, LABELLED_POOLS) if is_labelled else (unlabelled_shares, UNLABELLED_POOLS)
        new_pool = max(reserved) if reserved else _hashed_pool(key, cluster, shares, order)
        placed += _place_cluster(group, cluster, new_pool, old)
    placed.sort(key=lambda item: item.row.prompt_id)
    return PoolSplit(placements=tuple(_decontaminate(_protect_old(placed, old))))


def _check_rows(rows: Sequence[PromptRow], cluster_N: Sequence[str], previous: Mapping[str, str]) -> None:
    if len(rows) != len(cluster_N):
        msg = f"'cluster_N' must have one key a row; got {len(cluster_N)} for {len(rows)} rows. Cluster the same rows."
        raise PoolError(msg)
    for prompt_id, count in Counter(row.prompt_id for row in rows).items():
        if count > 1:
            msg = f"'prompt_id' must be unique; got '{prompt_id}' in {count} rows. Rename or remove the others."
            raise PoolError(msg)
    for prompt_id, pool in previous.items():
        if pool not in POOLS:
            msg = (
                f"'previous' must name pools among {', '.join(POOLS)}; got '{pool}' (prompt '{prompt_id}'). Correct it."
            )
            raise PoolError(msg)


def prove_disjoint(split: PoolSplit) -> dict[str, dict[str, int]]:
    """Count what each pair of pools has in common, in prompt ids and in clusters: all counts are 0, or it raises.

    Parameters
    ----------
    split
        The split to prove.

    Returns
    -------
    dict
        For each pair, named ``"policy|source"``, the counts ``prompts`` and ``clusters``.

    Raises
    ------
    PoolError
        If two pools share a prompt id or a cluster; the message names one prompt id.
    """
    ids: dict[str, set[str]] = {pool: set() for pool in POOLS}
    cluster_ids: dict[str, dict[str, str]] = {pool: {} for pool in POOLS}
    for item in split.placements:
        if item.pool is not None:
            ids[item.pool].add(item.row.prompt_id)
            cluster_ids[item.pool].setdefault(item.cluster, item.row.prompt_id)
    proof = {}
    for a, b in itertools.combinations(POOLS, 2):
        prompts = sorted(ids[a] & ids[b])
        clusters = sorted(cluster_ids[a].keys() & cluster_ids[b].keys())
        if prompts or clusters:
            prompt_id = prompts[0] if prompts else cluster_ids[a][clusters[0]]
            msg = (
                f"Pools '{a}' and '{b}' must be disjoint; got {len(prompts)} common prompts and {len(clusters)} common "
                f"clusters (prompt '{prompt_id}'). Split the prompts again."
            )
            raise PoolError(msg)
        proof[f"{a}|{b}"] = {"prompts": 0, "clusters": 0}
    return proof


def require_pools(split: PoolSplit, names: Sequence[str]) -> None:
    """Require that each named pool holds a prompt.

    Raises
    ------
    PoolError
        If a named pool is empty or unknown; the message says from how many prompts it drew and which share to raise.
    """
    for name in names:
        if name not in POOLS:
            msg = f"'names' must be pools among {', '.join(POOLS)}; got '{name}'. Correct the name."
            raise PoolError(msg)
        if split.counts[name]:
            continue
        kind = "labelled" if name in LABELLED_POOLS else "unlabelled"
        num_drawn = sum((item.row.reference is not None) == (kind == "labelled") for item in split.placements)
        msg = (
            f"'{name}' pool must hold at least one prompt; got 0 (drawn from {num_drawn} {kind} prompts, "
            f"{len(split.excluded)} of all excluded). Raise '{kind}_shares.{name}' or add {kind} prompts."
        )
        raise PoolError(msg)
