"""A language model in this process as judge: it scores the replies that a rubric allows.

Computes log p(reply | question) of each reply a rubric allows, summed over the reply's tokens.
The formula is h·w_token - log sum_v exp(h·w_v) at temperature 1, h the last hidden state in the model's dtype; the
products with the replies' own tokens are taken in float32, since rounded to bfloat16 many of them would be equal.
Nothing is divided by the reply's length.
No text is generated, so nothing is parsed; a judge that fails on a question gives NaN for it.

Shapes: B rows of a batch, L question tokens, V vocabulary.
"""

import copy
import hashlib
import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rangeline.errors import JudgeError
from rangeline.judge.client import TOO_LONG, Answer, Gives, OptionRequest
from rangeline.records import ChatMessage
from rangeline.rollout.pretrained import Pretrained, encode_prompt
from rangeline.rollout.reading import cached_forward, left_padded
from rangeline.rollout.token_logprobs import logit_map
from rangeline.rollout.transformers_engine import context_length, evaluating

Row = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
"""Token ids of a question, and those of each reply."""


def choice_digest(model_digest: str, dtype: str) -> str:
    """Return the identity of a judge that scores choices by a model of that digest, in that precision."""
    return hashlib.sha256(f"choice-1 {model_digest} torch.{dtype}".encode()).hexdigest()


