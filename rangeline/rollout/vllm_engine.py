"""Sample rollouts from a vLLM server, as the in-process engine would: token ids in, token ids out.

Computes G completions of each prompt and the log-probability of every sampled token at the sampling temperature.
The draws are the server's own, from a seed a rollout: a multiple of G that depends on (run seed, purpose, iteration,
prompt id) alone, plus the rollout's number, so that no two groups share a seed unless they share the multiple.
Nothing is divided. Nothing is filtered: top-p, top-k and penalties are sent as off. Every sample must carry the weight
version that was last synced, or it is an error; draws are not those of the in-process engine, only their law is.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, get_args

import numpy as np

from rangeline.errors import RolloutError, StaleWeightsError
from rangeline.records import FinishReason, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, SampledRow, assemble, require_distinct, require_room
from rangeline.rollout.vllm_client import VllmClient
from rangeline.seeds import seed_of

_SEED_BITS = 62
"""vLLM takes signed 64-bit seeds; the last rollout's must fit too."""
_THREADS = 64
MOST_AT_ONCE = 64
"""Rollouts of one request; vLLM refuses more than it can write at once (`--max-num-seqs`)."""


class VllmEngine:
    """A vLLM server that holds one version of the policy.

    Parameters
    ----------
    client
        The server.
    tokenizer
        The policy's tokenizer; completions are decoded here, so that texts are those of the in-process engine.
    stop_ids
        Token ids that end a completion.
    policy_version
        Version of the weights.
    weight_version
        Name under which the server holds them; None accepts whatever it holds.
    """

    def __init__(
        self,
        client: VllmClient,
        tokenizer: Any,
        *,
        stop_ids: frozenset[int],
        policy_version: int,
        weight_version: str | None = None,
    ) -> None:
        self.client = client
        self.policy_version = policy_version
        self.weight_version = weight_version
        self._tokenizer = tokenizer
        self._stop_ids = sorted(stop_ids)

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
        """Return G rollouts a prompt, prompts in the order given.

        Parameters
        ----------
        prompts
            P prompts of distinct ids.
        plan
            Group size, temperature and completion cap. At temperature 0 log-probs are those of temperature 1.
        run_seed, iteration, purpose
            Together with the prompt id, what the group's seeds depend on.
        progress
            Called with (rollouts done, rollouts wanted) after each prompt.

        Raises
        ------
        RolloutError
            If prompt ids repeat, a prompt is empty or too long, or the server refuses it.
        StaleWeightsError
            If the server waits after a failed update, or a sample comes from other weights than those last synced.
        EngineDiedError
            If the server is gone.
        """
        require_distinct(prompts)
        require_room(prompts, plan.max_tokens, self.client.max_model_len)
        if self.client.is_paused:
            msg = (
                f"The vLLM server at {self.client.url} must be running to sample; it is paused, as a failed weight "
                "update leaves it. Sync the policy's weights again."
            )
            raise StaleWeightsError(msg)
        rows_of: dict[str, list[SampledRow]] = {}
        with ThreadPoolExecutor(max_workers=min(_THREADS, max(len(prompts), 1))) as pool:
            keys = (run_seed, purpose, iteration)
            waiting = {pool.submit(self._group, prompt, plan, keys): prompt for prompt in prompts}
            try:
                for done in as_completed(waiting):
                    rows_of[waiting[done].prompt_id] = done.result()
                    if progress is not None:
                        progress(len(rows_of) * plan.group_size, len(prompts) * plan.group_size)
            except RolloutError:
                pool.shutdown(cancel_futures=True)
                raise
        return assemble(prompts, rows_of, self.policy_version)

    def _group(self, prompt: EncodedPrompt, plan: SamplingPlan, keys: tuple[int, str, int]) -> list[SampledRow]:
        # One greedy completion is all there is, and vLLM refuses to write it more than once.
        size = 1 if plan.temperature == 0 else plan.group_size
        seed = group_seed(*keys, prompt.prompt_id, group_size=plan.group_size)
        rows: list[SampledRow] = []
        for first in range(0, size, MOST_AT_ONCE):
            count = min(MOST_AT_ONCE, size - first)
            rows += self._part(prompt, plan, seed + first, count)
        return rows * (plan.group_size // size)

    def _part(self, prompt: EncodedPrompt, plan: SamplingPlan, seed: int, count: int) -> list[SampledRow]:
        """Return the rollouts of seeds `seed`, `seed + 1` and so on."""
        reply = self.client.generate(
            prompt.token_ids,
            where=f"prompt '{prompt.prompt_id}'",
            n=count,
            temperature=plan.temperature,
            max_tokens=plan.max_tokens,
            seed=seed,
            # The server's own idea of an end token is switched off: these are all there are.
            ignore_eos=True,
            stop_token_ids=self._stop_ids,
            logprobs=0,
        )
        choices = sorted(reply["choices"], key=lambda choice: int(choice["index"]))
        if len(choices) != count:
            msg = f"The server must give {count} rollouts; got {len(choices)} (prompt '{prompt.prompt_id}')."
            raise RolloutError(msg)
        return [self._row(choice, prompt.prompt_id) for choice in choices]

    def _row(self, choice: dict[str, Any], prompt_id: str) -> SampledRow:
        reason, ids = choice["finish_reason"], choice["token_ids"] or []
        if reason not in get_args(FinishReason):
            msg = f"'finish_reason' must be stop or length; got '{reason}' (prompt '{prompt_id}'). Sample it again."
            raise RolloutError(msg)
        versions = {span["version"] for span in choice["weight_versions"] or ()}
        if self.weight_version is not None and versions != {self.weight_version}:
            msg = (
                f"Samples must come from weights '{self.weight_version}'; got {sorted(versions)} (prompt "
                f"'{prompt_id}'). Sync the policy's weights again, and let no other run use this server."
            )
            raise StaleWeightsError(msg)
        values = [float(item["logprob"]) for item in choice["logprobs"]["content"]]
        if len(values) != len(ids) or not np.isfinite(values).all():
            msg = (
                f"'logits' must be numbers; got {len(values)} log-probabilities for {len(ids)} tokens, not all finite "
                f"(prompt '{prompt_id}'). Load the last good checkpoint, or serve in float32."
            )
            raise RolloutError(msg)
        return SampledRow(
            token_ids=tuple(ids),
            logprobs=tuple(values),
            finish_reason=reason,
            completion=self._tokenizer.decode(ids, skip_special_tokens=True),
        )


def group_seed(run_seed: int, purpose: str, iteration: int, prompt_id: str, *, group_size: int) -> int:
    """Return the seed of a group's first rollout; the others' follow it one by one.

    Parameters
    ----------
    run_seed, purpose, iteration, prompt_id
        What the draws of a prompt depend on.
    group_size
        G; the seed is a multiple of it, so that groups overlap only where they are equal.
    """
    return seed_of(run_seed, purpose, iteration, prompt_id) % (2**_SEED_BITS // group_size) * group_size
