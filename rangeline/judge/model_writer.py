"""A language model in this process as judge that writes its replies, greedily, to be read by the tolerant parser.

For questions that cannot be scored, and to see what a model would do behind a server that gives no log-probabilities.
"""

import hashlib
from collections.abc import Sequence

from rangeline.judge.client import TOO_LONG, Answer, Gives, OptionRequest
from rangeline.judge.option_scorer import chat, control_tokens
from rangeline.judge.server_protocol import answer_of
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import Pretrained, encode_prompt
from rangeline.rollout.transformers_engine import TransformersEngine, context_length


def writing_digest(model_digest: str, dtype: str, max_tokens: int) -> str:
    """Return the identity of a judge that writes replies, by a model of that digest, precision and length of reply."""
    return hashlib.sha256(f"writing-1 {model_digest} torch.{dtype} {max_tokens}".encode()).hexdigest()


class WritingJudge:
    """A frozen language model that answers in words.

    Parameters
    ----------
    pretrained
        Model, tokenizer and digest; runs in the model's own dtype and on its device.
    max_tokens
        Of a reply.
    """

    gives: Gives = "picks"

    def __init__(self, pretrained: Pretrained, *, max_tokens: int = 64) -> None:
        self._model, self._tokenizer = pretrained.model, pretrained.tokenizer
        self._max_tokens = max_tokens
        self._control = control_tokens(pretrained.tokenizer)
        self.digest = writing_digest(pretrained.digest, str(pretrained.model.dtype).removeprefix("torch."), max_tokens)

    async def ask(self, requests: Sequence[OptionRequest]) -> list[Answer]:
        """Return what each reply says."""
        return [
            Answer(None, TOO_LONG) if reply is None else answer_of(reply[0], request, truncated=reply[1])
            for request, reply in zip(requests, self.write(requests), strict=True)
        ]

    def write(self, requests: Sequence[OptionRequest]) -> list[tuple[str, bool] | None]:
        """Return each reply and whether it was cut off; None for a question that is too long for the model."""
        encoded = {item: encode_prompt(self._tokenizer, chat(item, self._control)) for item in dict.fromkeys(requests)}
        context = context_length(self._model)
        fits = [item for item, ids in encoded.items() if context is None or len(ids) + self._max_tokens <= context]
        if not fits:
            return [None] * len(requests)
        prompts = [EncodedPrompt(prompt_id=str(i), token_ids=encoded[item]) for i, item in enumerate(fits)]
        plan = SamplingPlan(group_size=1, temperature=0.0, max_tokens=self._max_tokens)
        engine = TransformersEngine(self._model, self._tokenizer, policy_version=0)
        written = engine.generate(prompts, plan, run_seed=0, iteration=0, purpose="judge")
        ended = zip(written.completion_N, written.finish_reason_N, strict=True)
        replies = {item: (text, reason == "length") for item, (text, reason) in zip(fits, ended, strict=True)}
        return [replies.get(item) for item in requests]
