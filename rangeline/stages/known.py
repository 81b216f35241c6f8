"""What does not change from one iteration of a run to the next: pools and encoded prompts, read and made once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rangeline.records import PromptRow
from rangeline.rollout.engine import EncodedPrompt
from rangeline.stages.data import read_pool
from rangeline.stages.judging import encode_rows
from rangeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Known:
    """Memory that the iterations of a session share; nothing in it depends on the policy's weights."""

    pools: dict[str, tuple[PromptRow, ...]] = field(default_factory=dict)
    encoded: dict[str, EncodedPrompt] = field(default_factory=dict)

    def pool(self, workspace: Workspace, name: str) -> tuple[PromptRow, ...]:
        """Return the prompts of a pool."""
        if name not in self.pools:
            self.pools[name] = read_pool(workspace, name)
        return self.pools[name]

    def encode(self, rows: Sequence[PromptRow], tokenizer: object) -> list[EncodedPrompt]:
        """Return the prompts as the policy's token ids."""
        fresh = [row for row in rows if row.prompt_id not in self.encoded]
        self.encoded.update({item.prompt_id: item for item in encode_rows(fresh, tokenizer)})
        return [self.encoded[row.prompt_id] for row in rows]
