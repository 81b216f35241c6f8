"""Which policy version serves: the champion, the ones before it, and the way back."""

from rangeline.errors import BadInputError, BusyError
from rangeline.provenance.graph import ModelVersion
from tasks.tracking import CHAMPION, FORMER, Tracker

POLICY_MODEL = "rangeline-policy"
SCORER_MODEL = "rangeline-scorer"
ROLLED_BACK = "rangeline.rolled_back"


def model_versions(tracker: Tracker, name: str) -> list[ModelVersion]:
    """Return every registered version of a model with what it refers to, oldest first."""
    aliases: dict[str, list[str]] = {}
    for model in tracker.client.search_registered_models(f"name = '{name}'"):
        for alias, version in model.aliases.items():
            aliases.setdefault(str(version), []).append(alias)
    found = []
    for version in tracker.client.search_model_versions(f"name = '{name}'"):
        tags = dict(version.tags)
        refers = [tags[key] for key in ("checkpoint.sha256", "scorer.sha256") if key in tags]
        found.append(
            ModelVersion(
                name=name,
                version=int(version.version),
                aliases=tuple(sorted(aliases.get(str(version.version), []))),
                made_of=tuple(refers),
                checkpoint=tags.get("checkpoint.path"),
            )
        )
    return sorted(found, key=lambda item: item.version)


def aliased_checkpoints(tracker: Tracker, name: str) -> dict[str, str]:
    """Return the checkpoint path that each alias of a registered model refers to; empty without such a model."""
    return {
        alias: version.checkpoint
        for version in model_versions(tracker, name)
        for alias in version.aliases
        if version.checkpoint
    }


def former_champions(tracker: Tracker, name: str, *, count: int) -> list[int]:
    """Return the champion and the versions that it and its forerunners replaced, newest first, `count` at most."""
    version = tracker.alias_version(name, CHAMPION)
    found: list[int] = []
    while version is not None and version not in found and len(found) < count:
        found.append(version)
        former = dict(tracker.client.get_model_version(name, str(version)).tags).get(FORMER)
        version = None if former is None else int(former)
    return found


def champion_and_former(tracker: Tracker, name: str) -> tuple[int, int]:
    """Return the champion and the version that it replaced.

    Raises
    ------
    BadInputError
        If there is no champion, or it replaced none.
    """
    found = former_champions(tracker, name, count=2)
    if len(found) < 2:
        held = f"version {found[0]}, which replaced none" if found else "no champion"
        msg = f"'{name}' must have a champion that replaced another; got {held}. There is nothing to roll back to."
        raise BadInputError(msg)
    return found[0], found[1]


def give_back(tracker: Tracker, name: str, version: int, former: int, reason: str) -> None:
    """Give the alias `champion` to a former one, and mark the version that loses it with the reason.

    Raises
    ------
    BusyError
        When another version has the alias by now.
    """
    champion = tracker.alias_version(name, CHAMPION)
    if champion != version:
        msg = (
            f"Version {version} must still be champion when it is rolled back; got {champion}, promoted "
            f"while version {former} was verified. Nothing was changed: look at it, then give the command again."
        )
        raise BusyError(msg)
    tracker.client.set_model_version_tag(name, str(version), ROLLED_BACK, reason[:250])
    tracker.set_alias(name, CHAMPION, former)


def was_rolled_back(tracker: Tracker, name: str, version: int) -> bool:
    """Tell whether a person took the alias `champion` from a version; no gate gives it back by itself."""
    return ROLLED_BACK in dict(tracker.client.get_model_version(name, str(version)).tags)
