"""The run card: what decides the meaning of a run's numbers, in words, with the digests of what it was made from."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rangeline.lineage import MANIFEST_NAME, Manifest, digest_file, read_manifest
from rangeline.policy.checkpoint import MARKER
from rangeline.records import PromptRow
from rangeline.stages.run import RunFolder

_NORMALISERS = {
    "dr_grpo": "rollouts of the batch times the completion cap: 1 / (N L_max) a token",
    "grpo": "rollouts of the batch times each one's own length: 1 / (N |o_i|) a token",
    "dapo": "completion tokens of the whole batch: 1 / sum |o_j| a token",
}


def key_card(run: RunFolder, done: int, started: Mapping[str, Any], rows: Iterable[PromptRow]) -> dict[str, str]:
    """Return the run card.

    Parameters
    ----------
    run, done
        The run, and how many iterations are complete.
    started
        What `run.json` holds.
    rows
        Prompts of the run's pools: their suites parse the answers.
    """
    config = started["config"]
    last = _manifest(run, done)
    card = {
        "policy": f"{config['policy']['model']}, trained in {config['policy']['precision']}",
        "rewards": _rewards(config),
        "estimator": _estimator(config["advantages"], run, done),
        "advantage scale": str(config["advantages"].get("advantage_scale", "none")),
        "normaliser": _NORMALISERS.get(config["objective"]["aggregation"], str(config["objective"]["aggregation"])),
        "KL term": _kl(config["objective"]),
        "clipping": f"ratio in [1 - {config['objective']['clip_low']:g}, 1 + {config['objective']['clip_high']:g}]",
        "optimiser": _optimiser(config["objective"]),
        "sampling": _sampling(config),
        "parser": _parser(rows),
        "judge": _judge(config["judge"], last),
        "seed": str(config["seed"]),
    }
    return card | _digests(run, done, started, last)


def _manifest(run: RunFolder, done: int) -> Manifest | None:
    return read_manifest(run.iteration(done) / MANIFEST_NAME) if done else None


def _rewards(config: Mapping[str, Any]) -> str:
    source = config.get("reward", {}).get("source", "judge_interval")
    if source != "judge_interval":
        return source.replace("_", " ")
    intervals = config["intervals"]
    repair = {"none": "not repaired along the run", "audit_window": "repaired by recent audits"}
    adapt = intervals.get("adapt", "none")
    return (
        f"judge intervals, miss rate {intervals['alpha']:g}, density ratio by {intervals['ratio']}, "
        f"{repair.get(adapt, adapt)}"
    )


def _estimator(settings: Mapping[str, Any], run: RunFolder, done: int) -> str:
    """Name the estimator; where labelled rollouts chose it, say how often they chose which."""
    form = f"form {settings['form']}"
    chosen: Counter[str] = Counter()
    for number in range(1, done + 1):
        path = run.iteration(number) / "choice.json"
        record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        said = {"estimator": settings["estimator"], "reduction": settings["reduction"], **record.get("chosen", {})}
        width = said.get("reference_width", record.get("reference_width", settings["reference_width"]))
        width = width if isinstance(width, str) else f"{width:.3g}"
        chosen[f"{said['estimator']} ({said['reduction']}, reference width {width})"] += 1
    if "auto" not in (settings["estimator"], settings["reference_width"]) or not chosen:
        return (
            f"{settings['estimator']} ({settings['reduction']}, reference width {settings['reference_width']}), {form}"
        )
    tally = "; ".join(f"{name} in {count}" for name, count in chosen.most_common())
    return f"chosen by labelled rollouts, by iterations: {tally}; {form}"


def _kl(objective: Mapping[str, Any]) -> str:
    if not objective["kl_coefficient"]:
        return "none"
    return f"{objective['kl_coefficient']:g} times {objective.get('kl_form', 'k3')}, to the warmed-up policy"


def _optimiser(objective: Mapping[str, Any]) -> str:
    passes, parts = objective["updates_per_batch"], objective.get("mini_batches", 1)
    return f"learning rate {objective['learning_rate']:g}, {passes} x {parts} steps a batch (passes x parts)"


def _sampling(config: Mapping[str, Any]) -> str:
    sampling, engine = config["sampling"], config.get("rollout", {}).get("engine", "transformers")
    return (
        f"G = {sampling['group_size']} rollouts a prompt at temperature {sampling['temperature']:g}, at most "
        f"{sampling['max_tokens']} tokens, by {engine}"
    )


def _parser(rows: Iterable[PromptRow]) -> str:
    counts = Counter(row.suite for row in rows)
    return "; ".join(f"suite {name} ({count:,} prompts)" for name, count in counts.most_common()) or "none"


def _judge(settings: Mapping[str, Any], last: Manifest | None) -> str:
    if last is None or "judge" not in last.facts:
        return "none was asked"
    return f"{settings['model']}, rubric {settings['rubric']}"


def _digests(run: RunFolder, done: int, started: Mapping[str, Any], last: Manifest | None) -> dict[str, str]:
    card = {"digest of settings and data": str(started["identity"])}
    if last is None:
        return card
    for ref in last.parents:
        name = ref.path.removesuffix(f"/{MANIFEST_NAME}").rsplit("/", 1)[-1]
        if not name.isdigit():  # the iteration before is part of the lineage, and says nothing by itself
            card[f"digest of {name}"] = ref.sha256
    for name, value in last.facts.get("judge", {}).items():
        if name in ("digest", "rubric_sha256"):
            card["digest of judge" if name == "digest" else "digest of rubric"] = str(value)
    marker = run.checkpoint(done) / MARKER
    if marker.is_file():
        card[f"digest of checkpoint {done}"] = digest_file(marker)
    dirty = " with uncommitted changes" if last.code.get("dirty") else ""
    card["code"] = (
        f"{last.code.get('version', 'unknown version')}, commit {last.code.get('commit') or 'unknown'}{dirty}"
    )
    return card
