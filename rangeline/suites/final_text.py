r"""The part of a completion that may hold its final answer, and the words that announce one.

Thinking blocks are not the answer, nor is anything after the end of the turn; a block that never closes leaves nothing.
The words for "answer" are those of the languages in which models were seen to reason. Nothing is scored here.
"""

import re

_BLOCK_NAMES = r"(?:think(?:ing)?|thought|thoughts|reasoning|scratchpad|reflection|seed:think)"
_BLOCK_OPEN = re.compile(
    rf"<{_BLOCK_NAMES}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|channel\|>(?:analysis|commentary)", re.IGNORECASE
)
_BLOCK_CLOSE = re.compile(
    rf"</{_BLOCK_NAMES}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|channel\|>final(?:<\|message\|>)?", re.IGNORECASE
)
_TURN_END = re.compile(
    r"<\|im_end\|>|<\|eot_id\|>|<\|end_of_text\|>|<\|endoftext\|>|<\|return\|>|</s>|<end_of_turn>|<\uff5cend\u2581of\u2581sentence\uff5c>"
)
_SOLUTION_TAGS = re.compile(r"<\|(?:begin|end)_of_solution\|>")

ANSWER_WORDS = (
    "answer|antwort|lösung|ergebnis|réponse(?: finale)?|reponse(?: finale)?|résultat|respuesta(?: final)?|"
    "resultado|risposta(?: finale)?|risultato|resposta(?: final)?|antwoord|"
    "svaret|svar|odpowiedź|odpověď|vastaus|válasz|răspunsul|răspuns|ответ|відповідь|απάντηση|cevap|yan\u0131t|"
    "jawabannya|jawaban|câu trả lời|trả lời|đáp án|jibu|"
    "答案|答え|解答|답|정답|الإجابة|الجواب|תשובה|उत्तर|উত্তর|คำตอบ|సమాధానం|result|solution|choice"
)
"""The word that announces an answer, as alternatives of a pattern; small letters."""
COPULAS = r"is|equals|are|ist|lautet|est|es|è|é|är|to(?=\s[0-9$\\])|jest|adalah|là|be|は|是|คือ|为|為|은|는|هي|هو|है"
"""The word between it and the answer, as alternatives of a pattern."""


def visible_text(completion: str) -> str:
    """Return what a completion says outside its thinking.

    Parameters
    ----------
    completion
        Text of the policy; the opening tag may stand in the prompt, so that only the closing one is here.

    Examples
    --------
    >>> visible_text("<think>Perhaps 4?</think>It is 5.<|im_end|>Next")
    'It is 5.'
    >>> visible_text("<think>Perhaps 4")
    ''
    """
    closes = list(_BLOCK_CLOSE.finditer(completion))
    text = completion[closes[-1].end() :] if closes else completion
    opening = _BLOCK_OPEN.search(text)
    if opening is not None:
        text = text[: opening.start()]
    end = _TURN_END.search(text)
    return _SOLUTION_TAGS.sub("", text[: end.start()] if end else text)


def closed_part(completion: str) -> str:
    """Return a cut-off completion without its last word, which may be half of a longer one.

    Examples
    --------
    >>> closed_part("The total is 12")
    'The total is '
    """
    end = len(completion)
    while end and not completion[end - 1].isspace():
        end -= 1
    return completion[:end]
