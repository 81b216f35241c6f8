"""The policy of a run in several processes, with the calls of a `PolicyWorker`.

It computes nothing itself: prompts are dealt out to sample, batches go to every process, which trains on its groups.
There is no formula here and nothing is divided.
Random draws are keyed by prompt, so that a prompt's rollouts are the same whichever process samples it; no process has
a seed of its own, and the start of adapters is drawn alike in all.
It leaves out choice steps, which the warm-up alone takes, in one process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from safetensors.torch import load_file

from rangeline.errors import ConfigError
from rangeline.policy.batch import PolicyBatch, TaughtRow, build_batch
from rangeline.policy.launch import Ranks, launch_environment
from rangeline.policy.objective import ObjectiveTerms
from rangeline.policy.report import StepReport, UpdateReport
from rangeline.policy.settings import UpdateSettings
from rangeline.policy.supervised import ChoiceRow, SupervisedReport, SupervisedRow
from rangeline.policy.worker import Placement, PolicyWorker, SamplerDtype
from rangeline.records import Advantages, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, require_distinct
from rangeline.rollout.pretrained import Pretrained, load_pretrained


class PolicyProcesses:
    """The policy of a run in several processes; make it with `PolicyProcesses.load`.

    Parameters
    ----------
    pretrained
        The initial policy, kept here for its tokenizer and to read the trained policy's probabilities from.
    ranks
        The processes, each with a loaded worker.
    """

    def __init__(self, pretrained: Pretrained, ranks: Ranks) -> None:
        self.tokenizer = pretrained.tokenizer
        self.model_name = pretrained.name
        self.model_digest = pretrained.digest
        self.policy_version = 0
        self._ranks = ranks
        self._local = pretrained.model.eval()
        self._local_version = 0

    @classmethod
    def load(
        cls,
        name_or_folder: str,
        *,
        settings: UpdateSettings,
        placement: Placement,
        accelerate_config: Path | None = None,
        cache_dir: Path,
        sampler_dtype: SamplerDtype = "float32",
        **options: Any,
    ) -> Self:
        """Start the processes and load the policy in each.

        Parameters
        ----------
        name_or_folder, settings, placement, cache_dir, sampler_dtype
            As for `PolicyWorker.load`; `placement` says how many processes there are.
        accelerate_config
            How they train; None is DDP.
        **options
            The other options of `PolicyWorker.load`.

        Raises
        ------
        ConfigError
            When `accelerate_config` is not usable, or more processes are asked than there are accelerators.
        ModelLoadError
            When the model cannot be loaded.
        ToolError
            When the processes cannot be started.
        """
        count = placement.num_processes
        if torch.cuda.is_available() and not placement.cpu and count > torch.cuda.device_count():
            msg = f"'processes.count' must be at most the {torch.cuda.device_count()} devices; got {count}. Lower it."
            raise ConfigError(msg)
        environment = launch_environment(count, accelerate_config)
        # Loaded here first: a model that cannot be, or must be converted once, is not tried by all at once.
        pretrained = load_pretrained(
            name_or_folder,
            dtype="float32",
            trust_remote_code=bool(options.get("trust_remote_code", False)),
            cache_dir=cache_dir,
        )
        ranks = Ranks(count, environment)
        message = {
            "call": "load",
            "name": name_or_folder,
            "settings": settings,
            "placement": placement,
            "cache_dir": cache_dir,
            "options": {**options, "sampler_dtype": sampler_dtype},
        }
        ranks.call([message] * count)
        return cls(pretrained, ranks)

    @property
    def model(self) -> Any:
        """A copy of the policy in this process, brought up to date when asked for; not to be changed."""
        if self._local_version != self.policy_version:
            with TemporaryDirectory(prefix="rangeline-weights-") as folder:
                path = Path(folder) / "weights.safetensors"
                self._call_all({"call": "export", "path": path})
                # Tied weights are written once, and are one tensor here too.
                self._local.load_state_dict(load_file(path), strict=False)
            self._local_version = self.policy_version
        return self._local

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids: the launcher's, then those of the ranks."""
        return (self._ranks.launcher_pid, *(self._ranks.pids[rank] for rank in range(self._ranks.size)))

    @property
    def pad_id(self) -> int:
        """Token id that fills padding: the tokenizer's pad id, else its end-of-sequence id."""
        pad_id = self.tokenizer.pad_token_id
        return int(self.tokenizer.eos_token_id if pad_id is None else pad_id)

    def generate(
        self,
        prompts: Sequence[EncodedPrompt],
        plan: SamplingPlan,
        *,
        iteration: int,
        purpose: str,
        progress: Callable[[int, int], None] | None = None,
    ) -> RolloutSet:
        """Sample rollouts from the current policy, each prompt in one process; see `PolicyWorker.generate`."""
        require_distinct(prompts)
        size = self._ranks.size
        # Like lengths in turn: every process gets long prompts and short ones.
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i].token_ids))
        messages = [
            {
                "call": "generate",
                "prompts": [[prompts[i].prompt_id, prompts[i].token_ids] for i in order[rank::size]],
                "plan": plan,
                "iteration": iteration,
                "purpose": purpose,
            }
            for rank in range(size)
        ]
        replies = self._ranks.call(messages, progress)
        return _joined([reply["value"] for reply in replies if reply["value"]], prompts, self.policy_version)

    def batch(
        self,
        rollouts: RolloutSet,
        advantages: Advantages,
        *,
        max_tokens: int,
        trained_tokens: Sequence[int] | None = None,
        taught: Sequence[TaughtRow] = (),
    ) -> PolicyBatch:
        """Build the batch of these rollouts with the tokenizer's pad id; see `policy.batch.build_batch`."""
        return build_batch(
            rollouts,
            advantages,
            pad_id=self.pad_id,
            max_tokens=max_tokens,
            trained_tokens=trained_tokens,
            taught=taught,
        )

    def update(self, batch: PolicyBatch) -> UpdateReport:
        """Update the policy from one batch; the policy version rises by one when a step was taken."""
        found = dict(self._call_all({"call": "update", "batch": batch}))
        steps = [{**step, "terms": ObjectiveTerms(**step["terms"])} for step in found.pop("by_step")]
        return UpdateReport(**found, by_step=tuple(StepReport(**step) for step in steps))

    def supervised_step(self, rows: Sequence[SupervisedRow], *, learning_rate: float | None = None) -> SupervisedReport:
        """Take one supervised step; the policy version rises by one. See `policy.supervised.supervised_update`."""
        message = {"call": "supervised_step", "rows": list(rows), "learning_rate": learning_rate}
        return SupervisedReport(**self._call_all(message))

    def choice_step(self, rows: Sequence[ChoiceRow], *, learning_rate: float | None = None) -> SupervisedReport:
        """Refuse: a step towards choosing alike is taken in one process.

        Raises
        ------
        ConfigError
            Always.
        """
        msg = (
            f"A choice step must be taken in one process; got {self._ranks.size} for {len(rows)} rows at "
            f"{learning_rate}. Warm the policy up by itself."
        )
        raise ConfigError(msg)

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, by the first process alone; see `PolicyWorker.save`."""
        self._call_all({"call": "save", "folder": folder.resolve(), "state": state})

    def restore(self, folder: Path) -> dict[str, Any]:
        """Continue from a checkpoint of the same run, of whatever number of processes; see `PolicyWorker.restore`."""
        saved: dict[str, Any] = self._call_all({"call": "restore", "folder": folder.resolve()})
        self._local_version = -1
        return saved

    def close(self) -> None:
        """End the processes; the policy cannot be used afterwards."""
        self._ranks.close()

    def _call_all(self, message: Mapping[str, Any]) -> Any:
        first = self._ranks.call([message] * self._ranks.size)[0]
        self.policy_version = first["policy_version"]
        return first["value"]


Policy = PolicyWorker | PolicyProcesses
"""The policy of a run, in one process or several."""


def _joined(parts: Sequence[Mapping[str, Any]], prompts: Sequence[EncodedPrompt], version: int) -> RolloutSet:
    """Return the rollouts of all processes, prompts in the order given."""
    names = [field.name for field in fields(RolloutSet) if field.name.endswith("_N")]
    rows_of: dict[str, list[list[Any]]] = {}
    for part in parts:
        for row in zip(*(part[name] for name in names), strict=True):
            rows_of.setdefault(row[names.index("prompt_id_N")], []).append(
                [tuple(value) if isinstance(value, list) else value for value in row]
            )
    rows = [row for prompt in prompts for row in rows_of[prompt.prompt_id]]
    columns = zip(*rows, strict=True)
    return RolloutSet(**dict(zip(names, columns, strict=True)), policy_version=version)
