"""One-step-off sampling: the next iteration's rollouts are drawn while the policy is updated on this one's.

The server is brought to the policy's weights before the update and keeps them until the update is done, so rollouts of
an iteration are one policy version old when they are trained on; they carry that version, and the log-probability of
every token under it, from which the objective's truncated importance factors are made. All shares are drawn together:
intervals are of the policy that wrote them.
What was drawn is on disk before the iteration closes, so that a resumed run takes the same. The last iteration
draws nothing ahead.
"""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from rangeline.lineage import write_json
from rangeline.records import RolloutSet
from rangeline.rollout.vllm_engine import VllmEngine
from rangeline.stages.iteration import Asked, Iteration
from rangeline.stages.sampling_server import SamplingServer
from rangeline.stages.tables import write_rollouts

MARKER = "ahead.json"
"""Written once every share's rollouts are there: the policy version that drew them."""


def _ahead(folder: Path, share: str) -> Path:
    return folder / f"ahead_{share}_rollouts.parquet"


def take_ahead(iteration: Iteration, policy_version: int) -> bool:
    """Give an iteration the rollouts that were drawn ahead; return whether there were any of the version before.

    Parameters
    ----------
    iteration
        The iteration that is about to sample.
    policy_version
        Version of the policy now; rollouts of it or of the one before are taken.
    """
    path = iteration.folder / MARKER
    if not path.is_file():
        return False
    drawn = int(json.loads(path.read_text(encoding="utf-8"))["policy_version"])
    if policy_version - drawn not in (0, 1):
        return False
    for share in iteration.shares:
        # Copied: reward sources may add to the iteration's own file, and a repeat must begin from what was drawn.
        shutil.copyfile(_ahead(iteration.folder, share), iteration.folder / f"{share}_rollouts.parquet")
    return True


@contextmanager
def sampling_ahead(server: SamplingServer, following: Iteration, *, seed: int, tokenizer: object) -> Iterator[None]:
    """Draw an iteration's rollouts from the policy of now while the block runs, and keep them when it is done.

    Parameters
    ----------
    server
        The policy's server; it is synced before the block begins.
    following
        Whose rollouts are drawn.
    seed
        Of the run.
    tokenizer
        The policy's.

    Raises
    ------
    RolloutError
        When the server cannot be synced, or the draws failed; the block has been run to its end by then.
    """
    engine = server.prepare()
    following.folder.mkdir(parents=True, exist_ok=True)
    (following.folder / MARKER).unlink(missing_ok=True)
    with ThreadPoolExecutor(max_workers=1) as pool:
        drawn = pool.submit(_draw, engine, following.asked(tokenizer), following.number, seed)
        yield
        rollouts = server.watched(drawn.result)
    for share, drawn_share in rollouts.items():
        write_rollouts(_ahead(following.folder, share), drawn_share)
    write_json(following.folder / MARKER, {"policy_version": engine.policy_version})


def _draw(engine: VllmEngine, asked: Asked, number: int, seed: int) -> dict[str, RolloutSet]:
    return {
        share: engine.generate(prompts, plan, run_seed=seed, iteration=number, purpose=f"train/{share}")
        for share, (prompts, plan) in asked.items()
    }
