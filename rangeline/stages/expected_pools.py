"""Say how many prompts each pool has, or will have before the data is prepared."""

from rangeline.config import PipelineConfig
from rangeline.prompts.contract import read_rows
from rangeline.prompts.pools import POOLS
from rangeline.stages.data import pool_counts
from rangeline.stages.workspace import Workspace

_USUAL_PROMPT_LETTERS = 200
"""Where no file shows how long the prompts are."""


def expected_pools(workspace: Workspace, config: PipelineConfig) -> tuple[dict[str, int], int]:
    """Return the prompts of each pool, and the letters of the longest prompt that a file shows.

    Made pools are counted. Before that, what generators, worlds and files hold is dealt out by the shares;
    benchmarks, duplicates and refused references are not looked at.
    """
    labelled = unlabelled = letters = 0
    reserved = dict.fromkeys(POOLS, 0)
    for name in config.data.files:
        for row in read_rows(workspace.root / name):
            letters = max(letters, len(str(row.get("prompt", ""))))
            if row.get("share", "train") in reserved:
                reserved[str(row["share"])] += 1
            elif row.get("reference") is None:
                unlabelled += 1
            else:
                labelled += 1
    letters = letters or _USUAL_PROMPT_LETTERS
    if (workspace.pools / "manifest.json").is_file():
        return dict(pool_counts(workspace)), letters
    for item in config.data.generators:
        if item.share != "train":
            reserved[item.share] += item.size
        elif item.labelled:
            labelled += item.size
        else:
            unlabelled += item.size
    if config.data.world is not None:
        sizes = config.data.world.model_dump()
        reserved = {name: count + int(sizes.get(name, 0)) for name, count in reserved.items()}
    shares = {**config.split.labelled.model_dump(), **config.split.unlabelled.model_dump()}
    of_kind = {name: labelled if name in config.split.labelled.model_dump() else unlabelled for name in shares}
    return {name: reserved[name] + round(shares[name] * of_kind[name]) for name in POOLS}, letters
