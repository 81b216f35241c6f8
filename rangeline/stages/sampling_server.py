"""The vLLM server of a training session: started, kept at the policy's version, and ended with the session.

It is the policy's rollout engine: before it samples it makes sure that the server runs and holds the policy's present
weights. Where it stands is written to the run's `engine.json`, in one of a few named states; a failure leaves the
server paused, the state named, and the same command begins again from the last checkpoint. A server of our own that
died is started again by the next call.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from rangeline.config import RolloutConfig
from rangeline.errors import ConfigError, EngineDiedError, RolloutError, StaleWeightsError, WeightSyncError
from rangeline.lineage import write_json
from rangeline.policy.gpu_transfer import open_transfer
from rangeline.policy.weight_sync import SyncReport, WeightSync
from rangeline.policy.worker import PolicyWorker
from rangeline.records import FloatArray, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import stop_ids
from rangeline.rollout.suffix_logprobs import SuffixRow
from rangeline.rollout.transformers_engine import context_length
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_engine import VllmEngine
from rangeline.rollout.vllm_scoring import server_suffix_logprobs
from rangeline.rollout.vllm_server import ServerOptions, VllmServer
from rangeline.stages.progress import Progress

ENGINE_STATE = "engine.json"
EngineState = Literal[
    "starting", "syncing", "ready", "update refused", "update broken", "update failed", "stale weights", "died",
    "sampling failed", "unusable",
]  # fmt: skip
"""Where the engine stands: the middle ones leave it paused, and no rollout is taken until a sync succeeds."""
Value = TypeVar("Value")


class SamplingServer:
    """A vLLM server as the rollout engine of one policy.

    Parameters
    ----------
    settings
        Where it is, or how it is started.
    folder
        The run's folder: log, state and checkpoints for the server lie there.
    worker
        The policy.
    model
        Folder with the model that a server of our own starts from; its weights are replaced before anything is sampled.
    progress
        Told of the start.
    """

    def __init__(
        self, settings: RolloutConfig, folder: Path, worker: PolicyWorker, *, model: Path, progress: Progress
    ) -> None:
        self._settings, self._folder, self._worker, self._model = settings, folder, worker, model
        self._progress = progress
        self._owner = f"{folder.name}-{os.urandom(3).hex()}"
        self._server: VllmServer | None = None
        self._client: VllmClient | None = None
        self._sync: WeightSync | None = None
        self.synced: SyncReport | None = None
        """What the latest sync showed; None before the first."""

    @property
    def policy_version(self) -> int:
        """Version of the policy, which the server holds whenever it samples."""
        return self._worker.policy_version

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        plan: SamplingPlan,
        *,
        run_seed: int,
        iteration: int,
        purpose: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> RolloutSet:
        """Return rollouts of the policy's present weights; arguments as every rollout engine's.

        Raises
        ------
        RolloutError
            When the server cannot be started, synced or sampled; the run's engine.json names the state.
        """
        engine = self.prepare()

        def draw() -> RolloutSet:
            return engine.generate(
                prompts, plan, run_seed=run_seed, iteration=iteration, purpose=purpose, progress=progress
            )

        return self.watched(draw)

    def score(self, rows: Sequence[SuffixRow]) -> list[FloatArray | None]:
        """Return log-probabilities of given tokens under the policy's present weights; see `server_suffix_logprobs`.

        Raises
        ------
        RolloutError
            When the server cannot be started, synced or asked; the run's engine.json names the state.
        """
        client = self.prepare().client
        return self.watched(lambda: server_suffix_logprobs(client, rows))

    def watched(self, work: Callable[[], Value]) -> Value:
        """Do work with the server; where it fails, name the state before the error goes on."""
        try:
            return work()
        except RolloutError as error:
            self._fail(error)
            raise

    def prepare(self) -> VllmEngine:
        """Bring the server to the policy's present weights and return it as an engine of just that version.

        Raises
        ------
        RolloutError
            When it cannot be started or synced.
        """
        sync = self.watched(self._synced)
        return VllmEngine(
            sync.client,
            self._worker.tokenizer,
            stop_ids=stop_ids(self._worker.tokenizer, self._worker.model),
            policy_version=self._worker.policy_version,
            weight_version=sync.version,
        )

    def _synced(self) -> WeightSync:
        sync = self._connect()
        if sync.version != f"{self._owner}:{self._worker.policy_version}":
            self._note("syncing")
            self.synced = sync.sync(self._worker.model, self._worker.policy_version)
            self._note("ready")
        return sync

    def close(self) -> None:
        """End a server of our own; one that was given goes on."""
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.stop()
            shutil.rmtree(self._folder / "sync", ignore_errors=True)
        self._server = self._client = self._sync = None

    def _connect(self) -> WeightSync:
        if self._server is not None and not self._server.is_alive:
            self.close()
        if self._sync is not None:
            return self._sync
        if self._client is None:
            self._client = VllmClient(self._settings.url or self._start())
        root = Path(self._client.describe()["root"])
        if not root.is_dir():
            msg = (
                f"The server's root of checkpoints must be a folder of this machine too; got '{root}'. Start it with "
                "'rangeline serve vllm --sync-root' on a folder that both can reach."
            )
            raise ConfigError(msg)
        transfer, send = self._settings.transfer, None
        if transfer != "checkpoint":
            send = open_transfer(self._client, self._worker.model, transfer)
        self._sync = WeightSync(
            self._client, root=root, owner=self._owner, tolerance=self._settings.tolerance, send=send
        )
        return self._sync

    def _start(self) -> str:
        self._note("starting")
        settings = self._settings
        context = context_length(self._worker.model) or settings.max_model_len
        options = ServerOptions(
            model=self._model,
            sync_root=self._folder / "sync",
            max_model_len=min(settings.max_model_len, context),
            dtype=settings.dtype,
            transfer=None if settings.transfer == "checkpoint" else settings.transfer,
            extra=settings.extra,
        )
        told = partial(self._progress, "start vLLM")
        self._server = VllmServer.start(options, log=self._folder / "vllm.log", progress=told)
        told(1, 1)
        return self._server.url

    def _fail(self, error: RolloutError) -> None:
        if isinstance(error, EngineDiedError):
            self.close()
        elif self._sync is not None:
            self._sync.version = None  # nothing is sampled before the weights are proved anew
        self._note(_state_of(error), str(error))

    def _note(self, state: EngineState, reason: str = "") -> None:
        facts: dict[str, Any] = {"state": state, "reason": reason, "policy_version": self._worker.policy_version}
        facts["url"] = None if self._client is None else self._client.url
        facts["sync"] = None if self.synced is None else asdict(self.synced)
        write_json(self._folder / ENGINE_STATE, facts)


def open_server(
    settings: RolloutConfig, folder: Path, worker: object, *, model: Path, progress: Progress
) -> SamplingServer:
    """Make a server the rollout engine of a policy; arguments as for `SamplingServer`.

    Raises
    ------
    ConfigError
        When the policy is spread over processes of its own.
    """
    if not isinstance(worker, PolicyWorker):
        msg = (
            "'rollout.engine' must be transformers where the policy is spread over processes; got 'vllm' "
            f"({type(worker).__name__}). Leave out processes.accelerate_config."
        )
        raise ConfigError(msg)
    worker.engine = server = SamplingServer(settings, folder, worker, model=model, progress=progress)
    return server


def _state_of(error: RolloutError) -> EngineState:
    if isinstance(error, WeightSyncError):
        return error.state
    if isinstance(error, StaleWeightsError):
        return "stale weights"
    return "died" if isinstance(error, EngineDiedError) else "sampling failed"
