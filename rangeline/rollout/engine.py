"""What every rollout engine promises, and the scripted engine that stands in for one.

An engine takes encoded prompts and a sampling plan and gives a `RolloutSet`: prompts in the order given, the G rollouts
of a prompt side by side, with the log-probability of every sampled token under the sampler. The draws of a prompt
depend on (run seed, purpose, iteration, prompt id) alone, so that they are the same in whatever batch it is sampled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rangeline.errors import RolloutError
from rangeline.records import FinishReason, RolloutSet, SamplingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPrompt:
    """A prompt as the token ids a policy reads."""

    prompt_id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRow:
    """One completion as an engine drew it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    completion: str


class RolloutEngine(Protocol):
    """Samples G completions of each prompt from one version of the policy."""

    @property
    def policy_version(self) -> int:
        """Version of the weights the engine holds."""
        ...

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
        """Return the rollouts, prompts in the order given, the rollouts of a prompt side by side.

        Parameters
        ----------
        prompts
            P prompts of distinct ids.
        plan
            Group size, temperature and completion cap.
        run_seed, iteration, purpose
            Together with the prompt id, the key of a prompt's random stream.
        progress
            Called with (rollouts done, rollouts wanted) after each batch.

        Raises
        ------
        RolloutError
            If a prompt cannot be sampled; the message names it.
        """
        ...


def require_distinct(prompts: Sequence[EncodedPrompt]) -> None:
    """Raise unless every prompt has tokens and an id of its own.

    Raises
    ------
    RolloutError
        If two prompts share an id, or a prompt is empty.
    """
    seen: set[str] = set()
    for i, prompt in enumerate(prompts):
        if prompt.prompt_id in seen:
            msg = f"'prompt_id' must be distinct; got '{prompt.prompt_id}' twice (prompt {i}). Remove the duplicate."
            raise RolloutError(msg)
        if not prompt.token_ids:
            msg = f"'token_ids' must hold at least one token; got none (prompt '{prompt.prompt_id}'). Give it a text."
            raise RolloutError(msg)
        seen.add(prompt.prompt_id)


def require_room(prompts: Sequence[EncodedPrompt], max_tokens: int, context: int | None) -> None:
    """Raise unless every prompt and its completion fit the model's context; None means any length fits.

    Raises
    ------
    RolloutError
        If one does not; the message names it.
    """
    for prompt in prompts:
        if context is not None and len(prompt.token_ids) + max_tokens > context:
            msg = (
                f"'token_ids' and 'max_tokens' must fit the model's context of {context}; got "
                f"{len(prompt.token_ids)} + {max_tokens} (prompt '{prompt.prompt_id}'). "
                "Shorten the prompt or lower max_tokens."
            )
            raise RolloutError(msg)


def assemble(
    prompts: Sequence[EncodedPrompt], rows_of: Mapping[str, Sequence[SampledRow]], policy_version: int
) -> RolloutSet:
    """Return the rollout set of groups found by prompt id, in the order of the prompts.

    Parameters
    ----------
    prompts
        P prompts, of distinct ids.
    rows_of
        The G sampled rows of each prompt id.
    policy_version
        Version of the weights that sampled them.
    """
    flat = [(prompt, g, row) for prompt in prompts for g, row in enumerate(rows_of[prompt.prompt_id])]
    return RolloutSet(
        prompt_id_N=tuple(prompt.prompt_id for prompt, _, _ in flat),
        sample_N=tuple(g for _, g, _ in flat),
        completion_N=tuple(row.completion for _, _, row in flat),
        prompt_token_ids_N=tuple(prompt.token_ids for prompt, _, _ in flat),
        token_ids_N=tuple(row.token_ids for _, _, row in flat),
        sampled_logprobs_N=tuple(row.logprobs for _, _, row in flat),
        finish_reason_N=tuple(row.finish_reason for _, _, row in flat),
        policy_version=policy_version,
    )


class ScriptedEngine:
    """An engine that recites given completions: for tests, demonstrations and dry runs.

    Parameters
    ----------
    completions
        Texts of each prompt id, in turn and again from the first when the group is larger.
    tokenizer
        Turns texts into ids and closes them with its end-of-sequence id; None: ids are the UTF-8 bytes.
    policy_version
        Version it claims to hold.

    Notes
    -----
    A recited token is certain, so every log-probability is 0.
    """

    def __init__(
        self, completions: Mapping[str, Sequence[str]], *, tokenizer: Any = None, policy_version: int = 0
    ) -> None:
        self.policy_version = policy_version
        self._completions = {key: tuple(texts) for key, texts in completions.items()}
        self._tokenizer = tokenizer

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
        """Return the scripted completions, cut at the plan's cap; seed, iteration and purpose change nothing."""
        require_distinct(prompts)
        rows_of = {}
        for i, prompt in enumerate(prompts):
            texts = self._completions.get(prompt.prompt_id)
            if not texts:
                msg = f"'completions' must hold every prompt; got none (prompt '{prompt.prompt_id}'). Script it."
                raise RolloutError(msg)
            rows_of[prompt.prompt_id] = [
                self._row(texts[g % len(texts)], plan.max_tokens) for g in range(plan.group_size)
            ]
            if progress is not None:
                progress((i + 1) * plan.group_size, len(prompts) * plan.group_size)
        return assemble(prompts, rows_of, self.policy_version)

    def _row(self, text: str, max_tokens: int) -> SampledRow:
        if self._tokenizer is None:
            ids = list(text.encode())
        else:
            ids = self._tokenizer.encode(text, add_special_tokens=False)
            ids += [] if self._tokenizer.eos_token_id is None else [self._tokenizer.eos_token_id]
        if len(ids) <= max_tokens:
            return SampledRow(token_ids=tuple(ids), logprobs=(0.0,) * len(ids), finish_reason="stop", completion=text)
        cut = ids[:max_tokens]
        short = bytes(cut).decode(errors="replace") if self._tokenizer is None else self._decode(cut)
        return SampledRow(token_ids=tuple(cut), logprobs=(0.0,) * len(cut), finish_reason="length", completion=short)

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))