class ChoiceJudge:
    """A frozen language model in this process as judge.

    Parameters
    ----------
    pretrained
        Model, tokenizer and digest; runs in the model's own dtype and on its device.
    tokens_per_batch
        Padded question tokens read at once.

    Notes
    -----
    What all questions of a call begin with is read once. Control tokens that occur inside a question are broken by a
    space, so that no completion can end its turn and begin another. A question that is too long for the model gets NaN.
    """

    gives: Gives = "logprobs"

    def __init__(self, pretrained: Pretrained, *, tokens_per_batch: int = 2048) -> None:
        self._model = pretrained.model
        self._tokenizer = pretrained.tokenizer
        self._tokens_per_batch = tokens_per_batch
        self.digest = choice_digest(pretrained.digest, str(pretrained.model.dtype).removeprefix("torch."))
        self._control = control_tokens(pretrained.tokenizer)

    async def ask(self, requests: Sequence[OptionRequest]) -> list[Answer]:
        """Return the scores as answers; a question that is too long, or gives no number, has failed."""
        return [
            Answer(values)
            if np.isfinite(values).all()
            else Answer(None, TOO_LONG if np.isnan(values).all() else "not finite")
            for values in self.score(requests)
        ]

    def score(self, requests: Sequence[OptionRequest]) -> list[tuple[float, ...]]:
        """Return the summed log-probability of each option's tokens after its question.

        Raises
        ------
        JudgeError
            If an option has no tokens.
        """
        rows = [self._encode(request) for request in requests]
        context = context_length(self._model)
        fits = {row for row in rows if context is None or len(row[0]) + max(map(len, row[1])) <= context}
        ordered = sorted(fits, key=lambda row: (len(row[0]), row))
        scores: dict[Row, tuple[float, ...]] = {}
        with evaluating(self._model), torch.inference_mode():
            num_shared, cache = self._read_shared([row[0] for row in ordered])
            start = 0
            while start < len(ordered):
                stop = start + 1
                while stop < len(ordered) and len(ordered[stop][0]) * (stop + 1 - start) <= self._tokens_per_batch:
                    stop += 1
                batch = ordered[start:stop]
                scores.update(zip(batch, self._score_batch(batch, num_shared, cache), strict=True))
                start = stop
        return [scores.get(row, (float("nan"),) * len(row[1])) for row in rows]

    def _encode(self, request: OptionRequest) -> Row:
        messages = chat(request, self._control)
        options = tuple(tuple(self._tokenizer.encode(text, add_special_tokens=False)) for text in request.options)
        if not all(options):
            msg = f"'options' must have at least one token each; got {list(request.options)}. Correct the rubric."
            raise JudgeError(msg)
        return encode_prompt(self._tokenizer, messages), options

    def _read_shared(self, questions: Sequence[tuple[int, ...]]) -> tuple[int, DynamicCache]:
        """Return how many tokens all questions begin with, and a cache of one row that holds these."""
        config = self._model.config
        cache = DynamicCache(config=config)
        if len(questions) < 2 or getattr(config.get_text_config(), "sliding_window", None):
            # A sliding window counts cache columns, and padding would stand between shared and own tokens.
            return 0, cache
        # What the first and the last in dictionary order begin with, all begin with; each keeps a token of its own.
        first, last = min(questions), max(questions)
        num_shared = min(len(question) for question in questions) - 1
        num_shared = next((i for i in range(num_shared) if first[i] != last[i]), num_shared)
        if num_shared:
            ids, mask = left_padded([first[:num_shared]], self._model.device)
            cached_forward(self._model.get_decoder(), ids, mask, cache)
        return num_shared, cache

    def _score_batch(self, batch: Sequence[Row], num_shared: int, shared: DynamicCache) -> list[tuple[float, ...]]:
        device, size = self._model.device, len(batch)
        cache = copy.deepcopy(shared)
        if num_shared:
            cache.batch_repeat_interleave(size)
        ids_BL, mask_BL = left_padded([question[num_shared:] for question, _ in batch], device)
        mask_BL = torch.cat([mask_BL.new_ones((size, num_shared)), mask_BL], dim=1)
        hidden_BH = cached_forward(self._model.get_decoder(), ids_BL, mask_BL, cache).last_hidden_state[:, -1]
        pairs = [(b, option) for b, (_, options) in enumerate(batch) for option in options]
        index = torch.tensor([b for b, _ in pairs], device=device)
        scores = self._logprobs(hidden_BH, index, torch.tensor([option[0] for _, option in pairs], device=device))
        longer = [i for i, (_, option) in enumerate(pairs) if len(option) > 1]
        if longer:
            cache.batch_select_indices(index[longer])
            scores[longer] += self._rest([pairs[i][1] for i in longer], mask_BL[index[longer]], cache)
        split = np.split(scores.cpu().numpy(), np.cumsum([len(options) for _, options in batch])[:-1])
        return [tuple(float(value) for value in part) for part in split]

    def _rest(self, options: Sequence[tuple[int, ...]], mask: Tensor, cache: DynamicCache) -> Tensor:
        """Return the log-probability of each option's tokens after its first, given the cache of its question."""
        width = max(map(len, options)) - 1
        padded = torch.tensor([[*option, *[0] * (width + 1 - len(option))] for option in options], device=mask.device)
        lengths = torch.tensor([len(option) - 1 for option in options], device=mask.device)
        real = torch.arange(width, device=mask.device) < lengths[:, None]
        whole = torch.cat([mask, real.to(mask.dtype)], dim=1)
        hidden = cached_forward(self._model.get_decoder(), padded[:, :-1], whole, cache).last_hidden_state
        kept = hidden[real]
        values = self._logprobs(kept, torch.arange(len(kept), device=mask.device), padded[:, 1:][real])
        return torch.zeros(real.shape, dtype=values.dtype, device=mask.device).masked_scatter(real, values).sum(dim=1)

    def _logprobs(self, hidden_BH: Tensor, row_X: Tensor, token_X: Tensor) -> Tensor:
        """Return float64 log-probabilities of X tokens, each after one of B hidden states."""
        head, finish = self._model.get_output_embeddings(), logit_map(self._model)
        normaliser_B = torch.logsumexp(finish(head(hidden_BH)).float(), dim=-1)
        logit_X = (hidden_BH[row_X].float() * head.weight[token_X].float()).sum(dim=-1)
        if head.bias is not None:
            logit_X = logit_X + head.bias[token_X].float()
        return (finish(logit_X) - normaliser_B[row_X]).double()


def control_tokens(tokenizer: object) -> re.Pattern[str]:
    """Return a pattern of the control tokens that a tokenizer would read as such inside a text."""
    controls = {str(item) for item in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    longest_first = sorted((item for item in controls if len(item.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def chat(request: OptionRequest, control: re.Pattern[str]) -> tuple[ChatMessage, ...]:
    """Return a request as turns of a chat, control tokens inside its texts broken by a space."""

    def broken(text: str) -> str:
        return control.sub(lambda match: f"{match.group()[0]} {match.group()[1:]}", text)

    system = [ChatMessage("system", request.system)] if request.system else []
    shown = [
        turn
        for question, reply in request.examples
        for turn in (ChatMessage("user", broken(question)), ChatMessage("assistant", reply))
    ]
    return (*system, *shown, ChatMessage("user", broken(request.question)))
