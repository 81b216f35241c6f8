"""Policy tasks of an iteration: sample rollouts from the resident policy, and update it."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.stages.session import TrainingSession


@task(name="sample rollouts", cache_policy=NO_CACHE, retries=1)
def sample_rollouts(session: TrainingSession, number: int) -> None:
    """Draw the iteration's rollouts; a retry draws the same ones."""
    session.sample(number)


@task(name="update policy", cache_policy=NO_CACHE)
def update_policy(session: TrainingSession, number: int) -> None:
    """Update the policy from its advantages, write checkpoint and manifest. Never retried: it moves state."""
    session.update(number)
