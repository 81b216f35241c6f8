"""Which training prompts share wording with evaluation prompts.

A training prompt is contaminated when one of its word 8-grams, or its whole text where that is shorter, occurs in an
evaluation prompt. An n-gram whose wording, numbers masked, occurs in more than ten training clusters is a template
and no evidence; a short text that occurs whole always counts. Nothing is divided. Fuzzy matches are left out: near
duplicates share a cluster, and clusters never part.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rangeline.prompts.duplicates import words_of

CONTAMINATION_WORDS = 8
TEMPLATE_CLUSTERS = 10
"""Training clusters up to which shared wording is a leaked question; beyond, it is a template's."""

_Gram = tuple[str, ...]


def _grams(words: _Gram, size: int) -> set[_Gram]:
    return {words[i : i + size] for i in range(len(words) - size + 1)}


def _masked(gram: _Gram) -> _Gram:
    return tuple("0" if word[:1].isdigit() else word for word in gram)


def contaminated_prompts(
    training: Mapping[str, str], clusters: Mapping[str, str], evaluation: Iterable[str]
) -> dict[str, str]:
    """Return the shared words of each contaminated training prompt.

    Parameters
    ----------
    training
        Text of each training prompt id.
    clusters
        Cluster of each training prompt id.
    evaluation
        Texts of the evaluation prompts.

    Returns
    -------
    dict
        Prompt id to the first shared n-gram, contaminated prompts only.

    Notes
    -----
    After Brown et al. 2020, appendix C (13-grams, those common to more than ten documents ignored). Eight words and
    the masking of numbers are ours.
    """
    words_by_id = {prompt_id: words_of(text) for prompt_id, text in training.items()}
    sizes = {prompt_id: min(len(words), CONTAMINATION_WORDS) for prompt_id, words in words_by_id.items()}
    held_out = [words_of(text) for text in evaluation]
    leaked = {size: set().union(*(_grams(words, size) for words in held_out)) for size in set(sizes.values())}
    shared = {
        prompt_id: _grams(words, sizes[prompt_id]) & leaked[sizes[prompt_id]]
        for prompt_id, words in words_by_id.items()
    }
    clusters_with: dict[_Gram, set[str]] = defaultdict(set)
    for prompt_id, grams in shared.items():
        for gram in grams:
            clusters_with[_masked(gram)].add(clusters[prompt_id])
    contaminated = {}
    for prompt_id, grams in shared.items():
        is_whole = len(words_by_id[prompt_id]) <= CONTAMINATION_WORDS
        evidence = [gram for gram in grams if is_whole or len(clusters_with[_masked(gram)]) <= TEMPLATE_CLUSTERS]
        if evidence:
            contaminated[prompt_id] = " ".join(min(evidence))
    return contaminated
